// How idle OpenMP threads wait.
#pragma once

// Call this first in main(). It makes idle OpenMP threads spin for a few microseconds, then block. By default
// they spin for milliseconds; on busy cores, that takes time from the very threads that they wait for. OpenMP
// reads the setting only when the program starts, so this restarts the program with execv(). Does nothing if
// OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, and on Windows, where openmp_windows.cpp waits like this.
void wait_briefly(char** argv);
