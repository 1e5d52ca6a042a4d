#include "train/trainer.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "train/checkpoint_writer.h"
#include "train/guard.h"
#include "train/matmul_choices.h"
#include "train/recorder.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/signals.h"
#include "train/snapshot.h"
#include "train/step.h"
#include "train/telemetry.h"

namespace q2 {
namespace {

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

    void initialise() { session_.initialise(); }
    void load(const CheckpointSearch&);
    /// Makes the steps from the one after the checkpoint to the last.
    Exit run(MetricsEnd before = {});

  private:
    const Config& config() const { return session_.config(); }
    Stop stop() const { return stop_asked(config().train.max_seconds); }
    int64_t end() const;
    void describe();
    Exit loop(const MetricsEnd& before);
    void make(int64_t step);
    bool evaluation_is_due(int64_t step) const;
    bool evaluate_after(int64_t step);
    bool save_is_due(int64_t step) const;
    nlohmann::json extra();
    void save_after(int64_t step);
    void collect(const std::optional<SavedCheckpoint>&);
    Exit stopped(int64_t step, Stop reason);
    std::string last_words(const Error&);

    std::string run_;
    DataLoader data_;
    std::optional<DataLoader> val_;
    Session session_;
    Training training_{session_.ctx(), session_.config(), session_.memory(), data_};
    UpdateGuard guard_;
    int64_t first_step_ = 0, copied_step_ = -1;
    double paused_ = 0;   ///< seconds that the save at hand kept the training waiting
    std::string newest_;  ///< the newest good checkpoint
    std::optional<Recorder> recorder_;
    std::optional<Snapshot> snapshot_;
    std::optional<CheckpointWriter> writer_;  // reads the two above until its end
};

void Trainer::load(const CheckpointSearch& found) {
    first_step_ = found.meta.step;
    newest_ = *found.folder;
    session_.load(newest_);
    const std::string manifest = newest_ + "/manifest.json";
    guard_.restore(found.meta.extra, manifest);
    const auto choices = found.meta.extra.find(kMatmulKey);
    if (config().train.matmul == "timed" && choices != found.meta.extra.end())
        session_.ctx().ops->choose_matmuls(session_.ctx(), choices_from_json(*choices, manifest));
}

int64_t Trainer::end() const {
    const int64_t all = config().train.steps, stop_after = config().train.stop_after;
    return stop_after > 0 ? std::min(stop_after, all) : all;
}

void Trainer::describe() {
    const Config& c = config();
    recorder_->message(concat("Run ", run_, " on ", session_.device()));
    recorder_->message(concat("Model: ", session_.memory().model.table.count(), " parameters; recipe ",
                              session_.memory().model.plan.at(first_step_).name, "; ", c.step_tokens(),
                              " tokens a step; data: ", data_.tokens(), " tokens, ", data_.windows(),
                              " sequences"));
    for (const std::string& path : data_.unused_files())
        recorder_->message(concat("Not used, shorter than one sequence: ", path));
    if (first_step_ > 0)
        recorder_->message(concat("Resuming after step ", first_step_, " of ", c.train.steps));
    if (first_step_ >= end())
        recorder_->message(concat("Nothing to do: ", end(), " steps are asked for and done"));
}

Exit Trainer::run(MetricsEnd before) {
    recorder_.emplace(run_, config(), session_.device(), first_step_, before);
    snapshot_.emplace(session_.ctx(), session_.memory());
    writer_.emplace(run_, config().checkpoint, recorder_->metrics());
    try {
        return loop(before);
    } catch (const Error& error) {
        const Error told(error.code, last_words(error));
        recorder_->note(told.what());
        throw told;
    }
}

/// The message of an error that ends the run. The save at hand may still end well.
std::string Trainer::last_words(const Error& error) {
    std::string text = error.what();
    bool of_files = error.code == Exit::data;
    try {
        collect(writer_->wait());
    } catch (const Error& of_save) {
        of_files = true;
        text += concat("; also, ", of_save.what());
    }
    if (!of_files) return text;
    const std::string good = newest_.empty() ? "there is no checkpoint yet" : newest_ + " is good";
    return concat(text, ". The training stopped; ", good,
                  ". When this is mended, go on with: quartet2 train --resume ", run_);
}

Exit Trainer::loop(const MetricsEnd& before) {
    describe();
    const int64_t last = first_step_ - 1;
    const bool owed = evaluation_is_due(last) && before.evaluated_step < last;
    if (owed && !evaluate_after(last)) return stopped(last, stop());
    for (int64_t step = first_step_; step < end(); ++step) {
        make(step);
        collect(writer_->poll());
        const bool complete = evaluate_after(step) && step + 1 == end();
        if (complete || stop() != Stop::none || save_is_due(step)) save_after(step);
        if (complete) break;
        if (const Stop reason = stop(); reason != Stop::none) return stopped(step, reason);
    }
    collect(writer_->wait());
    return Exit::ok;
}

void Trainer::make(int64_t step) {
    const StepState state = train_step(training_, step, guard_.limits());
    if (const auto skipped = guard_.judge(training_, step, state)) recorder_->message(*skipped);
    recorder_->step(state, step, session_.memory_use().peak);
    const int64_t every = config().log.telemetry_every;
    if (every == 0 || (step + 1) % every != 0) return;
    const Recorder::Pause pause(*recorder_);
    recorder_->record({{"step", step}, {"telemetry", telemetry(training_, step)}});
}

bool Trainer::evaluation_is_due(int64_t step) const {
    if (!val_ || step < 0) return false;
    return (step + 1) % config().train.eval_every == 0 || step + 1 == config().train.steps;
}

/// False if it was due and a stop came first: whoever resumes makes it then, from the same weights.
bool Trainer::evaluate_after(int64_t step) {
    if (!evaluation_is_due(step)) return true;
    const Recorder::Pause pause(*recorder_);
    const auto stops = [this] { return stop() != Stop::none; };
    const auto loss = evaluate_unless(stops, training_, *val_, step, config().train.eval_batches);
    if (!loss) return false;
    recorder_->record({{"step", step}, {"val_loss", *loss}});
    recorder_->message(concat("step ", step + 1, ": validation loss ", *loss));
    return true;
}

bool Trainer::save_is_due(int64_t step) const {
    const int64_t every = config().checkpoint.every;
    return every > 0 && (step + 1) % every == 0;
}

/// What a resume must know beside the weights and moments.
nlohmann::json Trainer::extra() {
    nlohmann::json json = guard_.to_json();
    if (config().train.matmul == "timed")
        json[kMatmulKey] = choices_to_json(session_.ctx().ops->matmul_choices(session_.ctx()));
    return json;
}

/// Copies now; the writing goes on beside the next steps.
void Trainer::save_after(int64_t step) {
    if (copied_step_ == step) return;
    const Recorder::Pause pause(*recorder_);
    collect(writer_->wait());
    snapshot_->take();
    writer_->start(session_.meta(step + 1, extra()), snapshot_->files(config().model));
    copied_step_ = step;
    paused_ = pause.seconds();
}

/// Tells of a save that has ended.
void Trainer::collect(const std::optional<SavedCheckpoint>& saved) {
    if (!saved) return;
    newest_ = saved->folder;
    recorder_->message(
        concat("Saved ", newest_, " (", paused_, " s without training, ", saved->seconds, " s to write)"));
    if (!saved->warning.empty())
        recorder_->message("An older checkpoint could not be removed: " + saved->warning);
}

Exit Trainer::stopped(int64_t step, Stop reason) {
    if (step >= first_step_) save_after(step);
    collect(writer_->wait());
    const char* const why = reason == Stop::signal ? "by a signal" : "by train.max_seconds";
    recorder_->message(
        concat("Stopped ", why, " after step ", step + 1, "; go on with: quartet2 train --resume ", run_));
    return reason == Stop::signal ? Exit::interrupted : Exit::time_limit;
}

}  // namespace

Exit start_run(const Config& config, const std::string& run) {
    check_free(run);
    Trainer trainer(config, run);
    make_run_folder(run);
    const RunLock lock(run);
    check_free(run);  // another start may have been faster
    write_config(run, config);
    catch_signals();
    trainer.initialise();
    return trainer.run();
}

Exit resume_run(const std::string& run, const std::vector<std::string>& overrides) {
    const Config config = config_of_run(run, overrides);
    const RunLock lock(run);
    const CheckpointSearch search = search_checkpoints(run);
    const bool damaged = std::any_of(search.skipped.begin(), search.skipped.end(),
                                     [](const SkippedCheckpoint& s) { return s.finished; });
    check(search.folder || !damaged, Exit::data, run,
          ": none of its checkpoints verifies; restore one, or start a new run");
    if (search.folder) check_same_config(config, search.meta, run);
    Trainer trainer(config, run);
    if (search.folder) {
        trainer.load(search);
    } else {
        std::printf("No checkpoint in %s yet: starting from step 0\n", run.c_str());
        trainer.initialise();
    }
    const MetricsEnd before = truncate_metrics(metrics_path(run), search.meta.step);
    catch_signals();
    return trainer.run(before);
}

}  // namespace q2
