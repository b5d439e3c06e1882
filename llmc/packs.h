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

// The same for kernels on load_wide() and store_wide(): 8 where T has 16 bits and all allows it.
template <class T>
inline uint32_t wide_pack_width(size_t row, std::initializer_list<uint64_t> addresses) {
    bool aligned = sizeof(T) == 2 && row % 8 == 0;
    for (uint64_t address : addresses) aligned = aligned && address % 16 == 0;
    return aligned ? 8 : pack_width<T>(row, addresses);
}
