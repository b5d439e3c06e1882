// What every program does first.
#pragma once

// To be called at the start of main(). Sets how OpenMP's threads wait (openmp_waiting.h), which may restart
// the program. Makes standard output line-buffered, also in a pipe or a file: a log shows every line at once,
// and an error comes after the output that led to it.
void start_program(char** argv);
