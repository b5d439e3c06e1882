// What every program does first, and last.
#pragma once
#include <exception>
#include <string>

// To be called at the start of main().
// - Calls prepare_standard_streams() and wait_briefly() (os.h), which may restart the program, and
//   reserve_memory().
// - Makes standard output line-buffered, also in a pipe or a file: a log shows every line at once, and an
//   error comes after the output that led to it.
// - Starts OpenMP's threads as use_threads() does, at most 1024: OMP_NUM_THREADS, or one for each CPU that
//   the process may use, at most as many as its control groups give it time for.
// - Calls announce_interrupts() (signals.h).
// - When the program exits, checks that standard output took everything; if not, prints an error line and
//   changes the exit status to 1.
void start_program(char** argv);

// Sets memory aside for the way out of a program that has run out of it. Messages need some, and so do
// destructors of the JSON library, which would end the program without a line. When operator new fails for
// the first time, the reserve is freed and operator new tries again; then it throws std::bad_alloc as usual.
void reserve_memory();

// Sets the number of OpenMP's threads and starts them now. Throws Error if a limit of memory or processes
// does not allow it; OpenMP itself would end the program without saying what to do.
void use_threads(int count);

// The threads that OMP_NUM_THREADS asks for; 0: it is not set, or OpenMP refuses its value.
int threads_of_environment();

// Prints the line of an exception that ends the program. Returns main's exit status: 1, or 128 + the number
// of the signal of a StoppedBySignal.
int report_error(const char* program, const std::exception& error);
