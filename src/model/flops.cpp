#include "model/flops.h"

#include <utility>

namespace q2 {

double training_flops_a_token(const ModelConfig& m, int64_t sequence) {
    const double block =
        double(m.width) * double(m.qkv_width() + m.attention_width() + 3 * m.mlp) + 2.0 * double(m.width);
    const double head = double(m.vocab) * double(m.width);
    const double attention = double(m.layers) * double(m.attention_width()) * double(sequence);
    return 6 * (double(m.layers) * block + double(m.width) + head + attention);
}

std::optional<double> peak_flops(const std::string& device) {
    constexpr std::pair<const char*, double> peaks[] = {{"H200", 989e12},       {"H100", 989e12},
                                                        {"A100", 312e12},       {"B200", 2250e12},
                                                        {"RTX 5090", 209.5e12}, {"RTX 4090", 165e12}};
    for (const auto& [name, peak] : peaks)
        if (device.find(name) != std::string::npos) return peak;
    return std::nullopt;
}

std::optional<double> utilisation(const ModelConfig& m, int64_t sequence, double tokens_per_s,
                                  const std::string& device) {
    const std::optional<double> peak = peak_flops(device);
    if (!peak) return std::nullopt;
    return tokens_per_s * training_flops_a_token(m, sequence) / *peak;
}

}  // namespace q2
