// Sets GOMP_SPINCOUNT of GNU's OpenMP library: see os.h.
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "llmc/base/os.h"

// If threads are bound to places (OMP_PROC_BIND, GOMP_CPU_AFFINITY), OpenMP binds the first thread before
// main() starts. A program executed from that thread would inherit its place as the only one. This restores
// the affinity to all places.
static void restore_affinity() {
#ifdef __linux__
    if (omp_get_proc_bind() == omp_proc_bind_false) return;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int place = 0; place < omp_get_num_places(); place++) {
        std::vector<int> cpus(size_t(omp_get_place_num_procs(place)));
        omp_get_place_proc_ids(place, cpus.data());
        for (int cpu : cpus)
            if (cpu < CPU_SETSIZE) CPU_SET(cpu, &all);
    }
    if (CPU_COUNT(&all) > 0)
        sched_setaffinity(0, sizeof all, &all);  // on failure the affinity stays as it is
#endif
}

void wait_briefly(char** argv) {
    const std::filesystem::path self = program_path();
    if (self.filename() != std::filesystem::path(argv[0]).filename()) return;  // started by a loader
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) != 0) return;  // SPEED.md compares other values
    restore_affinity();
    execv(self.c_str(), argv);  // on failure the program continues with the default
}
