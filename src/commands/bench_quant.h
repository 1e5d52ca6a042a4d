// quartet2 bench quant: the quantisers' bytes a second against the device's copy rate, measured in one run.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace q2 {

/// Adds the subcommand to `bench`; its callback sets `run`.
void add_bench_quant(CLI::App& bench, std::function<int()>& run);

}  // namespace q2
