// SIGINT and SIGTERM: the first signal asks the run to stop cleanly, a second one kills it.
#pragma once

// From now on, the first signal is only recorded.
void catch_stop_signals();

// The recorded signal's number, or 0.
int stop_signal();
