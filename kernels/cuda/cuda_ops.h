// The CUDA backend's bodies, one file an op, on one stream a context. Contracts: ops/ops.h.
#pragma once

#include "ops/ops.h"

namespace q2::cuda {

void open(Context&, int device);
void close(Context&);
std::string describe(Context&);
MemoryUse memory(Context&);
void* allocate(Context&, size_t bytes);
void release(Context&, void*);
void* allocate_host(Context&, size_t bytes);
void release_host(Context&, void*);
void upload(Context&, void* device, const void* host, size_t bytes);
void download(Context&, void* host, const void* device, size_t bytes);
void copy(Context&, void* to, const void* from, size_t bytes);
void zero(Context&, void* device, size_t bytes);
void synchronize(Context&);

void embedding_forward(Context&, Tensor out, Tensor table, Tensor ids);
void embedding_backward(Context&, Tensor dtable, Tensor dout, Tensor ids);
size_t embedding_backward_scratch(int64_t tokens, int64_t vocab);

void residual_rmsnorm_forward(Context&, Tensor out, Tensor rstd, Tensor sum, Tensor residual, Tensor branch,
                              Tensor weight, float eps, Amax* amax);
void residual_rmsnorm_backward(Context&, Tensor dsum, bool accumulate, Tensor dbranch, Tensor dweight,
                               Tensor dout, Tensor sum, Tensor rstd, Tensor weight);
size_t residual_rmsnorm_backward_scratch(int64_t tokens, int64_t width);

void rope(Context&, Tensor qkv, Tensor table, AttentionShape, Direction);
void attention_forward(Context&, Tensor out, Tensor lse, Tensor qkv, AttentionShape, Amax* amax);
void attention_backward(Context&, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        AttentionShape);
size_t attention_scratch(AttentionShape);

void swiglu_forward(Context&, Tensor out, Tensor gate_up, Amax* amax);
void swiglu_backward(Context&, Tensor dgate_up, Tensor dout, Tensor gate_up);

void matmul(Context&, Tensor out, Operand a, Operand b, bool accumulate);
size_t matmul_scratch(int64_t rows, int64_t cols, int64_t inner);
void time_matmuls(Context&, bool timed);
std::vector<MatmulChoice> matmul_choices(Context&);
void choose_matmuls(Context&, const std::vector<MatmulChoice>& choices);

void quantize(Context&, const Quantized& out, Operand source, const Amax* amax, const QuantSpec&,
              const Rotation&, const Address&);
void quantize_gradient(Context&, const Quantized* for_dgrad, const Quantized* for_wgrad, Tensor e,
                       const GemmSpec& dgrad, const GemmSpec& wgrad, const Address& dgrad_address,
                       const Address& wgrad_address);
size_t quantize_scratch(int64_t rows, int64_t inner);
void cast(Context&, Tensor out, Tensor in);

void cross_entropy(Context&, Tensor losses, Tensor logits, Tensor targets, float gradient_scale,
                   bool want_gradient);
void add_loss(Context&, float* total, Tensor losses, float scale);

void gradient_norm(Context&, StepState* state, Tensor grads, float clip);
size_t gradient_norm_scratch(int64_t size);
void adamw(Context&, Tensor p, Tensor m, Tensor v, Tensor g, const AdamWSettings&, float decay,
           const StepState*, Amax* amax);

int64_t count_non_finite(Context&, Tensor x);

}  // namespace q2::cuda
