// The compiled shaders, embedded in the library by cmake/embed.cmake: one entry per .comp file and storage
// type.
#pragma once
#include <cstdint>

struct EmbeddedShader {
    const char* name;      // file name without .comp, "_", storage type; null in the last entry
    const uint32_t* code;  // SPIR-V words
    const uint32_t* end;
};
extern const EmbeddedShader embedded_shaders[];

// Adds the shaders of a table made like embedded_shaders, for kernels of other libraries. Call it before a
// LaunchPad first launches one of them; not thread-safe. A table that is added again changes nothing.
void add_shaders(const EmbeddedShader* table);
