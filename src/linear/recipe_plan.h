// Which recipe a linear layer runs at a step: the run's recipe, its switches, and the layers kept in bf16.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/quant_spec.h"

namespace q2 {

/// A block's linear layers: [Q;K;V], O, [gate;up] and down.
inline constexpr std::string_view kLinearNames[] = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};

/// "layers.3.o_proj" is block 3's o_proj; "o_proj" every block's (-1). False if it is neither.
bool parse_layer_name(std::string_view text, int64_t& layer, std::string_view& name);

struct KeepBf16Config {
    int64_t first = 0, last = 0;     ///< blocks whose linear layers stay in bf16
    std::vector<std::string> names;  ///< of kLinearNames, or "layers.3.o_proj" for one block's
};
/// Whether linear layer `name` (of kLinearNames) of block `layer` of `layers` stays in bf16.
bool keeps_bf16(const KeepBf16Config& keep, int64_t layer, int64_t layers, std::string_view name);

/// A recipe and the first step that runs it.
struct RecipeSwitch {
    int64_t step;
    Recipe recipe;
};

struct RecipePlan {
    std::vector<RecipeSwitch> switches;  ///< by rising step, the first at step 0
    KeepBf16Config keep;
    bool requantize_once_a_step = false;  ///< `requantize_weights: step`

    const Recipe& at(int64_t step) const;
    /// Every recipe that a layer may run, for planning memory; a kept layer runs bf16 alone.
    std::vector<const Recipe*> all(bool kept) const;
};

}  // namespace q2
