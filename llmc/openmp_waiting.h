// How the CPU's threads wait for each other.
#pragma once

// For the beginning of main(): OpenMP's threads are to turn for some microseconds while they wait, then
// sleep. By default they turn for milliseconds, and where other programs have the cores that takes the time
// from the very threads that are waited for. OpenMP reads the setting only when a program begins, so this
// begins it again. Leaves things as they are where OMP_WAIT_POLICY or GOMP_SPINCOUNT says something.
void wait_briefly(char** argv);
