// Compares the generator with values from PyTorch 1.13: torch.manual_seed(42), and
// ATEN_CPU_CAPABILITY=default to exclude its AVX2 approximations, whose normal values differ by up to 2e-6.
#include "llmc/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "llmc/base/error.h"

static std::vector<float> normals(size_t n, float mean, float std, Random& random) {
    std::vector<float> values(n, NAN);
    normal_fill(values.data(), n, mean, std, random);
    return values;
}

// libm differs between platforms by less than 1e-6 for values of this magnitude.
static void expect_close(const std::vector<float>& values, const std::vector<float>& expected) {
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); i++) EXPECT_NEAR(values[i], expected[i], 1e-6) << "value " << i;
}

TEST(Random, Integers) {
    Random random(42);  // the first values of MT19937 with seed 42; numpy agrees
    for (uint32_t expected : {1608637542u, 3421126067u, 4083286876u, 787846414u})
        EXPECT_EQ(random.next32(), expected);
    Random pairs(42);
    EXPECT_EQ(pairs.next64(), uint64_t(1608637542) << 32 | 3421126067);
}

TEST(Random, Uniforms) {
    Random random(42);
    for (float expected : {0.882269263f, 0.915003955f, 0.38286376f, 0.959305644f})
        EXPECT_EQ(random.uniform(), expected);
    Random doubles(42);
    EXPECT_EQ(doubles.uniform_double(), 0.05815448596142969);
    EXPECT_EQ(doubles.uniform_double(), 0.06291016742457756);
}

TEST(Random, ManyBlocksAndLongSeeds) {
    Random random(42);
    for (int i = 0; i < 2000; i++) random.next32();
    EXPECT_EQ(random.uniform(), 0.394030452f);
    Random seeded(0xdeadbeef12345678);
    EXPECT_EQ(seeded.uniform(), 0.592090786f);
}

TEST(Random, NormalBelow16) {
    Random random(42);
    expect_close(normals(5, 0.5f, 2.0f, random),
                 {1.17338073f, 0.757618785f, 0.968924701f, 0.96066606f, -1.74571276f});
    Random cached(42);  // the next call starts with the second value of the second pair
    expect_close(normals(3, 0, 1, cached), {0.336690366f, 0.128809407f, 0.234462366f});
    expect_close(normals(3, 0, 1, cached), {0.23033303f, -1.12285638f, -0.186328292f});
}

TEST(Random, NormalOneBlock) {
    Random random(42);
    expect_close(normals(16, 0.5f, 2.0f, random),
                 {4.35383034f, 3.47456837f, 2.30143452f, -3.71104288f, 1.85683692f, -1.96908998f, 0.41386503f,
                  -2.7093339f, -1.00427234f, 3.79744577f, -0.28495729f, -2.30721331f, -0.955762506f,
                  -0.618859768f, -1.03767788f, 2.0248909f});
    EXPECT_EQ(random.uniform(), 0.885442913f);
}

TEST(Random, NormalRedrawsTail) {
    Random random(42);
    expect_close(normals(17, 0.5f, 2.0f, random),
                 {4.35383034f, 0.180805355f, -0.494794965f, 1.37917852f, -1.01626229f, 2.65663528f,
                  2.10160112f, 3.8612411f, 1.21171951f, 3.09284568f, 1.72093296f, 3.16947556f, 0.0367513597f,
                  0.583518982f, -0.00315058231f, 2.21971703f, -0.119453847f});
    EXPECT_EQ(random.uniform(), 0.583209574f);
    Random longer(42);
    std::vector<float> values = normals(40, 0.5f, 2.0f, longer);
    expect_close({values[23], values[24], values[32], values[39]},
                 {3.8612411f, 0.569823325f, -2.33611989f, -2.07243109f});
    EXPECT_EQ(longer.uniform(), 0.658130586f);
}

TEST(Random, ShuffleMatchesLlmC) {
    Random random(42);  // expected values: the same swaps in Python with numpy's MT19937
    std::vector<int32_t> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    shuffle(values.data(), values.size(), random);
    EXPECT_EQ(values, (std::vector<int32_t>{1, 3, 9, 7, 6, 0, 8, 4, 5, 2}));
    shuffle(values.data(), values.size(), random);
    EXPECT_EQ(values, (std::vector<int32_t>{2, 5, 9, 0, 3, 1, 4, 8, 6, 7}));
    shuffle(values.data(), 1, random);
    shuffle(nullptr, 0, random);
}

TEST(Random, StateRoundTrip) {
    for (int draws : {0, 1, 623, 624, 625, 3000}) {
        Random random(7);
        for (int i = 0; i < draws; i++) random.next32();
        uint8_t bytes[random_state_bytes], again[random_state_bytes];
        save_random(random, bytes);
        Random loaded = load_random(bytes);
        save_random(loaded, again);
        EXPECT_EQ(memcmp(bytes, again, sizeof bytes), 0);
        for (int i = 0; i < 1000; i++)
            ASSERT_EQ(random.next32(), loaded.next32()) << draws << " draws, then " << i;
    }
}

TEST(Random, DamagedStateIsRefused) {
    uint8_t good[random_state_bytes];
    save_random(Random(1), good);
    struct Damage {
        size_t at;
        uint8_t value;
    };
    for (Damage damage : {Damage{8, 0}, Damage{8, 200}, Damage{11, 0x80}, Damage{12, 7}, Damage{2516, 0}}) {
        uint8_t bytes[random_state_bytes];
        memcpy(bytes, good, sizeof good);
        bytes[damage.at] = damage.value;
        EXPECT_THROW(load_random(bytes), Error) << "byte " << damage.at;
    }
}
