#include "llmc/files/stored_type.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"
#include "llmc/base/real.h"

static_assert(int(StoredType::fp32) == 0 && int(StoredType::q8_0) == 3, "the order of stored_type_names()");

static const char* const names[] = {"fp32", "bf16", "fp16", "q8_0"};

std::vector<std::string> stored_type_names() { return {std::begin(names), std::end(names)}; }

const char* stored_type_name(StoredType type) { return names[int(type)]; }

struct Q8Block {
    fp16 scale;
    int8_t values[q8_0_block];
};
static_assert(sizeof(Q8Block) == 34);

uint64_t stored_bytes(StoredType type, uint64_t count) {
    if (type == StoredType::q8_0) return count / q8_0_block * sizeof(Q8Block);
    return count * (type == StoredType::fp32 ? 4 : 2);
}

static fp16 checked_fp16(float value, const std::string& tensor) {
    const fp16 rounded(value);
    if (!std::isfinite(float(rounded)))
        fail("tensor %s has the value %g, and fp16 ends at 65504: choose --precision bf16 or fp32",
             tensor.c_str(), double(value));
    return rounded;
}

static Q8Block quantize(const float* values, const std::string& tensor) {
    float largest = 0;
    for (size_t i = 0; i < q8_0_block; i++) largest = std::max(largest, std::abs(values[i]));
    const float scale = largest / 127;
    Q8Block block = {checked_fp16(scale, tensor), {}};
    for (size_t i = 0; i < q8_0_block; i++)
        block.values[i] = int8_t(scale > 0 ? std::round(values[i] / scale) : 0);
    return block;
}

void write_values(const WriteBytes& write, StoredType type, const float* values, size_t count,
                  const std::string& tensor) {
    if (type == StoredType::fp32) return write(values, count * sizeof(float));
    if (type == StoredType::q8_0) {
        std::vector<Q8Block> blocks;
        blocks.reserve(count / q8_0_block);
        for (size_t i = 0; i < count; i += q8_0_block) blocks.push_back(quantize(values + i, tensor));
        return write(blocks.data(), blocks.size() * sizeof(Q8Block));
    }
    std::vector<uint16_t> halves(count);
    if (type == StoredType::bf16)
        std::transform(values, values + count, halves.begin(), [](float v) { return bf16(v).bits; });
    else
        std::transform(values, values + count, halves.begin(),
                       [&](float v) { return checked_fp16(v, tensor).bits; });
    write(halves.data(), halves.size() * sizeof(uint16_t));
}
