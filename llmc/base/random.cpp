// MT19937 (Matsumoto and Nishimura 1998) with PyTorch's seeding and conversions to float, and Box-Muller in
// the block order of PyTorch's CPU kernel.
#include "llmc/base/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "llmc/base/error.h"

static constexpr uint32_t num_words = 624, middle = 397, twist[2] = {0, 0x9908b0df};

Random::Random(uint64_t seed_value) : seed(seed_value), left(1), next(0) {
    words[0] = uint32_t(seed_value);
    for (uint32_t i = 1; i < num_words; i++)
        words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
}

static void next_block(uint32_t* words) {
    constexpr int last = num_words - 1, wrap = num_words - middle;
    const auto mix = [&](int i, int successor, int other) {
        const uint32_t mixed = (words[i] & 0x80000000u) | (words[successor] & 0x7fffffffu);
        words[i] = words[other] ^ (mixed >> 1) ^ (mixed & 1 ? twist[1] : 0);
    };
    for (int i = 0; i < wrap; i++) mix(i, i + 1, i + int(middle));
    for (int i = wrap; i < last; i++) mix(i, i + 1, i - wrap);
    mix(last, 0, middle - 1);
}

static uint32_t temper(uint32_t value) {
    value ^= value >> 11;
    value ^= (value << 7) & 0x9d2c5680u;
    value ^= (value << 15) & 0xefc60000u;
    return value ^ (value >> 18);
}

static float to_uniform(uint32_t value) { return float(value & 0xffffff) * 0x1p-24f; }

uint32_t Random::next32() {
    if (--left <= 0) {
        next_block(words);
        left = num_words;
        next = 0;
    }
    return temper(words[next++]);
}

uint64_t Random::next64() {
    uint64_t high = next32();
    return high << 32 | next32();
}

float Random::uniform() { return to_uniform(next32()); }

double Random::uniform_double() { return double(next64() & ((uint64_t(1) << 53) - 1)) * 0x1p-53; }

// Values 0 to 7 give the radii of eight pairs, values 8 to 15 the angles. An angle is rounded to float only
// after the multiplication.
static void box_muller_16(float* values, float mean, float std) {
    for (int i = 0; i < 8; i++) {
        // 1 - values[i] lies in (0, 1]: the logarithm is finite
        float radius = std::sqrt(-2.0f * std::log(1.0f - values[i]));
        float angle = float(2.0 * std::numbers::pi * values[i + 8]);
        values[i] = radius * std::cos(angle) * std + mean;
        values[i + 8] = radius * std::sin(angle) * std + mean;
    }
}

static double scalar_normal(Random& random) {
    if (random.has_normal) {
        random.has_normal = false;
        return random.normal;
    }
    double angle = 2.0 * std::numbers::pi * random.uniform_double();
    double radius = std::sqrt(-2.0 * std::log1p(-random.uniform_double()));
    random.normal = radius * std::sin(angle);
    random.has_normal = true;
    return radius * std::cos(angle);
}

// Equals uniform() for each element, but processes a block of words at a time, which vectorizes.
static void uniform_fill(float* outp, size_t n, Random& random) {
    while (n > 0) {
        if (random.left == 1) {
            next_block(random.words);
            random.left = num_words + 1;
            random.next = 0;
        }
        const size_t count = std::min(n, size_t(random.left - 1));
        const uint32_t* words = random.words + random.next;
        for (size_t i = 0; i < count; i++) outp[i] = to_uniform(temper(words[i]));
        random.left -= int(count);
        random.next += uint32_t(count);
        outp += count;
        n -= count;
    }
}

void normal_fill(float* outp, size_t n, float mean, float std, Random& random) {
    if (n < 16) {
        for (size_t i = 0; i < n; i++) outp[i] = float(scalar_normal(random) * std + mean);
        return;
    }
    uniform_fill(outp, n, random);
#pragma omp parallel for
    for (size_t block = 0; block < n / 16; block++) box_muller_16(outp + 16 * block, mean, std);
    if (n % 16 != 0) {  // draws the last 16 values again, including some of the last whole block
        for (size_t i = n - 16; i < n; i++) outp[i] = random.uniform();
        box_muller_16(outp + n - 16, mean, std);
    }
}

void shuffle(int32_t* values, size_t n, Random& random) {
    for (size_t i = n; i > 1; i--) std::swap(values[i - 1], values[random.next32() % i]);
}

struct RandomState {
    uint64_t seed;
    int32_t left;
    uint32_t next;
    uint32_t words[num_words];
    uint32_t twist[2];
};
static_assert(sizeof(RandomState) == random_state_bytes);

void save_random(const Random& random, uint8_t* outp) {
    RandomState state = {random.seed, random.left, random.next, {}, {twist[0], twist[1]}};
    memcpy(state.words, random.words, sizeof state.words);
    memcpy(outp, &state, sizeof state);
}

Random load_random(const uint8_t* inp) {
    RandomState state;
    memcpy(&state, inp, sizeof state);
    bool fresh = state.left == 1 && state.next == 0;
    bool running =
        state.left >= 1 && state.left <= int(num_words) && state.next == num_words + 1 - state.left;
    if (!(fresh || running) || memcmp(state.twist, twist, sizeof twist) != 0)
        fail("the random generator's state is damaged (left %d, next %u)", state.left, state.next);
    Random random(state.seed);
    random.left = state.left;
    random.next = state.next;
    memcpy(random.words, state.words, sizeof state.words);
    return random;
}
