// SIGINT and SIGTERM: the first one asks the run to end in good order, a second one ends it at once.
#pragma once

// From now on the first of them is only taken down.
void catch_stop_signals();

// Its number, or 0.
int stop_signal();
