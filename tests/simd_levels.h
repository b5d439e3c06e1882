// Tests of CPU GEMMs run at every SIMD level that the CPU supports, and with emulated AMX.
#pragma once
#include <gtest/gtest.h>

#include "llmc/base/error.h"
#include "llmc/cpu/simd.h"
#include "tests/amx_emulator.h"

// Calls check() with each set of micro-kernels that this CPU supports, and with the AMX micro-kernels if they
// can be emulated.
template <class Check>
void for_each_simd_level(Check check) {
    auto check_level = [&](int level) {
        SCOPED_TRACE(format_string("SIMD level %d", level));
        choose_simd_level(SimdLevel(level));
        check();
    };
    for (int level = SIMD_BASE; level <= best_simd_level(); level++) check_level(level);
    if (AmxEmulator::is_possible()) {
        const AmxEmulator emulator;
        check_level(SIMD_AMX);
    }
    choose_simd_level(best_simd_level());
}
