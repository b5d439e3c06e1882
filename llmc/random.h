// Random numbers that equal PyTorch's CPU generator (and llm.c's): the Mersenne Twister MT19937, normal
// values by Box-Muller as torch.nn.init.normal_ draws them, and llm.c's shuffle of data shards.
#pragma once
#include <cstddef>
#include <cstdint>

struct Random {
    explicit Random(uint64_t seed = 42);  // as torch.manual_seed; the low 32 bits count

    uint32_t next32();
    uint64_t next64();        // two draws, the first one on top
    float uniform();          // [0, 1), 24 bits
    double uniform_double();  // [0, 1), 53 bits

    uint64_t seed;
    int left;       // values left in this block, plus one; 1 before the first draw
    uint32_t next;  // index of the next value in words
    uint32_t words[624];
    bool has_normal = false;  // PyTorch keeps the second value of a scalar Box-Muller pair for the next call
    double normal = 0;
};

// Fills outp (n) with N(mean, std) as torch.nn.init.normal_ does for a float32 tensor on the CPU; for n >= 16
// within about 1e-6 * std of it, since PyTorch's AVX2 path approximates log, sin and cos in its own way.
void normal_fill(float* outp, size_t n, float mean, float std, Random& random);

// Fisher-Yates from the last element down, as llm.c shuffles shards; values (n) are permuted in place.
void shuffle(int32_t* values, size_t n, Random& random);

// The generator in llm.c's layout (its struct mt19937_state as it lies in memory): u64 seed, i32 left, u32
// next, u32 words[624], u32 {0, 0x9908b0df}. The kept normal value is not part of it.
constexpr size_t random_state_bytes = 2520;
void save_random(const Random& random, uint8_t* outp);
Random load_random(const uint8_t* inp);  // Error if the bytes cannot be such a state
