// The host's side of shaders/packs.glsl: how many elements a kernel may load at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>

// Specialization constant WIDTH: 4 where every device address and every row of `row` elements of T allows
// accesses of four elements, else 1.
template <class T>
inline uint32_t pack_width(size_t row, std::initializer_list<uint64_t> addresses) {
    bool aligned = row % 4 == 0;
    for (uint64_t address : addresses) aligned = aligned && address % (4 * sizeof(T)) == 0;
    return aligned ? 4 : 1;
}
