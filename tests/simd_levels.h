// Tests of products on the CPU walk the instruction sets that it has, and AMX.
#pragma once
#include <gtest/gtest.h>

#include "llmc/error.h"
#include "llmc/simd.h"
#include "tests/amx_emulator.h"

// Calls check() with each set of product kernels that this CPU can run, and with those of AMX where that can
// be emulated.
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
