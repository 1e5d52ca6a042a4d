// What a run leaves of its steps: records of metrics.jsonl, lines of log.txt and progress, and the clocks
// behind them.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "ops/step_state.h"
#include "train/config.h"
#include "train/metrics.h"
#include "train/run_log.h"

namespace q2 {

class Recorder {
  public:
    /// Goes on behind the records of steps below first_step, which ended so. `device`: its one line.
    Recorder(const std::string& run, const Config&, std::string device, int64_t first_step, MetricsEnd);

    /// The record of a step, if it is one of log.every, the last, or without an update. memory: bytes now.
    void step(const StepState&, int64_t step, size_t memory);
    /// Another record, {"step": .., ...}.
    void record(const nlohmann::json& record) { metrics_.write(record); }
    void message(const std::string& text) { log_.message(text); }
    void note(const std::string& text) { log_.note(text); }
    MetricsWriter& metrics() { return metrics_; }

    /// While it lives, no time counts as training's in tokens_per_s.
    class Pause {
      public:
        explicit Pause(Recorder& recorder) : recorder_(recorder) {}
        ~Pause() { recorder_.last_record_ += Clock::now() - start_; }
        double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;

      private:
        using Clock = std::chrono::steady_clock;
        Recorder& recorder_;
        Clock::time_point start_ = Clock::now();
    };

  private:
    StepFigures figures(const StepState&, int64_t step);

    Config config_;
    std::string device_;
    RunLog log_;
    MetricsWriter metrics_;
    double seconds_before_;  ///< of the run's earlier parts
    std::chrono::steady_clock::time_point start_, last_record_;
    int64_t last_recorded_step_;
};

}  // namespace q2
