// SIGINT and SIGTERM as a flag that the training loop reads.
#pragma once

namespace q2 {

/// From now on the first signal sets the flag; a second one ends the process as usual.
void catch_signals();
bool stop_requested();

}  // namespace q2
