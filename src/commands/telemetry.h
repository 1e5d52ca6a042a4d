// quartet2 telemetry RUN: the last telemetry of a run as a table.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace CLI {
class App;
}

namespace q2 {

/// A line for each layer and operand of a record {"step", "telemetry"} of metrics.jsonl.
std::string telemetry_table(const nlohmann::json& record);

/// Adds the subcommand; its callback sets `run`.
void add_telemetry(CLI::App& app, std::function<int()>& run);

}  // namespace q2
