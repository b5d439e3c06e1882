// The random numbers of PyTorch's CPU generator and of llm.c: the Mersenne Twister MT19937, normal
// values by Box-Muller as in torch.nn.init.normal_, and llm.c's shuffle of data shards.
#pragma once
#include <cstddef>
#include <cstdint>

struct Random {
    explicit Random(uint64_t seed = 42);  // as torch.manual_seed; only the low 32 bits matter

    uint32_t next32();
    uint64_t next64();        // two draws; the first gives the upper half
    float uniform();          // [0, 1), 24 bits
    double uniform_double();  // [0, 1), 53 bits

    uint64_t seed;
    int left;       // remaining values in this block, plus one; 1 before the first draw
    uint32_t next;  // index of the next value in words
    uint32_t words[624];
    // As in PyTorch, the second value of a scalar Box-Muller pair is kept for the next call.
    bool has_normal = false;
    double normal = 0;
};

// Fills outp (n) with N(mean, std) as torch.nn.init.normal_ does for a float32 tensor on the CPU. For n >= 16
// values may differ by about 1e-6 * std, because PyTorch's AVX2 path approximates log, sin and cos.
void normal_fill(float* outp, size_t n, float mean, float std, Random& random);

// Permutes values (n) in place by Fisher-Yates from the last element down, as llm.c shuffles shards.
void shuffle(int32_t* values, size_t n, Random& random);

// The generator's state in llm.c's layout, the memory image of its struct mt19937_state: u64 seed, i32 left,
// u32 next, u32 words[624], u32 {0, 0x9908b0df}. It does not include the kept normal value.
constexpr size_t random_state_bytes = 2520;
void save_random(const Random& random, uint8_t* outp);
Random load_random(const uint8_t* inp);  // Error if the bytes are not a valid state
