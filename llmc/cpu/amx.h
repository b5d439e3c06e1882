// Configures the AMX tile registers (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
// chapter 18). Call these only if the process may use AMX, which means that simd_level() is SIMD_AMX.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// Operand of LDTILECFG.
struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Gives all eight registers their largest shape, 16 rows of 64 bytes. This is a global because g++ 12 assumes
// an eight-byte operand: it would not initialize the rest of a local variable.
alignas(64) inline const TileConfig full_tiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// tileloadd and tilestored of a tile register, with a stride in bytes. The intrinsics of g++ 12 lose half of
// the stride on Windows.
template <int tile>
__attribute__((target("amx-tile"))) inline void load_tile(const void* from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile));
}
template <int tile>
__attribute__((target("amx-tile"))) inline void store_tile(void* to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}

// A thread calls these before and after it uses the registers. While they are configured, every context
// switch saves them.
__attribute__((target("amx-tile"))) inline void configure_tiles() { _tile_loadconfig(&full_tiles); }
__attribute__((target("amx-tile"))) inline void release_tiles() { _tile_release(); }
#endif
