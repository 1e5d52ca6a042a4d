// The CUDA backend's table.
#include "kernels/cuda/cuda_ops.h"

namespace q2 {

const Ops* cuda_ops() {
    static const Ops table = {
        .name = "cuda",
        .dense_dtype = Dtype::bf16,
        .open = cuda::open,
        .close = cuda::close,
        .describe = cuda::describe,
        .memory = cuda::memory,
        .allocate = cuda::allocate,
        .release = cuda::release,
        .allocate_host = cuda::allocate_host,
        .release_host = cuda::release_host,
        .upload = cuda::upload,
        .download = cuda::download,
        .copy = cuda::copy,
        .zero = cuda::zero,
        .synchronize = cuda::synchronize,
        .embedding_forward = cuda::embedding_forward,
        .embedding_backward = cuda::embedding_backward,
        .embedding_backward_scratch = cuda::embedding_backward_scratch,
        .residual_rmsnorm_forward = cuda::residual_rmsnorm_forward,
        .residual_rmsnorm_backward = cuda::residual_rmsnorm_backward,
        .residual_rmsnorm_backward_scratch = cuda::residual_rmsnorm_backward_scratch,
        .rope = cuda::rope,
        .attention_forward = cuda::attention_forward,
        .attention_backward = cuda::attention_backward,
        .attention_scratch = cuda::attention_scratch,
        .swiglu_forward = cuda::swiglu_forward,
        .swiglu_backward = cuda::swiglu_backward,
        .matmul = cuda::matmul,
        .matmul_scratch = cuda::matmul_scratch,
        .time_matmuls = cuda::time_matmuls,
        .matmul_choices = cuda::matmul_choices,
        .choose_matmuls = cuda::choose_matmuls,
        .quantize = cuda::quantize,
        .quantize_gradient = cuda::quantize_gradient,
        .quantize_scratch = cuda::quantize_scratch,
        .cast = cuda::cast,
        .cross_entropy = cuda::cross_entropy,
        .add_loss = cuda::add_loss,
        .gradient_norm = cuda::gradient_norm,
        .gradient_norm_scratch = cuda::gradient_norm_scratch,
        .adamw = cuda::adamw,
        .count_non_finite = cuda::count_non_finite,
    };
    return &table;
}

}  // namespace q2
