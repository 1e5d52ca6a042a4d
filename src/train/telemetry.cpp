#include "train/telemetry.h"

#include <cmath>
#include <map>

#include "linear/gradient_cosine.h"
#include "ops/quantiser_observer.h"

namespace q2 {
namespace {

constexpr const char* kOperandNames[3][2] = {
    {"fprop.x", "fprop.w"}, {"dgrad.e", "dgrad.w"}, {"wgrad.e", "wgrad.x"}};

nlohmann::json record_of(const std::string& layer, const char* operand, const QuantiserFigures& f) {
    const double blocks = double(f.blocks);
    nlohmann::json record = {{"layer", layer},
                             {"operand", operand},
                             {"saturated", double(f.saturated) / blocks},
                             {"zero", double(f.zero) / blocks}};
    if (f.corrections == 0) {
        record["second"] = double(f.second) / blocks;
    } else {
        record["eden"] = f.mean();
        record["eden_deviation"] = f.deviation();
    }
    return record;
}

/// A layer of the micro-batch at hand, with what its backward reads and what became of it.
struct Watched {
    const Linear* layer;
    Tensor input;  // (N, in) act, whole until the forward has gone on
    Tensor e;      // (N, out) act, whole when the input's gradient is seen
    InputSample x = {};
    double dgrad = NAN, wgrad = NAN;
};

/// By the layers' names.
std::map<std::string, Watched> watched_layers(TrainingMemory& memory) {
    const Activations& act = memory.train;
    std::map<std::string, Watched> all;
    for (size_t i = 0; i < memory.model.blocks.size(); ++i) {
        const BlockActivations& a = act.blocks[i];
        const Tensor inputs[] = {a.qkv_input.dense, a.o_input.dense, a.gate_up_input.dense,
                                 a.down_input.dense};
        const Tensor gradients[] = {act.dqkv, act.dbranch, a.gate_up, act.dbranch};
        const auto layers = memory.model.blocks[i].linears();
        for (size_t k = 0; k < layers.size(); ++k)
            all[layers[k]->name] = {layers[k], inputs[k], gradients[k]};
    }
    return all;
}

/// Fills in the layer whose output, or whose input's gradient, this result is; probes leave out "model.".
void watch(Context& ctx, std::map<std::string, Watched>& layers, const std::string& what, const Tensor& x) {
    const size_t end = what.find("'s input gradient");
    const auto found = layers.find("model." + what.substr(0, end));
    if (found == layers.end()) return;
    Watched& w = found->second;
    if (end == what.npos) {
        w.x = sample_input(ctx, w.input);
    } else {
        w.dgrad = dgrad_cosine(ctx, *w.layer, x, w.e);
        w.wgrad = wgrad_cosine(ctx, *w.layer, w.x, w.e);
        w.x = {};
    }
}

nlohmann::json cosine_record(const std::string& layer, const char* operand, double cosine) {
    return {{"layer", layer},
            {"operand", operand},
            {"cosine", std::isfinite(cosine) ? nlohmann::json(cosine) : nlohmann::json()}};
}

}  // namespace

nlohmann::json telemetry(Training& t, int64_t step) {
    const QuantiserObserver observer(t.ctx);
    std::map<std::string, Watched> layers = watched_layers(t.memory);
    repeat_micro_batch(t, step, 0,
                       [&](const std::string& what, const Tensor& x) { watch(t.ctx, layers, what, x); });
    nlohmann::json records = nlohmann::json::array();
    for (Block& block : t.memory.model.blocks)
        for (const Linear* layer : block.linears()) {
            for (const auto& [key, figures] : observer.figures())
                if (key.layer == layer->id)
                    records.push_back(record_of(layer->name, kOperandNames[key.gemm][key.operand], figures));
            const Watched& w = layers.at(layer->name);
            records.push_back(cosine_record(layer->name, "dgrad.dx", w.dgrad));
            records.push_back(cosine_record(layer->name, "wgrad.dw", w.wgrad));
        }
    return records;
}

}  // namespace q2
