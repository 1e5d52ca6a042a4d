// Which updates of a run are made. One whose loss or gradient norm is not finite is never made; one that lies
// too far above those made before it is not, if train.skip_zscore says so (as OLMo's SkipStepOptimizer). The
// device decides, by limits that it gets before the step, so nothing waits for the host.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/step.h"

namespace q2 {

/// A SkipReason as metrics.jsonl names it: "non_finite", "loss" or "grad_norm".
const char* skip_name(uint32_t reason);

class UpdateGuard {
  public:
    explicit UpdateGuard(const TrainConfig& settings) : settings_(settings) {}

    /// Of the next step: mean + skip_zscore * deviation over the last skip_window updates that were made;
    /// none while they are fewer than half the window.
    UpdateLimits limits() const;

    /// Takes in how a step ended. Nothing if its update was made; else the line that log.txt gets, with the
    /// batch's places in the data. Throws Exit::non_finite if train.non_finite or train.max_skips end the
    /// run.
    std::optional<std::string> judge(Training&, int64_t step, const StepState&);

    int64_t skipped() const { return skipped_; }          ///< steps without an update since the run's start
    int64_t consecutive() const { return consecutive_; }  ///< of them, those since the last update

    /// The state, as a checkpoint's `extra` holds it; a resume goes on with the same bits.
    nlohmann::json to_json() const;
    /// From an `extra`; one without it leaves a fresh guard. Throws Exit::data, beginning with `origin`.
    void restore(const nlohmann::json& extra, const std::string& origin);

  private:
    void remember(const StepState&);

    TrainConfig settings_;
    std::deque<float> losses_, norms_;  ///< of the updates made, oldest first; empty without skip_zscore
    int64_t consecutive_ = 0, skipped_ = 0;
};

}  // namespace q2
