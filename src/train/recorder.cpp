#include "train/recorder.h"

#include <utility>

#include "model/flops.h"
#include "train/guard.h"
#include "train/run_folder.h"

namespace q2 {

using Clock = std::chrono::steady_clock;

Recorder::Recorder(const std::string& run, const Config& config, std::string device, int64_t first_step,
                   MetricsEnd before)
    : config_(config),
      device_(std::move(device)),
      log_(run, config.train.steps, config.step_tokens()),
      metrics_(metrics_path(run)),
      seconds_before_(before.seconds),
      start_(Clock::now()),
      last_record_(start_),
      last_recorded_step_(first_step - 1) {}

StepFigures Recorder::figures(const StepState& s, int64_t step) {
    const auto now = Clock::now();
    const double interval = std::chrono::duration<double>(now - last_record_).count();
    const StepFigures f{
        .step = step,
        .loss = s.loss,
        .grad_norm = s.grad_norm,
        .lr = s.learning_rate,
        .tokens = (step + 1) * config_.step_tokens(),
        .tokens_per_s = double((step - last_recorded_step_) * config_.step_tokens()) / interval,
        .seconds = seconds_before_ + std::chrono::duration<double>(now - start_).count()};
    last_record_ = now;
    last_recorded_step_ = step;
    return f;
}

void Recorder::step(const StepState& s, int64_t step, size_t memory) {
    const bool last = step + 1 == config_.train.steps;
    if ((step + 1) % config_.log.every != 0 && !last && !s.skip) return;
    const StepFigures f = figures(s, step);
    const auto mfu = utilisation(config_.model, config_.data.sequence, f.tokens_per_s, device_);
    nlohmann::json line = {{"step", f.step},
                           {"loss", f.loss},
                           {"grad_norm", f.grad_norm},
                           {"lr", f.lr},
                           {"tokens", f.tokens},
                           {"tokens_per_s", f.tokens_per_s},
                           {"mfu", mfu ? nlohmann::json(*mfu) : nlohmann::json()},
                           {"memory", memory},
                           {"seconds", f.seconds}};
    if (s.skip) line.update({{"skipped", true}, {"reason", skip_name(s.skip)}});
    metrics_.write(line);
    log_.step(f);
}

}  // namespace q2
