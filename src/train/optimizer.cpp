#include "train/optimizer.h"

namespace q2 {

bool decays(const Parameter& p, const std::string& decay) {
    return decay == "linear" ? p.kind == ParameterKind::linear : p.kind != ParameterKind::norm;
}

void optimizer_update(Context& ctx, const TrainingMemory& memory, const OptimizerConfig& o) {
    const Model& m = memory.model;
    ctx.ops->gradient_norm(ctx, memory.state, m.grads, float(o.clip));
    const AdamWSettings settings{float(o.beta1), float(o.beta2), float(o.eps)};
    for (const Parameter& p : m.table.list) {
        const auto part = [&](const Tensor& flat) {
            return Tensor{flat.as<float>() + p.offset, Dtype::f32, p.rows, p.cols};
        };
        const float decay = decays(p, o.decay) ? float(o.weight_decay) : 0.0f;
        ctx.ops->adamw(ctx, part(m.params), part(memory.moment1), part(memory.moment2), part(m.grads),
                       settings, decay, memory.state, nullptr);
    }
}

}  // namespace q2
