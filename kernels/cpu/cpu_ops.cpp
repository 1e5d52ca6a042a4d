// The CPU's table of operations.
#include "kernels/cpu/cpu_ops.h"

namespace q2 {

const Ops* cpu_ops() {
    static const Ops table = {
        .name = "cpu",
        .dense_dtype = Dtype::f32,
        .open = cpu::open,
        .close = cpu::close,
        .describe = cpu::describe,
        .memory = cpu::memory,
        .allocate = cpu::allocate,
        .release = cpu::release,
        .allocate_host = cpu::allocate,
        .release_host = cpu::release,
        .upload = cpu::upload,
        .download = cpu::download,
        .copy = cpu::copy,
        .zero = cpu::zero,
        .synchronize = cpu::synchronize,
        .embedding_forward = cpu::embedding_forward,
        .embedding_backward = cpu::embedding_backward,
        .embedding_backward_scratch = cpu::embedding_backward_scratch,
        .residual_rmsnorm_forward = cpu::residual_rmsnorm_forward,
        .residual_rmsnorm_backward = cpu::residual_rmsnorm_backward,
        .residual_rmsnorm_backward_scratch = cpu::residual_rmsnorm_backward_scratch,
        .rope = cpu::rope,
        .attention_forward = cpu::attention_forward,
        .attention_backward = cpu::attention_backward,
        .attention_scratch = cpu::attention_scratch,
        .swiglu_forward = cpu::swiglu_forward,
        .swiglu_backward = cpu::swiglu_backward,
        .matmul = cpu::matmul,
        .matmul_scratch = cpu::matmul_scratch,
        .time_matmuls = cpu::time_matmuls,
        .matmul_choices = cpu::matmul_choices,
        .choose_matmuls = cpu::choose_matmuls,
        .quantize = cpu::quantize,
        .quantize_gradient = cpu::quantize_gradient,
        .quantize_scratch = cpu::quantize_scratch,
        .cast = cpu::cast,
        .cross_entropy = cpu::cross_entropy,
        .add_loss = cpu::add_loss,
        .gradient_norm = cpu::gradient_norm,
        .gradient_norm_scratch = cpu::gradient_norm_scratch,
        .adamw = cpu::adamw,
        .count_non_finite = cpu::count_non_finite,
    };
    return &table;
}

}  // namespace q2
