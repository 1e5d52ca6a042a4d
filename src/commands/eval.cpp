#include "commands/eval.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "train/run_folder.h"
#include "train/session.h"
#include "train/step.h"

namespace q2 {
namespace {

struct EvalOptions {
    std::string run;
    std::vector<std::string> data;
    bool json = false;
};

int eval(const EvalOptions& o) {
    const RunCheckpoint checkpoint = open_run(o.run);
    const Config& c = checkpoint.config;
    const std::vector<std::string>& patterns = o.data.empty() ? c.data.val : o.data;
    check(!patterns.empty(), Exit::config, o.run, ": data.val is empty; name token files with --data");
    const DataLoader val({patterns, c.data.format, c.data.sequence, c.model.vocab}, SampleOrder::sequential);
    Session session(c, c.train.eval_micro_batch);
    load_checkpoint(session, checkpoint);
    Training training{session.ctx(), c, session.memory(), val};
    const double loss = evaluate(training, val, checkpoint.step - 1, c.train.eval_batches);
    check(std::isfinite(loss), Exit::non_finite, checkpoint.folder, ": the validation loss is ", loss);
    if (o.json) {
        const nlohmann::ordered_json report = {{"step", checkpoint.step - 1}, {"val_loss", loss}};
        std::puts(report.dump().c_str());
    } else {
        std::printf("%s: validation loss %.4f nats a token, perplexity %.3f\n", checkpoint.folder.c_str(),
                    loss, std::exp(loss));
    }
    return int(Exit::ok);
}

}  // namespace

void add_eval(CLI::App& app, std::function<int()>& run) {
    const auto options = std::make_shared<EvalOptions>();
    CLI::App* command = app.add_subcommand("eval", "Validation loss of a run's newest checkpoint");
    command->add_option("RUN", options->run, "The run's folder")->required();
    command->add_option("--data", options->data, "Token files instead of the config's data.val");
    command->add_flag("--json", options->json, "Print one JSON object");
    command->callback([options, &run] { run = [options] { return eval(*options); }; });
}

}  // namespace q2
