#include "model/params.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace q2 {
namespace {

constexpr int64_t kOffsetMultiple = 64;

void append(ParameterTable& table, std::string name, ParameterKind kind, int64_t rows, int64_t cols,
            double std) {
    table.list.push_back({std::move(name), kind, rows, cols, table.size, float(std)});
    table.size += (rows * cols + kOffsetMultiple - 1) / kOffsetMultiple * kOffsetMultiple;
}

std::string block_prefix(int64_t block) { return "model.layers." + std::to_string(block) + "."; }

/// Four normal values from one Philox call (Box and Muller, in float64).
void normal4(const PhiloxWords& words, float std, float out[4]) {
    for (int pair = 0; pair < 2; ++pair) {
        const double u = (double(words.word[2 * pair]) + 1.0) * 0x1p-32;  // in (0, 1]
        const double angle = 2.0 * std::numbers::pi * double(words.word[2 * pair + 1]) * 0x1p-32;
        const double radius = std * std::sqrt(-2.0 * std::log(u));
        out[2 * pair] = float(radius * std::cos(angle));
        out[2 * pair + 1] = float(radius * std::sin(angle));
    }
}

}  // namespace

const Parameter& ParameterTable::find(const std::string& name) const {
    for (const Parameter& p : list)
        if (p.name == name) return p;
    fail(Exit::internal, "no parameter is named ", name);
}

int64_t ParameterTable::count() const {
    int64_t total = 0;
    for (const Parameter& p : list) total += p.size();
    return total;
}

ParameterTable parameter_table(const ModelConfig& m, double std) {
    const double output_std = std / std::sqrt(2.0 * double(m.layers));
    ParameterTable table;
    append(table, "model.embed_tokens.weight", ParameterKind::embedding, m.vocab, m.width, std);
    for (int64_t block = 0; block < m.layers; ++block) {
        const std::string prefix = block_prefix(block);
        append(table, prefix + "input_layernorm.weight", ParameterKind::norm, 1, m.width, 0);
        append(table, prefix + "self_attn.qkv_proj.weight", ParameterKind::linear, m.qkv_width(), m.width,
               std);
        append(table, prefix + "self_attn.o_proj.weight", ParameterKind::linear, m.width, m.attention_width(),
               output_std);
        append(table, prefix + "post_attention_layernorm.weight", ParameterKind::norm, 1, m.width, 0);
        append(table, prefix + "mlp.gate_up_proj.weight", ParameterKind::linear, 2 * m.mlp, m.width, std);
        append(table, prefix + "mlp.down_proj.weight", ParameterKind::linear, m.width, m.mlp, output_std);
    }
    append(table, "model.norm.weight", ParameterKind::norm, 1, m.width, 0);
    if (!m.tied) append(table, "lm_head.weight", ParameterKind::head, m.vocab, m.width, std);
    return table;
}

std::vector<HfTensor> hf_tensors(const ModelConfig& m, const ParameterTable& table) {
    std::vector<HfTensor> views;
    const auto whole = [&](const std::string& name) {
        const Parameter& p = table.find(name);
        views.push_back({name, p.offset, p.rows, p.cols, p.kind == ParameterKind::norm});
    };
    const auto split = [&](const std::string& merged, std::vector<std::pair<std::string, int64_t>> parts) {
        const Parameter& p = table.find(merged);
        int64_t offset = p.offset;
        for (const auto& [name, rows] : parts) {
            views.push_back({name, offset, rows, p.cols, false});
            offset += rows * p.cols;
        }
    };
    whole("model.embed_tokens.weight");
    for (int64_t block = 0; block < m.layers; ++block) {
        const std::string prefix = block_prefix(block);
        const int64_t kv = m.kv_head_count() * m.head_width();
        whole(prefix + "input_layernorm.weight");
        split(prefix + "self_attn.qkv_proj.weight",
              {{prefix + "self_attn.q_proj.weight", m.attention_width()},
               {prefix + "self_attn.k_proj.weight", kv},
               {prefix + "self_attn.v_proj.weight", kv}});
        whole(prefix + "self_attn.o_proj.weight");
        whole(prefix + "post_attention_layernorm.weight");
        split(prefix + "mlp.gate_up_proj.weight",
              {{prefix + "mlp.gate_proj.weight", m.mlp}, {prefix + "mlp.up_proj.weight", m.mlp}});
        whole(prefix + "mlp.down_proj.weight");
    }
    whole("model.norm.weight");
    if (!m.tied) whole("lm_head.weight");
    return views;
}

void draw_normals(uint64_t seed, uint32_t index, float std, std::span<float> out) {
    const DrawStream draws{uint32_t(seed), uint32_t(seed >> 32), uint32_t(Stream::weights), 0};
    const int64_t size = int64_t(out.size());
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < size; i += 4) {
        float four[4];
        normal4(draws.words(uint64_t(i), index), std, four);
        std::copy_n(four, std::min<int64_t>(4, size - i), out.data() + i);
    }
}

void initialise(const ParameterTable& table, uint64_t seed, float* values) {
    std::fill_n(values, table.size, 0.0f);
    for (size_t index = 0; index < table.list.size(); ++index) {
        const Parameter& p = table.list[index];
        float* out = values + p.offset;
        if (p.kind == ParameterKind::norm) {
            std::fill_n(out, p.size(), 1.0f);
            continue;
        }
        draw_normals(seed, uint32_t(index), p.init_std, {out, size_t(p.size())});
    }
}

}  // namespace q2
