// `quartet2 bench attention`: both directions of causal attention alone.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "commands/bench.h"
#include "ops/backend.h"

namespace q2 {
namespace {

struct AttentionOptions {
    std::vector<int64_t> shape;  ///< as the option's help says; none: the presets
    std::string backend = "auto";
    int64_t repeats = 20;
    bool json = false;
};

/// Shapes of other programs' published rates.
const std::vector<AttentionShape> kPresets = {{8, 2048, 16, 16, 128},
                                              {128, 512, 5, 5, 128},
                                              {32, 1024, 8, 8, 128},
                                              {2, 8192, 16, 16, 128},
                                              {16, 2048, 32, 32, 64}};

/// A bfloat16 tensor of its own memory, filled with even draws from -2 to 2 that repeat after a prime count.
class RandomTensor {
  public:
    RandomTensor(Context& ctx, uint32_t number, int64_t rows, int64_t cols)
        : memory_(ctx, size_t(rows * cols) * sizeof(Bf16)), view_{memory_.data(), Dtype::bf16, rows, cols} {
        constexpr size_t kPeriod = 65537;
        const DrawStream draws{0, 0, uint32_t(Stream::sampling), number};
        std::vector<Bf16> values(static_cast<size_t>(rows * cols));
        for (size_t i = 0; i < values.size(); ++i)
            values[i] = i < kPeriod ? to_bf16(4.0f * draws.uniform(i, 0) - 2.0f) : values[i - kPeriod];
        ctx.ops->upload(ctx, view_.data, values.data(), view_.bytes());
    }
    const Tensor& view() const { return view_; }

  private:
    DeviceMemory memory_;
    Tensor view_;
};

template <class F>
double seconds_a_call(Context& ctx, int64_t repeats, F f) {
    for (int i = 0; i < 3; ++i) f();
    ctx.ops->synchronize(ctx);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) f();
    ctx.ops->synchronize(ctx);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / double(repeats);
}

nlohmann::ordered_json bench_shape(Context& ctx, const AttentionShape& s, int64_t repeats) {
    const LentScratch scratch(ctx, ctx.ops->attention_scratch(s));
    const RandomTensor qkv(ctx, 0, s.tokens(), s.qkv_width()), dout(ctx, 1, s.tokens(), s.out_width());
    const RandomTensor out(ctx, 2, s.tokens(), s.out_width()), dqkv(ctx, 3, s.tokens(), s.qkv_width());
    const DeviceMemory lse_memory(ctx, size_t(s.tokens() * s.heads) * sizeof(float));
    const Tensor lse{lse_memory.data(), Dtype::f32, s.batch * s.heads, s.sequence};
    const double forward = seconds_a_call(
        ctx, repeats, [&] { ctx.ops->attention_forward(ctx, out.view(), lse, qkv.view(), s, nullptr); });
    const double backward = seconds_a_call(ctx, repeats, [&] {
        ctx.ops->attention_backward(ctx, dqkv.view(), dout.view(), out.view(), lse, qkv.view(), s);
    });
    // Two products forward, each 2 FLOPs over half the square; five backward.
    const double flops = 2.0 * double(s.tokens()) * double(s.sequence) * double(s.out_width());
    return {{"batch", s.batch},
            {"sequence", s.sequence},
            {"heads", s.heads},
            {"kv_heads", s.kv_heads},
            {"head_size", s.head_size},
            {"forward_seconds", forward},
            {"forward_tflops", flops / forward / 1e12},
            {"backward_seconds", backward},
            {"backward_tflops", 2.5 * flops / backward / 1e12}};
}

void print_header() {
    std::printf("%6s %9s %6s %9s %10s %14s %14s   TFLOP/s (half the square; backward: 2.5 forwards)\n",
                "batch", "sequence", "heads", "kv heads", "head size", "forward", "backward");
}

void print_row(const nlohmann::ordered_json& r) {
    const auto whole = [&](const char* key) { return r[key].get<long long>(); };
    std::printf("%6lld %9lld %6lld %9lld %10lld %14.4g %14.4g\n", whole("batch"), whole("sequence"),
                whole("heads"), whole("kv_heads"), whole("head_size"), r["forward_tflops"].get<double>(),
                r["backward_tflops"].get<double>());
}

int run_bench_attention(const AttentionOptions& o) {
    Backend backend(o.backend, 0);
    Context& ctx = backend.context();
    std::vector<AttentionShape> shapes = kPresets;
    if (!o.shape.empty()) shapes = {{o.shape[0], o.shape[1], o.shape[2], o.shape[3], o.shape[4]}};
    for (const AttentionShape& s : shapes)
        check(s.heads % s.kv_heads == 0, Exit::usage, "bench attention: ", s.heads, " heads do not share ",
              s.kv_heads, " key heads evenly");
    nlohmann::ordered_json report = {{"device", ctx.ops->describe(ctx)}};
    if (!o.json) std::puts(report["device"].get<std::string>().c_str()), print_header();
    for (const AttentionShape& s : shapes) {
        report["shapes"].push_back(bench_shape(ctx, s, o.repeats));
        if (!o.json) print_row(report["shapes"].back());
    }
    if (o.json) std::puts(report.dump().c_str());
    return int(Exit::ok);
}

}  // namespace

void add_bench_attention(CLI::App& bench, std::function<int()>& run) {
    const auto options = std::make_shared<AttentionOptions>();
    CLI::App* command = bench.add_subcommand("attention", "Rates of causal attention, forward and backward");
    command
        ->add_option(
            "--shape", options->shape,
            "Batch, sequence, heads, key heads and head size; without it, the shapes of published rates")
        ->expected(5)
        ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
    command->add_option("--backend", options->backend, "cpu, cuda or auto")->capture_default_str();
    command->add_option("--repeats", options->repeats, "Calls to time, after 3 that warm up")
        ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
        ->capture_default_str();
    command->add_flag("--json", options->json, "Print one JSON object");
    command->callback([options, &run] { run = [options] { return run_bench_attention(*options); }; });
}

}  // namespace q2
