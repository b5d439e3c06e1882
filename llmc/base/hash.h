// A hash of 32 bits: the source of random bits that CPU and GPU compute alike, in any order.
#pragma once
#include <cstdint>

// The finalizer of MurmurHash3: flipping one bit of x flips half of the result's bits on average.
// shaders/hash.glsl has the same function.
inline uint32_t hash(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}
