#include "train/run_log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>

#include "base/check.h"

namespace q2 {
namespace {

std::string clock_text(double seconds) {
    const int64_t s = int64_t(seconds);
    return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                     : fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string step_text(const StepFigures& f, int64_t steps, int64_t tokens_a_step) {
    const double left =
        f.tokens_per_s > 0 ? double((steps - f.step - 1) * tokens_a_step) / f.tokens_per_s : 0;
    return fmt::format("step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tok/s  ETA {}",
                       f.step + 1, fmt::formatted_size("{}", steps), steps, f.loss, f.grad_norm, f.lr,
                       f.tokens_per_s, clock_text(left));
}

}  // namespace

RunLog::RunLog(const std::string& run, int64_t steps, int64_t tokens_a_step)
    : steps_(steps), tokens_a_step_(tokens_a_step), terminal_(isatty(STDOUT_FILENO)) {
    try {
        auto logger = std::make_shared<spdlog::logger>(
            "run", std::make_shared<spdlog::sinks::basic_file_sink_st>(run + "/log.txt"));
        logger->set_pattern("%Y-%m-%d %H:%M:%S %v");
        logger->flush_on(spdlog::level::info);
        spdlog::set_default_logger(std::move(logger));
    } catch (const spdlog::spdlog_ex& e) {
        fail(Exit::data, e.what());
    }
}

RunLog::~RunLog() {
    if (line_open_) std::puts("");
}

void RunLog::clear_line() {
    if (line_open_) std::fputs("\r\x1b[K", stdout);
    line_open_ = false;
}

void RunLog::message(const std::string& text) {
    clear_line();
    std::puts(text.c_str());
    std::fflush(stdout);
    spdlog::info(text);
}

void RunLog::note(const std::string& text) { spdlog::info(text); }

void RunLog::step(const StepFigures& f) {
    const std::string text = step_text(f, steps_, tokens_a_step_);
    spdlog::info(text);
    clear_line();
    std::fputs(text.c_str(), stdout);
    if (terminal_)
        line_open_ = true;
    else
        std::fputc('\n', stdout);
    std::fflush(stdout);
}

}  // namespace q2
