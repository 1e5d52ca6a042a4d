// quartet2 bench: how fast a config trains on this machine, and where a step's time goes.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace q2 {

/// Adds the subcommand; its callback sets `run`.
void add_bench(CLI::App& app, std::function<int()>& run);

/// The part of `bench` that times attention alone.
void add_bench_attention(CLI::App& bench, std::function<int()>& run);

}  // namespace q2
