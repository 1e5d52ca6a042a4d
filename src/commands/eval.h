// quartet2 eval: the validation loss of a run's newest checkpoint.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace q2 {

/// Adds the subcommand; its callback sets `run`.
void add_eval(CLI::App& app, std::function<int()>& run);

}  // namespace q2
