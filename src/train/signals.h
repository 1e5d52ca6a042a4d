// What ends a run early: signals, as a flag that the training loop reads, and the wall-time limit.
#pragma once

namespace q2 {

/// From now on the first SIGINT, SIGTERM or SIGHUP asks for a stop; a second one of its kind ends the process
/// as usual. SIGHUP stays ignored under nohup. A closed pipe and RLIMIT_FSIZE become errors of the write.
void catch_signals();

enum class Stop { none, signal, time_limit };

/// Whether a signal came, or the process is older than `max_seconds` (0: no limit).
Stop stop_asked(double max_seconds);

}  // namespace q2
