// quartet2 generate: continues a prompt with a run's newest checkpoint.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace q2 {

/// Adds the subcommand; its callback sets `run`.
void add_generate(CLI::App& app, std::function<int()>& run);

}  // namespace q2
