#include "train/signals.h"

#include <csignal>

namespace q2 {
namespace {

volatile std::sig_atomic_t stop_flag = 0;  // the one thing a handler may write

void on_signal(int number) {
    stop_flag = 1;
    std::signal(number, SIG_DFL);
}

}  // namespace

void catch_signals() {
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
}

bool stop_requested() { return stop_flag != 0; }

}  // namespace q2
