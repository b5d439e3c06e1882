#include "llmc/options/version.h"

#include "commit.h"  // written at build time by cmake/commit.cmake
#include "llmc/base/error.h"
#include "llmc/cpu/simd.h"

#if defined(__clang__)
#define COMPILER "clang++ " __clang_version__
#else
#define COMPILER "g++ " __VERSION__
#endif

std::string version_text(const char* program) {
    return format_string("%s %s, commit %s, %s, CPU kernels for %s", program, PROJECT_VERSION, PROJECT_COMMIT,
                         COMPILER, simd_level_name(simd_level()));
}
