// For long work between reading and writing, which a StopWritingAtSignals (file.h) of its caller ends.
#pragma once

// Whether a stop signal has come, and during the lifetime of such an object.
bool work_is_stopped();
void throw_if_stopped();  // StoppedBySignal
