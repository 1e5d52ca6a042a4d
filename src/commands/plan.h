// quartet2 plan: what a config will cost before it runs: parameters, FLOPs, memory by category and
// micro-batch, disk.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/config.h"

namespace CLI {
class App;
}

namespace q2 {

/// The plan as one object, on the config's backend; `memory` in bytes limits the micro-batch, by default that
/// of the device. A GPU is planned for where there is none too, without what is measured on it.
nlohmann::ordered_json plan_report(const Config&, std::optional<double> memory);

/// Adds the subcommand; its callback sets `run`.
void add_plan(CLI::App& app, std::function<int()>& run);

}  // namespace q2
