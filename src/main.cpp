// quartet2: subcommands, and the one place where errors become messages and exit codes.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "commands/analyze.h"
#include "commands/bench.h"
#include "commands/compare.h"
#include "commands/config.h"
#include "commands/eval.h"
#include "commands/generate.h"
#include "commands/plan.h"
#include "commands/telemetry.h"
#include "commands/tokenize.h"
#include "commands/train.h"
#include "commands/verify.h"
#include "ops/ops.h"

namespace {

/// Prints the help that was asked for, or says in one line what is wrong with the command line.
int report(const CLI::App& app, const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    const std::vector<std::string> unknown = app.remaining();
    const std::string what =
        app.get_subcommands().empty() && !unknown.empty() ? "no such command: " + unknown.front() : e.what();
    std::fprintf(stderr, "quartet2: %s (--help lists what can be given)\n", what.c_str());
    return int(q2::Exit::usage);
}

}  // namespace

int main(int argc, char** argv) {
    // Large host buffers return to the system when they are freed. By default glibc learns to keep those of
    // up to 32 MiB, and `plan` could not tell how many.
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    CLI::App app("quartet2: pre-trains Llama-like language models in NVFP4", "quartet2");
    app.require_subcommand(1);
    app.set_version_flag(
        "--version", std::string("quartet2 " QUARTET2_VERSION ", CUDA: ") + (q2::cuda_ops() ? "yes" : "no"));
    app.footer(
        "Exit codes: 0 done, 1 internal error, 2 command line, 3 config, 4 file or data, 5 loss or gradient "
        "not "
        "finite, 6 device, 7 stopped by a signal and 8 by train.max_seconds, with a checkpoint saved.");
    std::function<int()> run;
    for (const auto add :
         {q2::add_train, q2::add_eval, q2::add_generate, q2::add_compare, q2::add_plan, q2::add_analyze,
          q2::add_telemetry, q2::add_verify, q2::add_bench, q2::add_tokenize, q2::add_config})
        add(app, run);
    try {
        app.parse(argc, argv);
        return run();
    } catch (const CLI::ParseError& e) {
        return report(app, e);
    } catch (const q2::Error& e) {
        std::fprintf(stderr, "quartet2: %s\n", e.what());
        return int(e.code);
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "quartet2: out of memory: lower train.micro_batch or the model's size\n");
        return int(q2::Exit::device);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "quartet2: %s\n", e.what());
        return int(q2::Exit::internal);
    }
}
