// Tests of products on the CPU walk the instruction sets that it has.
#pragma once
#include <gtest/gtest.h>

#include "llmc/error.h"
#include "llmc/simd.h"

// Calls check() with each set of product kernels that this CPU can run.
template <class Check>
void for_each_simd_level(Check check) {
    const SimdLevel best = simd_level();
    for (int level = SIMD_BASE; level <= best; level++) {
        SCOPED_TRACE(format_string("SIMD level %d", level));
        limit_simd(SimdLevel(level));
        check();
    }
    limit_simd(SIMD_BF16);
}
