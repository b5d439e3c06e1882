// The setting of GNU's OpenMP library: see openmp_waiting.h.
#include "llmc/openmp_waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

void wait_briefly(char** argv) {
    std::error_code none;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
    if (self.filename() != std::filesystem::path(argv[0]).filename()) return;  // started through a loader
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) != 0) return;  // SPEED.md says what others do
    execv(self.c_str(), argv);                             // where that fails, it goes on as it is
}
