// quartet2 train: starts a run from a config, or resumes one.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace q2 {

/// Adds the subcommand; its callback sets `run`.
void add_train(CLI::App& app, std::function<int()>& run);

}  // namespace q2
