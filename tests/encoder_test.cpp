// Encoder: the buckets, the CPU versions against plain sums in double, every GPU version against the CPU
// version.
#include "llmc/encoder.h"

#include "tests/layer_test.h"

struct Shape {
    int B, T, C, V;
    int often;  // one in so many tokens is number 2, as frequent words are; 0: none
};
static const Shape shapes[] = {{1, 1, 1, 3, 0},    {2, 3, 5, 4, 0},     {3, 7, 48, 11, 2},
                               {2, 33, 129, 9, 3}, {4, 300, 17, 50, 2}, {3, 25, 768, 1000, 4}};

struct Case {
    std::vector<int> inp, buckets;
    std::vector<float> wte, wpe, out, dout, dwte, dwpe, dwte_after, dwpe_after;
    explicit Case(const Shape& s)
        : inp(random_integers(size_t(s.B) * s.T, 1, s.V)),
          buckets(encoder_bucket_ints(s.B * s.T)),
          wte(random_values(size_t(s.V) * s.C, 2)),
          wpe(random_values(size_t(s.T) * s.C, 3)),
          out(nans(inp.size() * s.C)),
          dout(random_values(out.size(), 4)),
          dwte(random_values(wte.size(), 5)),
          dwpe(random_values(wpe.size(), 6)),
          dwte_after(dwte),
          dwpe_after(dwpe) {
        for (size_t i = 0; s.often && i < inp.size(); i += s.often) inp[i] = 2;
        build_encoder_buckets(buckets.data(), inp.data(), int(inp.size()));
        encoder_forward<float>(nullptr, out.data(), inp.data(), wte.data(), wpe.data(), s.B, s.T, s.C);
        encoder_backward<float>(nullptr, dwte_after.data(), dwpe_after.data(), dout.data(), buckets.data(),
                                s.B, s.T, s.C);
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

TEST(EncoderBuckets, AllAlikeAndAllDifferent) {
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
        const Case c(s);
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
        const Case c(s);
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

TEST(EncoderForward, GpuMatchesCpu) {
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case c(s);
        for_each_version(encoder_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> inp(pad, c.inp);
            DeviceArray<float> wte(pad, c.wte), wpe(pad, c.wpe), out(pad, c.out.size());
            version.launch(pad, out, inp, wte, wpe, s.B, s.T, s.C, block);
            expect_close("out", out.values(), c.out, 1e-7);
        });
    }
}

TEST(EncoderBackward, GpuMatchesCpu) {
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case c(s);
        for_each_version(encoder_backward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> buckets(pad, c.buckets);
            DeviceArray<float> dout(pad, c.dout), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
            version.launch(pad, dwte, dwpe, dout, buckets, s.B, s.T, s.C, block);
            expect_close("dwte", dwte.values(), c.dwte_after, 2e-6);
            expect_close("dwpe", dwpe.values(), c.dwpe_after, 2e-6);
        });
    }
}

// More buckets than the grids of encoder_backward2 hold at once: 9000 short ones, then 300 long ones.
TEST(EncoderBackward, GpuManyBuckets) {
    for (const Shape& s : {Shape{1, 9000, 3, 9000, 0}, {50, 240, 4, 300, 0}}) {
        SCOPED_TRACE(describe(s));
        Case c(s);
        for (size_t i = 0; i < c.inp.size(); i++) c.inp[i] = int(i) % s.V;
        build_encoder_buckets(c.buckets.data(), c.inp.data(), int(c.inp.size()));
        c.dwte_after = c.dwte;
        encoder_backward_cpu(c.dwte_after.data(), c.dwpe.data(), c.dout.data(), c.buckets.data(), s.B, s.T,
                             s.C);
        for_each_version(encoder_backward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> buckets(pad, c.buckets);
            DeviceArray<float> dout(pad, c.dout), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
            version.launch(pad, dwte, dwpe, dout, buckets, s.B, s.T, s.C, block);
            expect_close("dwte", dwte.values(), c.dwte_after, 2e-6);
        });
    }
}

// Addresses that rule out 16-byte accesses although C would allow them.
TEST(Encoder, UnalignedAddresses) {
    const Shape s = {2, 40, 12, 5, 2};
    const Case c(s);
    std::vector<float> shifted(c.dout);
    shifted.insert(shifted.begin(), 77.0f);
    for_each_version(encoder_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<int> inp(pad, c.inp);
        DeviceArray<float> wte(pad, c.wte), wpe(pad, c.wpe), out(pad, c.out.size() + 1);
        version.launch(pad, out + 1, inp, wte, wpe, s.B, s.T, s.C, block);
        const std::vector<float> got = out.values();
        expect_close("out", {got.begin() + 1, got.end()}, c.out, 1e-7);
    });
    for_each_version(encoder_backward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<int> buckets(pad, c.buckets);
        DeviceArray<float> dout(pad, shifted), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
        version.launch(pad, dwte, dwpe, dout + 1, buckets, s.B, s.T, s.C, block);
        expect_close("dwte", dwte.values(), c.dwte_after, 2e-6);
        expect_close("dwpe", dwpe.values(), c.dwpe_after, 2e-6);
    });
}

TEST(Encoder, TrainingFunctions) {
    const Shape s = {2, 40, 48, 5, 2};
    const Case c(s);
    for (const auto& pad : test_pads()) {
        DeviceArray<int> inp(*pad, c.inp), buckets(*pad, c.buckets);
        DeviceArray<float> wte(*pad, c.wte), wpe(*pad, c.wpe), out(*pad, c.out.size()), dout(*pad, c.dout);
        DeviceArray<float> dwte(*pad, c.dwte), dwpe(*pad, c.dwpe);
        encoder_forward<float>(pad.get(), out, inp, wte, wpe, s.B, s.T, s.C);
        encoder_backward<float>(pad.get(), dwte, dwpe, dout, buckets, s.B, s.T, s.C);
        expect_close("out", out.values(), c.out, 1e-7);
        expect_close("dwte", dwte.values(), c.dwte_after, 2e-6);
        expect_close("dwpe", dwpe.values(), c.dwpe_after, 2e-6);
    }
}
