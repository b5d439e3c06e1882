// The types of values in files: llm.c's checkpoints (fp32 and bf16), safetensors and GGUF.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

enum class StoredType {
    fp32,
    bf16,
    fp16,
    q8_0,  // blocks of 32 values: an fp16 scale and 32 int8 (ggml's Q8_0, GGUF only)
};
constexpr size_t q8_0_block = 32;

// As --precision spells them, in this order.
std::vector<std::string> stored_type_names();
const char* stored_type_name(StoredType type);

// Bytes of so many values; for q8_0, a multiple of q8_0_block.
uint64_t stored_bytes(StoredType type, uint64_t count);

using WriteBytes = std::function<void(const void* bytes, size_t count)>;
// Writes values, rounded to nearest. Error, naming the tensor, if fp16 cannot hold one of them.
void write_values(const WriteBytes& write, StoredType type, const float* values, size_t count,
                  const std::string& tensor);
