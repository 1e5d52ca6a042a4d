#include "commands/train.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "train/trainer.h"

namespace q2 {
namespace {

struct TrainOptions {
    std::string config, out, resume;
    std::vector<std::string> overrides;
};

int train(const TrainOptions& o) {
    check(o.config.empty() != o.resume.empty(), Exit::usage, "train needs either a CONFIG or --resume RUN");
    if (!o.resume.empty()) {
        check(o.out.empty(), Exit::usage, "--out: a resumed run stays in its folder, ", o.resume);
        return int(resume_run(o.resume, o.overrides));
    }
    const std::string run = o.out.empty() ? "runs/" + std::filesystem::path(o.config).stem().string() : o.out;
    return int(start_run(load_config(o.config, o.overrides), run));
}

}  // namespace

void add_train(CLI::App& app, std::function<int()>& run) {
    const auto options = std::make_shared<TrainOptions>();
    CLI::App* command = app.add_subcommand("train", "Pre-train a model as a config says, or resume a run");
    command->add_option("CONFIG", options->config, "Config file (docs/CONFIG.md lists the keys)");
    command->add_option("--out", options->out,
                        "The run's folder, which must not exist [runs/<name of CONFIG>]");
    command->add_option("--resume", options->resume, "Go on with the run in this folder");
    command
        ->add_option(
            "--set", options->overrides,
            "key=value, overriding the config; may be repeated. With --resume only what changes no result")
        ->allow_extra_args(false);
    command->callback([options, &run] { run = [options] { return train(*options); }; });
}

}  // namespace q2
