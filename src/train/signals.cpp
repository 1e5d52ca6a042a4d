#include "train/signals.h"

#include <chrono>
#include <csignal>

namespace q2 {
namespace {

using Clock = std::chrono::steady_clock;

const Clock::time_point process_start = Clock::now();  // before main
volatile std::sig_atomic_t stop_flag = 0;              // the one thing a handler may write

void on_signal(int number) {
    stop_flag = 1;
    std::signal(number, SIG_DFL);
}

}  // namespace

void catch_signals() {
    stop_flag = 0;
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
}

Stop stop_asked(double max_seconds) {
    if (stop_flag != 0) return Stop::signal;
    const double age = std::chrono::duration<double>(Clock::now() - process_start).count();
    return max_seconds > 0 && age >= max_seconds ? Stop::time_limit : Stop::none;
}

}  // namespace q2
