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
