// The shape of a Llama-like model (Hugging Face LlamaForCausalLM), as a config gives it.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace q2 {

struct ModelConfig {
    int64_t layers = 6, width = 640;
    int64_t heads = 5, kv_heads = 0;  ///< kv_heads 0: as heads
    int64_t head_size = 0;            ///< 0: width / heads
    int64_t mlp = 1792, vocab = 32000;
    bool tied = false;  ///< the head is the embedding
    double rope_theta = 10000, norm_eps = 1e-5;
    std::string residual = "float32", activations = "bfloat16";  ///< float32 or bfloat16

    int64_t kv_head_count() const { return kv_heads ? kv_heads : heads; }
    int64_t head_width() const { return head_size ? head_size : width / heads; }
    int64_t attention_width() const { return heads * head_width(); }
    int64_t qkv_width() const { return (heads + 2 * kv_head_count()) * head_width(); }
    Dtype residual_dtype() const { return residual == "float32" ? Dtype::f32 : Dtype::bf16; }
    Dtype activation_dtype() const { return activations == "float32" ? Dtype::f32 : Dtype::bf16; }
};

}  // namespace q2
