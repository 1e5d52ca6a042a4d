#include "train/telemetry.h"

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

}  // namespace

nlohmann::json telemetry(Training& t, int64_t step) {
    const QuantiserObserver observer(t.ctx);
    repeat_micro_batch(t, step, 0);
    nlohmann::json records = nlohmann::json::array();
    for (const auto& [key, figures] : observer.figures()) {
        const Linear* layer = t.memory.model.blocks[key.layer / 4].linears()[key.layer % 4];
        records.push_back(record_of(layer->name, kOperandNames[key.gemm][key.operand], figures));
    }
    return records;
}

}  // namespace q2
