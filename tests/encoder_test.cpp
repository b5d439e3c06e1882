// Encoder: the buckets, the CPU versions against plain sums in double, every
// type's CPU and GPU versions against those in fp32, the one that runs ahead of AdamW against the one after.
#include "llmc/encoder.h"

#include "tests/layer_test.h"

struct Shape {
    int B, T, C, V;
    int often;  // one in so many tokens is number 2, as frequent words are; 0: none
};
static const Shape shapes[] = {{1, 1, 1, 3, 0},    {2, 3, 5, 4, 0},     {3, 7, 48, 11, 2},
                               {2, 33, 129, 9, 3}, {4, 300, 17, 50, 2}, {3, 25, 768, 1000, 4}};

// Numbers that T represents, and what the CPU versions in fp32 make of them.
template <class T = float>
struct Case {
    std::vector<int> inp, buckets;
    std::vector<float> wte, wpe, out, dout, dwte, dwpe, dwte_after, dwpe_after;
    explicit Case(const Shape& s)
        : inp(random_integers(size_t(s.B) * s.T, 1, s.V)),
          buckets(encoder_bucket_ints(s.B * s.T)),
          wte(random_values<T>(size_t(s.V) * s.C, 2)),
          wpe(random_values<T>(size_t(s.T) * s.C, 3)),
          out(nans(inp.size() * s.C)),
          dout(random_values<T>(out.size(), 4)),
          dwte(random_values<T>(wte.size(), 5)),
          dwpe(random_values<T>(wpe.size(), 6)) {
        for (size_t i = 0; s.often && i < inp.size(); i += s.often) inp[i] = 2;
        encoder_forward<float>(nullptr, out.data(), inp.data(), wte.data(), wpe.data(), s.B, s.T, s.C);
        run_backward(s);
    }
    void run_backward(const Shape& s) {
        build_encoder_buckets(buckets.data(), inp.data(), int(inp.size()));
        dwte_after = dwte;
        dwpe_after = dwpe;
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

template <class T>
struct Encoder : testing::Test {};
TYPED_TEST_SUITE(Encoder, RealTypes);

// One rounding on either side: the sums are equal.
TYPED_TEST(Encoder, ForwardMatchesFloat) {
    using T = TypeParam;
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case<T> c(s);
        std::vector<T> on_cpu(c.out.size(), T(NAN));
        encoder_forward_cpu<T>(on_cpu.data(), c.inp.data(), from_floats<T>(c.wte).data(),
                               from_floats<T>(c.wpe).data(), s.B, s.T, s.C);
        EXPECT_EQ(to_floats(on_cpu), rounded<T>(c.out));
        for_each_version<T>(encoder_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> inp(pad, c.inp);
            DeviceArray<T> wte(pad, c.wte), wpe(pad, c.wpe), out(pad, c.out.size());
            version.launch(pad, out, inp, wte, wpe, s.B, s.T, s.C, block);
            EXPECT_EQ(out.values(), rounded<T>(c.out));
        });
    }
}

// A token embedding whose update is due, on a device; the arrays begin `shift` elements past aligned memory.
template <class T>
struct DueCase {
    LaunchPad& pad;
    const Shape& s;
    const Case<T>& c;
    size_t n, shift;
    bool with_master;
    DeviceArray<int> inp;
    DeviceArray<T> wte, wpe, grads;
    DeviceArray<float> master, m, v;
    AdamWStep* step;
    DueCase(LaunchPad& p, const Shape& shape, const Case<T>& values, bool with_master_, size_t shift_ = 0)
        : pad(p),
          s(shape),
          c(values),
          n(c.wte.size()),
          shift(shift_),
          with_master(with_master_),
          inp(p, c.inp),
          wte(p, random_values<T>(n + shift, 2)),
          wpe(p, c.wpe),
          grads(p, random_values<T>(n + shift, 7)),
          master(p, random_values(n + shift, 8)),
          m(p, random_values(n + shift, 9)),
          v(p, squares(random_values(n + shift, 10))),
          step(p.allocate<AdamWStep>(1, "step")) {
        const AdamWStep now = adamw_step(0.1f, 0.9f, 0.95f, 1e-8f, 3);
        pad.upload(step, &now, sizeof now);
    }
    ~DueCase() { pad.free(step); }
    static std::vector<float> squares(std::vector<float> values) {
        for (float& x : values) x *= x;
        return values;
    }
    float* master_or_null() const { return with_master ? master + shift : nullptr; }

    template <class Version>
    std::vector<float> encode_ahead(const Version& version, int block, const float* norm) const {
        DeviceArray<T> out(pad, c.out.size());
        const AdamWDue<T> due = {master_or_null(), m + shift, v + shift, grads + shift, step, 0.1f, norm};
        version.launch(pad, out, inp, wte + shift, wpe, due, s.B, s.T, s.C, block);
        return out.values();
    }
    std::vector<float> encode() const {
        DeviceArray<T> out(pad, c.out.size());
        encoder_forward<T>(&pad, out, inp, wte + shift, wpe, s.B, s.T, s.C);
        return out.values();
    }
    void update(const float* norm) const {
        adamw_update<T>(&pad, wte + shift, master_or_null(), m + shift, v + shift, grads + shift, n, step,
                        0.1f, norm);
    }
    std::vector<std::vector<float>> tensors() const {
        return {wte.values(), grads.values(), master.values(), m.values(), v.values()};
    }
};

// The encoding ahead of the update has the bits of the one after it, and the first writes nothing else.
// changes: whether the update is one, and not skipped.
template <class T, class Version>
static void check_ahead(const DueCase<T>& due, const Version& version, int block, const float* norm,
                        bool changes) {
    const auto before = due.tensors();
    const std::vector<float> old = due.encode(), ahead = due.encode_ahead(version, block, norm);
    EXPECT_TRUE(due.tensors() == before) << "more than the encoding was written";
    due.update(norm);
    EXPECT_EQ(ahead, due.encode());
    EXPECT_EQ(ahead != old, changes);
}

TYPED_TEST(Encoder, ForwardAheadOfAdamWIsForwardAfterIt) {
    using T = TypeParam;
    for (Shape s : shapes) {
        s.V = std::min(s.V, 50);
        SCOPED_TRACE(describe(s));
        const Case<T> c(s);
        for_each_version<T>(encoder_forward_updated_versions<T>(),
                            [&](LaunchPad& pad, auto& version, int block) {
                                DeviceArray<float> norm(pad, std::vector<float>{4.0f, 0.25f});
                                for (bool with_master : {false, true}) {
                                    if (with_master && std::is_same_v<T, float>) continue;
                                    check_ahead<T>({pad, s, c, with_master}, version, block, nullptr, true);
                                    check_ahead<T>({pad, s, c, with_master}, version, block, norm, true);
                                }
                            });
    }
}

TYPED_TEST(Encoder, ForwardAheadOfASkippedAdamW) {
    using T = TypeParam;
    const Shape s = {2, 9, 48, 5, 2};
    const Case<T> c(s);
    const float inf = std::numeric_limits<float>::infinity();
    for_each_version<T>(encoder_forward_updated_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        for (const auto& [norm, scale] : {std::pair{1.0f, 0.0f}, {NAN, 0.5f}, {inf, 0.5f}}) {
            DeviceArray<float> values(pad, std::vector<float>{norm, scale});
            for (bool with_master : {false, true})
                if (!with_master || !std::is_same_v<T, float>)
                    check_ahead<T>({pad, s, c, with_master}, version, block, values, false);
        }
    });
}

// Addresses that rule out wide accesses, and rows far enough in wte for numbers of elements above 2^16.
TYPED_TEST(Encoder, ForwardAheadOfAdamWUnaligned) {
    using T = TypeParam;
    for (const Shape& s : {Shape{2, 40, 16, 5, 2}, {2, 40, 48, 3000, 0}}) {
        const Case<T> c(s);
        for_each_version<T>(encoder_forward_updated_versions<T>(), [&](LaunchPad& pad, auto& version,
                                                                       int block) {
            for (size_t shift : {0, 1, 4})
                check_ahead<T>({pad, s, c, !std::is_same_v<T, float>, shift}, version, block, nullptr, true);
        });
    }
}

TYPED_TEST(Encoder, BackwardMatchesFloat) {
    using T = TypeParam;
    for (const Shape& s : shapes) {
        SCOPED_TRACE(describe(s));
        const Case<T> c(s);
        std::vector<T> dwte_cpu = from_floats<T>(c.dwte), dwpe_cpu = from_floats<T>(c.dwpe);
        encoder_backward_cpu<T>(dwte_cpu.data(), dwpe_cpu.data(), from_floats<T>(c.dout).data(),
                                c.buckets.data(), s.B, s.T, s.C);
        EXPECT_EQ(to_floats(dwte_cpu), rounded<T>(c.dwte_after));
        EXPECT_EQ(to_floats(dwpe_cpu), rounded<T>(c.dwpe_after));
        for_each_version<T>(encoder_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> buckets(pad, c.buckets);
            DeviceArray<T> dout(pad, c.dout), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
            version.launch(pad, dwte, dwpe, dout, buckets, s.B, s.T, s.C, block);
            expect_close("dwte", dwte.values(), c.dwte_after, tolerance<T>(2e-6));
            expect_close("dwpe", dwpe.values(), c.dwpe_after, tolerance<T>(2e-6));
        });
    }
}

// More buckets than the grids of encoder_backward2 hold at once: 9000 short ones, then 300 long ones.
TYPED_TEST(Encoder, BackwardManyBuckets) {
    using T = TypeParam;
    for (const Shape& s : {Shape{1, 9000, 3, 9000, 0}, {50, 240, 4, 300, 0}}) {
        SCOPED_TRACE(describe(s));
        Case<T> c(s);
        for (size_t i = 0; i < c.inp.size(); i++) c.inp[i] = int(i) % s.V;
        c.run_backward(s);
        for_each_version<T>(encoder_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> buckets(pad, c.buckets);
            DeviceArray<T> dout(pad, c.dout), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
            version.launch(pad, dwte, dwpe, dout, buckets, s.B, s.T, s.C, block);
            expect_close("dwte", dwte.values(), c.dwte_after, tolerance<T>(2e-6));
        });
    }
}

// Addresses that rule out accesses of 16 bytes, and (4 elements past aligned memory) those of eight elements.
TYPED_TEST(Encoder, UnalignedAddresses) {
    using T = TypeParam;
    const Shape s = {2, 40, 16, 5, 2};
    const Case<T> c(s);
    for (size_t shift : {1, 4}) {
        std::vector<float> shifted(shift, 77.0f);
        shifted.insert(shifted.end(), c.dout.begin(), c.dout.end());
        for_each_version<T>(encoder_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> inp(pad, c.inp);
            DeviceArray<T> wte(pad, c.wte), wpe(pad, c.wpe), out(pad, c.out.size() + shift);
            version.launch(pad, out + shift, inp, wte, wpe, s.B, s.T, s.C, block);
            const std::vector<float> got = out.values();
            EXPECT_TRUE(std::isnan(got[shift - 1]));
            EXPECT_EQ(std::vector<float>(got.begin() + long(shift), got.end()), rounded<T>(c.out));
        });
        for_each_version<T>(encoder_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<int> buckets(pad, c.buckets);
            DeviceArray<T> dout(pad, shifted), dwte(pad, c.dwte), dwpe(pad, c.dwpe);
            version.launch(pad, dwte, dwpe, dout + shift, buckets, s.B, s.T, s.C, block);
            expect_close("dwte", dwte.values(), c.dwte_after, tolerance<T>(2e-6));
            expect_close("dwpe", dwpe.values(), c.dwpe_after, tolerance<T>(2e-6));
        });
    }
}

TYPED_TEST(Encoder, TrainingFunctions) {
    using T = TypeParam;
    const Shape s = {2, 40, 48, 5, 2};
    const Case<T> c(s);
    for (const auto& pad : test_pads()) {
        DeviceArray<int> inp(*pad, c.inp), buckets(*pad, c.buckets);
        DeviceArray<T> wte(*pad, c.wte), wpe(*pad, c.wpe), out(*pad, c.out.size()), dout(*pad, c.dout);
        DeviceArray<T> dwte(*pad, c.dwte), dwpe(*pad, c.dwpe);
        encoder_forward<T>(pad.get(), out, inp, wte, wpe, s.B, s.T, s.C);
        encoder_backward<T>(pad.get(), dwte, dwpe, dout, buckets, s.B, s.T, s.C);
        EXPECT_EQ(out.values(), rounded<T>(c.out));
        const DueCase<T> due(*pad, s, c, false);
        DeviceArray<T> ahead(*pad, c.out.size());
        encoder_forward_updated<T>(*pad, ahead, due.inp, due.wte, due.wpe,
                                   {nullptr, due.m, due.v, due.grads, due.step, 0.1f, nullptr}, s.B, s.T,
                                   s.C);
        due.update(nullptr);
        EXPECT_EQ(ahead.values(), due.encode());
        expect_close("dwte", dwte.values(), c.dwte_after, tolerance<T>(2e-6));
        expect_close("dwpe", dwpe.values(), c.dwpe_after, tolerance<T>(2e-6));
    }
}
