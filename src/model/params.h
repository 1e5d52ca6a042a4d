// The parameters of a model as one flat float32 vector: its layout, the names Hugging Face gives the parts,
// and the initial values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace q2 {

enum class ParameterKind { embedding, norm, linear, head };

/// One tensor of the flat vector; norms have one row. Offsets are multiples of 64 elements.
struct Parameter {
    std::string name;
    ParameterKind kind;
    int64_t rows, cols, offset;
    float init_std;  ///< of N(0, std); norms start at 1
    int64_t size() const { return rows * cols; }
};

struct ParameterTable {
    std::vector<Parameter> list;
    int64_t size = 0;  ///< of the flat vector, padding included

    const Parameter& find(const std::string& name) const;
    int64_t count() const;  ///< parameters without padding
};

/// In the order of the forward pass: model.embed_tokens; for each block input_layernorm, self_attn.qkv_proj,
/// self_attn.o_proj, post_attention_layernorm, mlp.gate_up_proj, mlp.down_proj; model.norm; lm_head unless
/// tied.
ParameterTable parameter_table(const ModelConfig&, double init_std);

/// A tensor under its Hugging Face name (LlamaForCausalLM): rows of one parameter.
struct HfTensor {
    std::string name;
    int64_t offset, rows, cols;  ///< in the flat vector; a norm is (1, C) here and [C] in files
    bool vector;
};
std::vector<HfTensor> hf_tensors(const ModelConfig&, const ParameterTable&);

/// std times the normal deviates that the seed gives parameter number `index`.
void draw_normals(uint64_t seed, uint32_t index, float std, std::span<float> out);

/// Fills the flat vector. Each value's draws are addressed by (seed, parameter, element), so it does not
/// depend on the number of ranks or threads.
void initialise(const ParameterTable&, uint64_t seed, float* values);

}  // namespace q2
