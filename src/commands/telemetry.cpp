#include "commands/telemetry.h"

#include <spdlog/fmt/fmt.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "train/metrics.h"

namespace q2 {
namespace {

std::string cell(const nlohmann::json& record, const char* key, double factor, int decimals) {
    if (!record.contains(key) || !record[key].is_number()) return "-";
    return fmt::format("{:.{}f}", record[key].get<double>() * factor, decimals);
}

int show(const std::string& run) {
    const std::string path = run + "/metrics.jsonl";
    nlohmann::json last;
    for (const nlohmann::json& record : read_metrics(path))
        if (record.contains("telemetry")) last = record;
    check(!last.is_null(), Exit::data, path, ": no telemetry; train with log.telemetry_every");
    try {
        std::fputs(telemetry_table(last).c_str(), stdout);
    } catch (const nlohmann::json::exception& error) {
        fail(Exit::data, path, ": step ", last.at("step").dump(), ": ", error.what());
    }
    return int(Exit::ok);
}

}  // namespace

std::string telemetry_table(const nlohmann::json& record) {
    std::string out =
        fmt::format("Step {}, micro-batch 0; shares in %\n{:<36} {:<8} {:>9} {:>7} {:>7} {:>8} {:>9} {:>8}\n",
                    record.at("step").get<int64_t>() + 1, "layer", "operand", "saturated", "zero", "second",
                    "EDEN", "deviation", "cosine");
    for (const nlohmann::json& r : record.at("telemetry"))
        out += fmt::format("{:<36} {:<8} {:>9} {:>7} {:>7} {:>8} {:>9} {:>8}\n",
                           r.at("layer").get<std::string>(), r.at("operand").get<std::string>(),
                           cell(r, "saturated", 100, 3), cell(r, "zero", 100, 3), cell(r, "second", 100, 2),
                           cell(r, "eden", 1, 5), cell(r, "eden_deviation", 1, 5), cell(r, "cosine", 1, 5));
    return out;
}

void add_telemetry(CLI::App& app, std::function<int()>& run) {
    const auto folder = std::make_shared<std::string>();
    CLI::App* command = app.add_subcommand(
        "telemetry",
        "How the quantisers and gradients of each layer did, from the last record of log.telemetry_every");
    command->add_option("RUN", *folder, "The run's folder")->required();
    command->callback([folder, &run] { run = [folder] { return show(*folder); }; });
}

}  // namespace q2
