// Host side of shaders/packs.glsl: how many elements a kernel may access at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>

// Specialization constant WIDTH: 4 if every device address and the row length (`row` elements) allow accesses
// of four elements of Real, else 1.
template <class Real>
inline uint32_t pack_width(size_t row, std::initializer_list<uint64_t> addresses) {
    bool aligned = row % 4 == 0;
    for (uint64_t address : addresses) aligned = aligned && address % (4 * sizeof(Real)) == 0;
    return aligned ? 4 : 1;
}

// WIDTH of kernels that use load_wide() and store_wide(): 8 if Real has 16 bits, and the row length and all
// addresses allow accesses of 16 bytes; else pack_width().
template <class Real>
inline uint32_t wide_pack_width(size_t row, std::initializer_list<uint64_t> addresses) {
    bool aligned = sizeof(Real) == 2 && row % 8 == 0;
    for (uint64_t address : addresses) aligned = aligned && address % 16 == 0;
    return aligned ? 8 : pack_width<Real>(row, addresses);
}
