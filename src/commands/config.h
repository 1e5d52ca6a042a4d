// quartet2 config: what the settings are, and what a config file resolves to.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace q2 {

/// Adds the subcommand; its callback sets `run`.
void add_config(CLI::App& app, std::function<int()>& run);

}  // namespace q2
