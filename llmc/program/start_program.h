// What every program does first, and last.
#pragma once
#include <exception>

// To be called at the start of main().
// - Opens descriptors 0 to 2 on /dev/null if they are closed, so that no file takes their place.
// - Sets how OpenMP's threads wait (openmp_waiting.h), which may restart the program.
// - Sets memory aside for the error line of a program that runs out of it (memory_reserve.h).
// - Makes standard output line-buffered, also in a pipe or a file: a log shows every line at once, and an
//   error comes after the output that led to it.
// - A file that exceeds the limit of `ulimit -f` gives an error instead of a signal.
// - Starts OpenMP's threads as use_threads() does, at most 1024.
// - When the program exits, checks that standard output took everything; if not, prints an error line and
//   changes the exit status to 1.
void start_program(char** argv);

// Sets the number of OpenMP's threads and starts them now. Throws Error if a limit of memory or processes
// does not allow it; OpenMP itself would end the program without saying what to do.
void use_threads(int count);

// Prints the line of an exception that ends the program. Returns main's exit status: 1, or 128 + the number
// of the signal of a StoppedBySignal.
int report_error(const char* program, const std::exception& error);
