// What a run says: log.txt and plain lines, or on a terminal one line that is rewritten.
#pragma once

#include <chrono>
#include <string>

namespace q2 {

/// A training step's figures, as they are shown and written to metrics.jsonl.
struct StepFigures {
    int64_t step = 0;
    double loss = 0, grad_norm = 0, lr = 0;
    int64_t tokens = 0;  ///< seen since the run's start
    double tokens_per_s = 0, seconds = 0;
};

class RunLog {
  public:
    /// Appends to RUN/log.txt. The terminal's line is rewritten only if standard output is one.
    RunLog(const std::string& run, int64_t steps, int64_t tokens_a_step);
    ~RunLog();
    RunLog(const RunLog&) = delete;
    RunLog& operator=(const RunLog&) = delete;

    void message(const std::string& text);
    /// Into log.txt alone, of what main says on stderr.
    void note(const std::string& text);
    void step(const StepFigures&);

  private:
    void clear_line();

    int64_t steps_, tokens_a_step_;
    bool terminal_, line_open_ = false;
};

}  // namespace q2
