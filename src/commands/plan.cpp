#include "commands/plan.h"

#include <spdlog/fmt/fmt.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "model/flops.h"
#include "train/data_loader.h"
#include "train/memory_plan.h"
#include "train/session.h"

namespace q2 {
namespace {

using Json = nlohmann::ordered_json;

struct PlanOptions {
    std::string config, backend;
    std::vector<std::string> overrides;
    double memory = 0;  // GiB; 0: the device's
    bool json = false;
};

template <class T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

/// The backend of the plan and what it says about itself.
struct Device {
    const Ops* ops;
    std::string name;
    std::optional<size_t> runtime, total;  // bytes held by the opened backend, and all that there are
};

Device look_at_device(const Config& c) {
    try {
        Backend backend(c.train.backend, int(c.train.device));
        const MemoryUse use = backend.ops().memory(backend.context());
        return {&backend.ops(), backend.ops().describe(backend.context()), use.held, use.total};
    } catch (const Error& e) {
        if (c.train.backend != "cuda" || !cuda_ops()) throw;
        return {cuda_ops(), concat("none (", e.what(), ")"), {}, {}};
    }
}

Json parameters_of(const Config& c) {
    const ParameterTable table = parameter_table(c.model, c.train.init_std);
    int64_t embedding = 0, head = 0;
    for (const Parameter& p : table.list) {
        if (p.kind == ParameterKind::embedding) embedding += p.size();
        if (p.kind == ParameterKind::head) head += p.size();
    }
    return {{"total", table.count()},
            {"embedding", embedding},
            {"blocks", table.count() - embedding - head},
            {"head", head}};
}

uintmax_t bytes_of(const std::vector<std::string>& patterns) {
    uintmax_t bytes = 0;
    for (const std::string& pattern : patterns)
        for (const std::string& path : expand_glob(pattern)) bytes += std::filesystem::file_size(path);
    return bytes;
}

/// Sizes of the token files, and how often the run reads them; null, with the reason, where they cannot be
/// opened.
Json data_of(const Config& c) {
    try {
        const DataLoader data({c.data.train, c.data.format, c.data.sequence, c.model.vocab, 0},
                              SampleOrder::sequential);
        const uintmax_t bytes = bytes_of(c.data.train) + (c.train.eval_every > 0 ? bytes_of(c.data.val) : 0);
        return {{"bytes", bytes},
                {"train_tokens", data.tokens()},
                {"epochs", double(c.train.steps * c.step_sequences()) / double(data.windows())}};
    } catch (const Error& e) {
        return {{"bytes", nullptr}, {"reason", e.what()}};
    }
}

/// Bytes of the device that are taken beside what is carved.
size_t beside_carved(const Device& device, const Config& c) {
    return device.runtime.value_or(0) + (device.ops == cpu_ops() ? checkpoint_copy_bytes(c) : 0);
}

/// total: of the device. The CPU's memory also holds the copy that checkpoints are written from.
Json memory_of(const Config& c, const Device& device) {
    const Arena plan = plan_training(c, *device.ops);
    Json uses = Json::object();
    for (int use = 0; use < int(Use::count); ++use) uses[name_of(Use(use))] = plan.used_for(Use(use));
    return {{"micro_batch", c.train.micro_batch},
            {"uses", uses},
            {"carved", plan.used()},
            {"runtime", or_null(device.runtime)},
            {"checkpoint_copy", checkpoint_copy_bytes(c)},
            {"total", plan.used() + beside_carved(device, c)}};
}

/// Bytes left for what is carved.
std::optional<size_t> room_on(const Device& device, std::optional<double> memory, const Config& c) {
    if (!memory && !device.total) return {};
    const double given = memory.value_or(double(device.total.value_or(0)));
    return size_t(std::max(0.0, given - double(beside_carved(device, c))));
}

/// Plans of 1, 2, 4, ... sequences, up to the first that is beyond `last`.
Json micro_batches(const Config& c, const Device& device, int64_t last) {
    Json rows = Json::array();
    for (int64_t batch = 1; batch <= std::min(2 * last, kMaxMicroBatchTokens / c.data.sequence); batch *= 2) {
        const size_t carved = plan_training(with_micro_batch(c, batch), *device.ops).used();
        rows.push_back({{"micro_batch", batch},
                        {"step_tokens", batch * c.train.accumulate * c.data.sequence},
                        {"total", carved + beside_carved(device, c)}});
    }
    return rows;
}

std::string mebibytes(const Json& bytes) { return fmt::format("{:.1f} MiB", bytes.get<double>() / 0x1p20); }

std::string model_text(const Json& r) {
    const Json &p = r["parameters"], &data = r["data"];
    std::string text = fmt::format(
        "parameters    {}: embedding {}, blocks {}, head {}\n"
        "work          {:.4g} FLOPs a token, {} tokens a step, {} in all: {:.3g} a parameter\n",
        p["total"].get<int64_t>(), p["embedding"].get<int64_t>(), p["blocks"].get<int64_t>(),
        p["head"].get<int64_t>(), r["flops_a_token"].get<double>(), r["step_tokens"].get<int64_t>(),
        r["run_tokens"].get<int64_t>(), r["tokens_a_parameter"].get<double>());
    text += data["bytes"].is_null()
                ? fmt::format("data          not read: {}\n", data["reason"].get<std::string>())
                : fmt::format("data          {} tokens, read {:.3g} times; files of {}\n",
                              data["train_tokens"].get<int64_t>(), data["epochs"].get<double>(),
                              mebibytes(data["bytes"]));
    return text + fmt::format("checkpoint    {} on the disk\n", mebibytes(r["checkpoint_bytes"]));
}

std::string memory_text(const Json& r) {
    const Json& memory = r["memory"];
    std::string text = fmt::format("device        {}: {}\nmemory        at micro-batch {}\n",
                                   r["backend"].get<std::string>(), r["device"].get<std::string>(),
                                   memory["micro_batch"].get<int64_t>());
    const auto line = [&](const std::string& name, const std::string& value) {
        text += fmt::format("  {:<18}{:>14}\n", name, value);
    };
    for (const auto& [name, bytes] : memory["uses"].items())
        if (bytes.get<size_t>() > 0) line(name, mebibytes(bytes));
    line("runtime", memory["runtime"].is_null() ? "not counted" : mebibytes(memory["runtime"]));
    const bool on_host = r["backend"] == cpu_ops()->name;
    if (on_host) line("checkpoint copy", mebibytes(memory["checkpoint_copy"]));
    line("total", mebibytes(memory["total"]));
    if (!on_host)
        text +=
            fmt::format("  beside it, {} of host memory, page-locked, that checkpoints are written from\n",
                        mebibytes(memory["checkpoint_copy"]));
    if (memory["runtime"].is_null())
        text +=
            "  not counted: the CUDA context and libraries, a few hundred MiB, measured where there is a "
            "GPU\n";
    return text;
}

std::string micro_batch_text(const Json& r) {
    std::string text = "micro-batch   tokens a step         total\n";
    for (const Json& row : r["micro_batches"])
        text += fmt::format("{:>11}{:>16}{:>14}\n", row["micro_batch"].get<int64_t>(),
                            row["step_tokens"].get<int64_t>(), mebibytes(row["total"]));
    if (r["largest_micro_batch"].is_null())
        return text + "largest       not known without a GPU: give --memory\n";
    return text + fmt::format("largest       {} fits {}\n", r["largest_micro_batch"].get<int64_t>(),
                              mebibytes(r["limit"]));
}

int plan(const PlanOptions& o) {
    Config config = load_config(o.config, o.overrides, TokenizerCheck::never);
    if (!o.backend.empty()) config.train.backend = o.backend;
    const std::optional<double> memory =
        o.memory > 0 ? std::optional<double>(o.memory * 0x1p30) : std::nullopt;
    const Json report = plan_report(config, memory);
    const std::string text =
        o.json ? report.dump() + "\n" : model_text(report) + memory_text(report) + micro_batch_text(report);
    std::fputs(text.c_str(), stdout);
    return int(Exit::ok);
}

}  // namespace

Json plan_report(const Config& given, std::optional<double> memory) {
    const Config& c = with_threads(given);
    const Device device = look_at_device(c);
    const std::optional<size_t> room = room_on(device, memory, c);
    const int64_t largest = room ? largest_micro_batch(c, *device.ops, *room) : 0;
    const Json parameters = parameters_of(c), data = data_of(c);
    const int64_t run_tokens = c.train.steps * c.step_tokens();
    return {{"parameters", parameters},
            {"flops_a_token", training_flops_a_token(c.model, c.data.sequence)},
            {"step_tokens", c.step_tokens()},
            {"run_tokens", run_tokens},
            {"tokens_a_parameter", double(run_tokens) / parameters["total"].get<double>()},
            {"data", data},
            {"checkpoint_bytes", checkpoint_bytes(c)},
            {"backend", device.ops->name},
            {"device", device.name},
            {"memory", memory_of(c, device)},
            {"limit", memory ? Json(size_t(*memory)) : or_null(device.total)},
            {"largest_micro_batch", room ? Json(largest) : Json()},
            {"micro_batches", micro_batches(c, device, std::max(largest, c.train.micro_batch))}};
}

void add_plan(CLI::App& app, std::function<int()>& run) {
    const auto options = std::make_shared<PlanOptions>();
    CLI::App* command = app.add_subcommand(
        "plan", "What a config takes: parameters, FLOPs, memory by use and micro-batch, disk");
    command->add_option("CONFIG", options->config, "Config file; data files need not exist")->required();
    command->add_option("--set", options->overrides, "key=value, overriding the config; may be repeated")
        ->allow_extra_args(false);
    command->add_option("--memory", options->memory, "GiB that the run may take; default: the device's")
        ->check(CLI::Range(1e-3, 1e6));
    command->add_option("--backend", options->backend, "Plan for this backend in place of train.backend")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    command->add_flag("--json", options->json, "Print one JSON object, memory in bytes");
    command->callback([options, &run] { run = [options] { return plan(*options); }; });
}

}  // namespace q2
