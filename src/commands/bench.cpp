#include "commands/bench.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "commands/bench_quant.h"
#include "model/flops.h"
#include "ops/profiler.h"
#include "train/session.h"
#include "train/step.h"
#include "train/token_file.h"

namespace q2 {
namespace {

struct BenchOptions {
    std::string what, config;
    std::vector<std::string> overrides;
    int64_t steps = 10;
    bool json = false;
};

/// Tokens drawn evenly from the vocabulary, in a file of their own that goes with this object.
class RandomTokens {
  public:
    RandomTokens(int64_t tokens, int64_t vocab) {
        path_ =
            (std::filesystem::temp_directory_path() / concat("quartet2-bench-", ::getpid(), ".bin")).string();
        AtomicFile file(path_);
        std::vector<uint32_t> values(static_cast<size_t>(tokens));
        const DrawStream draws{0, 0, uint32_t(Stream::sampling), 0};
        for (int64_t i = 0; i < tokens; ++i)
            values[size_t(i)] = uint32_t(uint64_t(draws.word(uint64_t(i), 0)) * uint64_t(vocab) >> 32);
        write_token_header(file, 4, tokens);
        file.write(values.data(), values.size() * sizeof(values[0]));
        file.commit();
    }
    ~RandomTokens() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    RandomTokens(const RandomTokens&) = delete;
    RandomTokens& operator=(const RandomTokens&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// A config on random tokens, ready to step.
struct Bench {
    explicit Bench(const Config& c)
        : tokens(c.step_tokens() + c.data.sequence + 1, c.model.vocab),
          data({{tokens.path()}, "auto", c.data.sequence, c.model.vocab}, SampleOrder::shuffled),
          session(c) {
        session.initialise();
    }
    double seconds_of(int64_t first, int64_t count) {
        Training training{session.ctx(), session.config(), session.memory(), data};
        const auto start = std::chrono::steady_clock::now();
        for (int64_t step = first; step < first + count; ++step) {
            const StepState state = train_step(training, step);
            check(!state.skip, Exit::non_finite, "bench: step ", step, ": the loss is ", state.loss);
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    RandomTokens tokens;
    DataLoader data;
    Session session;
};

constexpr int64_t kWarmUp = 3;

nlohmann::ordered_json bench_train(Bench& bench, int64_t steps) {
    const Config& c = bench.session.config();
    bench.seconds_of(0, kWarmUp);
    const double seconds = bench.seconds_of(kWarmUp, steps);
    const double tokens_per_s = double(steps * c.step_tokens()) / seconds;
    const double flops = tokens_per_s * training_flops_a_token(c.model, c.data.sequence);
    const auto mfu = utilisation(c.model, c.data.sequence, tokens_per_s, bench.session.device());
    nlohmann::ordered_json report = {{"device", bench.session.device()},
                                     {"recipe", bench.session.memory().model.plan.at(0).name},
                                     {"parameters", bench.session.memory().model.table.count()},
                                     {"step_tokens", c.step_tokens()},
                                     {"step_seconds", seconds / double(steps)},
                                     {"tokens_per_s", tokens_per_s},
                                     {"tflops", flops / 1e12},
                                     {"mfu", mfu ? nlohmann::ordered_json(*mfu) : nullptr},
                                     {"memory", bench.session.memory_use().peak},
                                     {"planned_memory", bench.session.planned_bytes()}};
    return report;
}

nlohmann::ordered_json bench_ops(Bench& bench, int64_t steps) {
    bench.seconds_of(0, kWarmUp);
    Profiler profiler(bench.session.ctx());
    const double seconds = bench.seconds_of(kWarmUp, steps);
    nlohmann::ordered_json report = {{"device", bench.session.device()},
                                     {"step_seconds", seconds / double(steps)}};
    std::vector<std::pair<std::string, Profiler::Entry>> entries(profiler.entries().begin(),
                                                                 profiler.entries().end());
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    for (const auto& [name, entry] : entries)
        report["ops"].push_back({{"op", name},
                                 {"calls", entry.calls / steps},
                                 {"seconds", entry.seconds / double(steps)},
                                 {"share", entry.seconds / seconds}});
    return report;
}

void print_train(const nlohmann::ordered_json& r) {
    const std::string mfu =
        r["mfu"].is_null() ? "n/a" : concat(int(1000 * r["mfu"].get<double>() + 0.5) / 10.0, "%");
    std::printf(
        "%s\nrecipe %s, %lld parameters, %lld tokens a step\n%.0f tokens/s, %.4f s a step, %.3g TFLOP/s, MFU "
        "%s, "
        "%.3f GB (planned %.3f)\n",
        r["device"].get<std::string>().c_str(), r["recipe"].get<std::string>().c_str(),
        r["parameters"].get<long long>(), r["step_tokens"].get<long long>(), r["tokens_per_s"].get<double>(),
        r["step_seconds"].get<double>(), r["tflops"].get<double>(), mfu.c_str(),
        r["memory"].get<double>() / 1e9, r["planned_memory"].get<double>() / 1e9);
}

void print_ops(const nlohmann::ordered_json& r) {
    std::printf("%s\n%-28s %6s %10s %7s   (a step of %.2f ms, waiting after each op)\n",
                r["device"].get<std::string>().c_str(), "op", "calls", "ms", "share",
                1e3 * r["step_seconds"].get<double>());
    for (const auto& op : r["ops"])
        std::printf("%-28s %6lld %10.3f %6.1f%%\n", op["op"].get<std::string>().c_str(),
                    op["calls"].get<long long>(), 1e3 * op["seconds"].get<double>(),
                    1e2 * op["share"].get<double>());
}

int run_bench(const BenchOptions& o) {
    Config config = load_config(o.config, o.overrides, TokenizerCheck::never);
    config.train.steps = std::max(config.train.steps, kWarmUp + o.steps);
    Bench bench(config);
    const bool train = o.what == "train";
    const nlohmann::ordered_json report = train ? bench_train(bench, o.steps) : bench_ops(bench, o.steps);
    if (o.json)
        std::puts(report.dump().c_str());
    else
        train ? print_train(report) : print_ops(report);
    return int(Exit::ok);
}

void add_kind(CLI::App& bench, const char* what, const char* help, std::function<int()>& run) {
    const auto options = std::make_shared<BenchOptions>();
    options->what = what;
    CLI::App* command = bench.add_subcommand(what, help);
    command->add_option("CONFIG", options->config, "Config file; its data files are not read")->required();
    command->add_option("--set", options->overrides, "key=value, overriding the config; may be repeated")
        ->allow_extra_args(false);
    command->add_option("--steps", options->steps, "Steps to time, after 3 that warm up")
        ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
        ->capture_default_str();
    command->add_flag("--json", options->json, "Print one JSON object");
    command->callback([options, &run] { run = [options] { return run_bench(*options); }; });
}

}  // namespace

void add_bench(CLI::App& app, std::function<int()>& run) {
    CLI::App* bench = app.add_subcommand("bench", "Measure training, or its quantisers, on this machine");
    bench->require_subcommand(1);
    add_kind(*bench, "train", "Tokens a second, model FLOPs utilisation, memory", run);
    add_kind(*bench, "ops", "A step's time by op", run);
    add_bench_attention(*bench, run);
    add_bench_quant(*bench, run);
}

}  // namespace q2
