#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "model/flops.h"
#include "train/guard.h"
#include "train/metrics.h"
#include "train/run_log.h"
#include "train/schedule.h"
#include "train/session.h"
#include "train/signals.h"
#include "train/step.h"
#include "train/telemetry.h"

namespace q2 {
namespace {

namespace fs = std::filesystem;

std::string config_path(const std::string& run) { return run + "/config.json"; }
std::string metrics_path(const std::string& run) { return run + "/metrics.jsonl"; }

DataLoader open_data(const Config& c, const std::vector<std::string>& patterns, SampleOrder order) {
    return DataLoader({patterns, c.data.format, c.data.sequence, c.model.vocab}, order, c.train.seed);
}

/// One run at work: what its loop needs, from the first step it does to the last.
class Trainer {
  public:
    Trainer(const Config& c, const std::string& run)
        : run_(run), data_(open_data(c, c.data.train, SampleOrder::shuffled)), session_(c), guard_(c.train) {
        if (!c.data.val.empty() && c.train.eval_every > 0)
            val_.emplace(open_data(c, c.data.val, SampleOrder::sequential));
    }

    Session& session() { return session_; }
    UpdateGuard& guard() { return guard_; }
    void create_folder();
    Exit loop(int64_t first_step);

  private:
    const Config& config() const { return session_.config(); }
    void describe(int64_t first_step);
    void record(const StepState&, int64_t step);
    void observe_after(int64_t step);
    void evaluate_after(int64_t step);
    void save_after(int64_t step);

    std::string run_;
    DataLoader data_;
    std::optional<DataLoader> val_;
    Session session_;
    UpdateGuard guard_;
    std::optional<RunLog> log_;
    std::optional<MetricsWriter> metrics_;
    std::chrono::steady_clock::time_point start_, last_record_;
    int64_t last_recorded_step_ = -1;
    int64_t saved_step_ = -1;
};

void Trainer::create_folder() {
    std::error_code error;
    fs::create_directories(run_, error);
    check(!error, Exit::data, run_, ": cannot create the run's folder: ", error.message());
    AtomicFile file(config_path(run_));
    file.write(config_to_json(config()).dump(2) + "\n");
    file.commit();
}

void Trainer::describe(int64_t first_step) {
    const Config& c = config();
    log_->message(concat("Run ", run_, " on ", session_.device()));
    log_->message(concat("Model: ", session_.memory().model.table.count(), " parameters; recipe ",
                         session_.memory().model.plan.at(first_step).name, "; ", c.step_tokens(),
                         " tokens a step; data: ", data_.tokens(), " tokens, ", data_.windows(),
                         " sequences"));
    for (const std::string& path : data_.unused_files())
        log_->message(concat("Not used, shorter than one sequence: ", path));
    if (first_step > 0) log_->message(concat("Resuming after step ", first_step, " of ", c.train.steps));
}

void Trainer::record(const StepState& s, int64_t step) {
    const bool last = step + 1 == config().train.steps;
    if ((step + 1) % config().log.every != 0 && !last && !s.skip) return;
    const auto now = std::chrono::steady_clock::now();
    const double interval = std::chrono::duration<double>(now - last_record_).count();
    const StepFigures f{
        .step = step,
        .loss = s.loss,
        .grad_norm = s.grad_norm,
        .lr = s.learning_rate,
        .tokens = (step + 1) * config().step_tokens(),
        .tokens_per_s = double((step - last_recorded_step_) * config().step_tokens()) / interval,
        .seconds = std::chrono::duration<double>(now - start_).count()};
    last_record_ = now;
    last_recorded_step_ = step;
    const auto mfu = utilisation(config().model, config().data.sequence, f.tokens_per_s, session_.device());
    nlohmann::json line = {{"step", f.step},
                           {"loss", f.loss},
                           {"grad_norm", f.grad_norm},
                           {"lr", f.lr},
                           {"tokens", f.tokens},
                           {"tokens_per_s", f.tokens_per_s},
                           {"mfu", mfu ? nlohmann::json(*mfu) : nlohmann::json()},
                           {"memory", session_.memory_use().peak},
                           {"seconds", f.seconds}};
    if (s.skip) line.update({{"skipped", true}, {"reason", skip_name(s.skip)}});
    metrics_->write(line);
    log_->step(f);
}

void Trainer::observe_after(int64_t step) {
    const int64_t every = config().log.telemetry_every;
    if (every == 0 || (step + 1) % every != 0) return;
    const auto start = std::chrono::steady_clock::now();
    Training training{session_.ctx(), config(), session_.memory(), data_};
    metrics_->write({{"step", step}, {"telemetry", telemetry(training, step)}});
    last_record_ += std::chrono::steady_clock::now() - start;  // not training time
}

void Trainer::evaluate_after(int64_t step) {
    const bool last = step + 1 == config().train.steps;
    if (!val_ || ((step + 1) % config().train.eval_every != 0 && !last)) return;
    const auto start = std::chrono::steady_clock::now();
    Training training{session_.ctx(), config(), session_.memory(), data_};
    const double loss = evaluate(training, *val_, step, config().train.eval_batches);
    metrics_->write({{"step", step}, {"val_loss", loss}});
    log_->message(concat("step ", step + 1, ": validation loss ", loss));
    last_record_ += std::chrono::steady_clock::now() - start;  // not training time
}

void Trainer::save_after(int64_t step) {
    if (saved_step_ == step) return;
    const auto start = std::chrono::steady_clock::now();
    log_->message(concat("Saved ", session_.save(run_, step + 1, guard_.to_json())));
    prune_checkpoints(run_, config().checkpoint.keep);
    saved_step_ = step;
    last_record_ += std::chrono::steady_clock::now() - start;
}

Exit Trainer::loop(int64_t first_step) {
    log_.emplace(run_, config().train.steps, config().step_tokens());
    metrics_.emplace(metrics_path(run_));
    describe(first_step);
    start_ = last_record_ = std::chrono::steady_clock::now();
    last_recorded_step_ = first_step - 1;
    Training training{session_.ctx(), config(), session_.memory(), data_};
    const int64_t all = config().train.steps, stop_after = config().train.stop_after;
    const int64_t end = stop_after > 0 ? std::min(stop_after, all) : all;
    if (first_step >= end) log_->message(concat("Nothing to do: ", end, " steps are asked for and done"));
    for (int64_t step = first_step; step < end; ++step) {
        const StepState state = train_step(training, step, guard_.limits());
        if (const auto skipped = guard_.judge(training, step, state)) log_->message(*skipped);
        record(state, step);
        observe_after(step);
        evaluate_after(step);
        const bool stop = stop_requested();
        const int64_t every = config().checkpoint.every;
        if (stop || step + 1 == end || (every > 0 && (step + 1) % every == 0)) save_after(step);
        if (!stop) continue;
        log_->message(concat("Stopped by a signal after step ", step + 1,
                             "; go on with: quartet2 train --resume ", run_));
        return Exit::interrupted;
    }
    return Exit::ok;
}

/// Whether a setting may change from one part of a run to the next.
bool may_change(std::string_view setting) {
    for (const char* prefix : {"train.backend", "train.device", "train.threads", "train.stop_after",
                               "train.non_finite", "train.max_skips", "log.", "checkpoint."})
        if (setting.starts_with(prefix)) return true;
    return false;
}

void check_override(const std::string& assignment) {
    if (may_change(assignment)) return;
    fail(Exit::usage, "--set ", assignment,
         ": a resumed run keeps what decides its results; only train.backend, "
         "train.device, train.threads, train.stop_after, train.non_finite, train.max_skips, log.* and "
         "checkpoint.* can change");
}

Config config_of_run(const std::string& run, const std::vector<std::string>& overrides) {
    check(fs::is_directory(run), Exit::data, run, ": no such run folder");
    return load_config(config_path(run), overrides);
}

/// A config edited by hand since the checkpoint was saved would give a run that no config describes.
void check_same_config(const Config& config, const CheckpointMeta& meta, const std::string& run) {
    const nlohmann::json now = nlohmann::json(config_to_json(config)).flatten();
    const nlohmann::json saved = meta.config.flatten();
    for (const auto& [pointer, value] : now.items()) {
        std::string setting = pointer.substr(1);
        std::replace(setting.begin(), setting.end(), '/', '.');
        const bool same = !saved.contains(pointer) || saved[pointer] == value;
        check(same || may_change(setting), Exit::config, config_path(run), ": ", setting, " = ", value.dump(),
              ", but the run's checkpoint was made with ", saved.value(pointer, nlohmann::json()).dump(),
              ": put it back, or start a new run");
    }
}

/// Nothing is there, or a folder in which no run has begun: empty, or with what a killed start left.
bool is_free(const std::string& run) {
    std::error_code unreachable;  // told by create_folder
    if (!fs::exists(run, unreachable)) return true;
    fs::directory_iterator entries(run, unreachable);
    return !unreachable && std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
        return entry.path().filename() == "config.json.tmp";
    });
}

CheckpointSearch search_checkpoints(const std::string& run) {
    CheckpointSearch search = find_latest_checkpoint(run);
    for (const SkippedCheckpoint& s : search.skipped)
        std::fprintf(stderr, "Skipped %s: %s\n", s.folder.c_str(), s.reason.c_str());
    return search;
}

}  // namespace

Exit start_run(const Config& config, const std::string& run) {
    check(is_free(run), Exit::usage, run, " exists: go on with `quartet2 train --resume ", run,
          "`, or choose another --out");
    Trainer trainer(config, run);
    trainer.create_folder();
    catch_signals();
    trainer.session().initialise();
    return trainer.loop(0);
}

Exit resume_run(const std::string& run, const std::vector<std::string>& overrides) {
    for (const std::string& assignment : overrides) check_override(assignment);
    const Config config = config_of_run(run, overrides);
    const CheckpointSearch search = search_checkpoints(run);
    const bool damaged = std::any_of(search.skipped.begin(), search.skipped.end(),
                                     [](const SkippedCheckpoint& s) { return s.finished; });
    check(search.folder || !damaged, Exit::data, run,
          ": none of its checkpoints verifies; restore one, or start a new run");
    if (search.folder)
        check_same_config(config, search.meta, run);
    else
        std::printf("No checkpoint in %s yet: starting from step 0\n", run.c_str());
    Trainer trainer(config, run);
    const int64_t step = search.folder ? search.meta.step : 0;
    if (search.folder) {
        trainer.session().load(*search.folder);
        trainer.guard().restore(search.meta.extra, *search.folder + "/manifest.json");
    } else {
        trainer.session().initialise();
    }
    truncate_metrics(metrics_path(run), step);
    catch_signals();
    return trainer.loop(step);
}

RunCheckpoint open_run(const std::string& run) {
    const Config config = config_of_run(run, {});
    const CheckpointSearch search = search_checkpoints(run);
    check(search.folder.has_value(), Exit::data, run, ": no checkpoint that verifies; train it first");
    return {config, *search.folder, search.meta.step};
}

}  // namespace q2
