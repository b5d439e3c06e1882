// Tile registers of AMX (Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 1,
// chapter 18), for a process that may use them: simd_level() is SIMD_AMX.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

// Operand of ldtilecfg.
struct TileShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// All eight registers are 16 rows of 64 bytes. (In memory, not on the stack: g++ 12 takes the operand to be
// eight bytes, and would not write the others.)
alignas(64) inline const TileShapes whole_tiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// Around a thread's use of the registers. While they are in use each switch to another thread saves them.
__attribute__((target("amx-tile"))) inline void begin_tiles() { _tile_loadconfig(&whole_tiles); }
__attribute__((target("amx-tile"))) inline void end_tiles() { _tile_release(); }
#endif
