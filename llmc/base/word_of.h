// 32 bits whose values are all `value`, to fill memory of any type with: LaunchPad::fill().
#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "llmc/base/real.h"

template <class Real>
uint32_t word_of(float value) {
    std::array<Real, 4 / sizeof(Real)> values;
    values.fill(Real(value));
    return std::bit_cast<uint32_t>(values);
}
