// Encoder: the buckets; the CPU versions against plain sums in double; the CPU and GPU versions of every
// storage type against those in fp32.
#include "llmc/layers/encoder.h"

#include "shaders/args.h"
#include "tests/table_rows.h"

struct Shape {
    int B, T, C, V;
    int often;  // every so many tokens, token 2, like a frequent word; 0: never; -1: each token in its turn
};
static const Shape shapes[] = {{1, 1, 1, 3, 0},    {2, 3, 5, 4, 0},     {3, 7, 48, 11, 2},
                               {2, 33, 129, 9, 3}, {4, 300, 17, 50, 2}, {3, 25, 768, 1000, 4}};

// For the backward pass: more buckets than the grids of encoder_backward2 cover at once, 9000 short ones,
// then 300 long ones; buckets of LONG_BUCKET positions, and of one more.
static_assert(LONG_BUCKET == 32);
static const Shape bucket_shapes[] = {
    {1, 9000, 3, 9000, -1}, {50, 240, 4, 300, -1}, {2, 48, 4, 3, -1}, {1, 99, 4, 3, -1}};

// Inputs that are exact in Real, and the results of the CPU versions in fp32.
template <class Real = float>
struct Case {
    std::vector<int> inp, buckets;
    std::vector<float> wte, wpe, out, dout, dwte, dwpe, dwte_after, dwpe_after;
    explicit Case(const Shape& s)
        : inp(random_integers(size_t(s.B) * s.T, 1, s.V)),
          buckets(encoder_bucket_ints(s.B * s.T)),
          wte(random_values<Real>(size_t(s.V) * s.C, 2)),
          wpe(random_values<Real>(size_t(s.T) * s.C, 3)),
          out(nans(inp.size() * s.C)),
          dout(random_values<Real>(out.size(), 4)),
          dwte(random_values<Real>(wte.size(), 5)),
          dwpe(random_values<Real>(wpe.size(), 6)) {
        for (size_t i = 0; s.often > 0 && i < inp.size(); i += s.often) inp[i] = 2;
        for (size_t i = 0; s.often < 0 && i < inp.size(); i++) inp[i] = int(i) % s.V;
        encoder_forward<float>(nullptr, {.out = out.data(),
                                         .inp = inp.data(),
                                         .wte = wte.data(),
                                         .wpe = wpe.data(),
                                         .B = s.B,
                                         .T = s.T,
                                         .C = s.C});
        build_encoder_buckets(buckets.data(), inp.data(), int(inp.size()));
        dwte_after = dwte;
        dwpe_after = dwpe;
        encoder_backward<float>(nullptr, {.dwte = dwte_after.data(),
                                          .dwpe = dwpe_after.data(),
                                          .dout = dout.data(),
                                          .buckets = buckets.data(),
                                          .B = s.B,
                                          .T = s.T,
                                          .C = s.C});
    }
};

static std::string describe(const Shape& s) {
    return format_string("B %d T %d C %d V %d", s.B, s.T, s.C, s.V);
}

TEST(EncoderBuckets, KnownBatch) {
    const std::vector<int> inp = {7, 3, 7, 9, 3, 7, 0, 50256};
    std::vector<int> buckets(encoder_bucket_ints(8), 12345);
    build_encoder_buckets(buckets.data(), inp.data(), 8);
    EXPECT_EQ(buckets,
              (std::vector<int>{5, 7, 0, 3, 3, 0, 5, 9, 6, 50256, 7, -1, 8, -1, -1, -1, -1, -1, -1,  //
                                0, 2, 5, 1, 4, 6, 3, 7}));
}

TEST(EncoderBuckets, OneTokenAndDistinctTokens) {
    for (int distinct : {1, 100}) {
        std::vector<int> inp(100), buckets(encoder_bucket_ints(100));
        for (int i = 0; i < 100; i++) inp[i] = (99 - i) % distinct;
        build_encoder_buckets(buckets.data(), inp.data(), 100);
        ASSERT_EQ(buckets[0], distinct);
        EXPECT_EQ(buckets[1 + 2 * distinct], -1);
        EXPECT_EQ(buckets[2 + 2 * distinct], 100);
        for (int b = 0; b < distinct; b++)
            for (int j = buckets[2 + 2 * b]; j < buckets[4 + 2 * b]; j++)
                EXPECT_EQ(inp[buckets[203 + j]], buckets[1 + 2 * b]);
    }
}

TEST(EncoderForward, CpuAdds) {
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case<> c(s);
        std::vector<float> want(c.out.size());
        for (size_t i = 0; i < want.size(); i++) {
            const size_t row = i / s.C, column = i % s.C;
            want[i] = c.wte[size_t(c.inp[row]) * s.C + column] + c.wpe[row % s.T * s.C + column];
        }
        expect_close("out", c.out, want, 1e-7);
    }
}

TEST(EncoderBackward, CpuMatchesPlainSums) {
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case<> c(s);
        std::vector<double> dwte(c.dwte.begin(), c.dwte.end()), dwpe(c.dwpe.begin(), c.dwpe.end());
        for (size_t i = 0; i < c.dout.size(); i++) {
            const size_t row = i / s.C, column = i % s.C;
            dwte[size_t(c.inp[row]) * s.C + column] += c.dout[i];
            dwpe[row % s.T * s.C + column] += c.dout[i];
        }
        expect_close("dwte", c.dwte_after, {dwte.begin(), dwte.end()}, 1e-6);
        expect_close("dwpe", c.dwpe_after, {dwpe.begin(), dwpe.end()}, 1e-6);
    }
}

template <class Real>
struct Encoder : testing::Test {};
TYPED_TEST_SUITE(Encoder, RealTypes);

// Equality, since the fp32 result is rounded once.
TYPED_TEST(Encoder, ForwardMatchesFloat) {
    using Real = TypeParam;
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case<Real> c(s);
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<int> inp(pad, c.inp);
            DeviceArray<Real> wte(pad, c.wte), wpe(pad, c.wpe), out(pad, c.out.size());
            launch({.out = out, .inp = inp, .wte = wte, .wpe = wpe, .B = s.B, .T = s.T, .C = s.C});
            EXPECT_EQ(out.values(), rounded<Real>(c.out));
        };
        for_cpu_and_each_version<Real>(encoder_forward<Real>,
                                       with_baselines(encoder_forward_versions<Real>()), check);
    }
}

TYPED_TEST(Encoder, BackwardMatchesFloat) {
    using Real = TypeParam;
    std::vector<Shape> all(std::begin(shapes), std::end(shapes));
    all.insert(all.end(), std::begin(bucket_shapes), std::end(bucket_shapes));
    for (const Shape& s : all) {
        SCOPED_TRACE(describe(s));
        const Case<Real> c(s);
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<int> buckets(pad, c.buckets);
            DeviceArray<Real> dout(pad, c.dout), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
            launch(
                {.dwte = dwte, .dwpe = dwpe, .dout = dout, .buckets = buckets, .B = s.B, .T = s.T, .C = s.C});
            expect_rounded<Real>(pad, "dwte", dwte.values(), c.dwte_after, 2e-6);
            expect_rounded<Real>(pad, "dwpe", dwpe.values(), c.dwpe_after, 2e-6);
        };
        for_cpu_and_each_version<Real>(encoder_backward<Real>,
                                       with_baselines(encoder_backward_versions<Real>()), check);
    }
}

// Addresses that rule out accesses of four elements (1 element past aligned memory) or of eight (4 elements).
TYPED_TEST(Encoder, UnalignedAddresses) {
    for (const char* layer : {"encoder_forward", "encoder_backward"})
        for (const size_t margin : {1, 4})
            check_rows<TypeParam>(layer, {.B = 2, .T = 40, .C = 16, .NH = 1, .V = 5, .Vp = 8}, margin);
}
