// GEMMs of the linear layers: every GPU version, and the functions that training calls, against GEMMs in
// double precision.
#include <filesystem>
#include <fstream>

#include "llmc/launchpad/internal.h"
#include "llmc/launchpad/memory.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/packed_weight.h"
#include "llmc/layers/tensor_core.h"
#include "tests/matmul_case.h"
#include "tests/run_program.h"
#include "tests/table_rows.h"

// For tensor cores, multiples of 8: the middle of a fragment and of a tile, filled tiles, one row, a little
// more than a tile. A software device takes minutes to compile their pipelines: it runs the first two only.
static const Shape tensor_core_shapes[] = {{300, 72, 136}, {512, 128, 256}, {1, 8, 16}, {513, 128, 264}};
static const size_t SOFTWARE_TENSOR_CORE_SHAPES = 2;

static bool is_software(const LaunchPad& pad) { return pad.device().type == DeviceType::software; }

// The shapes for the device's tensor cores; none if it has no fragments for Real.
template <class Real>
static std::span<const Shape> shapes_for_tensor_cores() {
    if (test_pads().empty()) return {};
    const LaunchPad& pad = *test_pads()[0];
    if (!gemm_fragment<Real>(pad)) return {};
    const std::span<const Shape> all = tensor_core_shapes;
    return is_software(pad) ? all.first(SOFTWARE_TENSOR_CORE_SHAPES) : all;
}

// The tensor-core versions of a table. A software device runs the smallest tile and, for the first shape, the
// largest one where that covers the layouts of both operands; its training functions choose a tile with two
// k_groups.
template <class Versions>
static Versions tensor_core_versions(Versions versions, int num_rows) {
    std::erase_if(versions, [](const auto& version) { return !is_tensor_core_gemm(version.name); });
    for (auto& version : versions)
        if (is_software(*test_pads()[0])) {
            const std::string_view name = version.name;
            version.configs = {name == "matmul6" ? Tile{32, 64} : Tile{64, 64}};
            if (num_rows == tensor_core_shapes[0].num_rows && !name.ends_with("_nn") && name != "matmul6")
                version.configs.push_back(name.starts_with("matmul7") ? Tile{128, 64} : Tile{128, 256});
        }
    return versions;
}
// The other versions. Each tile of version 3 takes seconds to compile. The 16-bit types, whose kernels differ
// from fp32's in loads and stores only, run other tiles than the first with one shape.
template <class Real, class Versions>
static Versions other_versions(Versions versions, const MatmulCase<Real>& c) {
    versions = with_baselines(versions);
    std::erase_if(versions, [](const auto& version) { return is_tensor_core_gemm(version.name); });
    if (!std::is_same_v<Real, float> && c.num_rows != 300)
        for (auto& version : versions) version.configs.resize(1);
    return versions;
}

template <class Real>
struct Matmul : testing::Test {};
TYPED_TEST_SUITE(Matmul, RealTypes);

// The output of one version.
template <class Real>
static std::vector<float> forward(LaunchPad& pad, const KernelVersion<MatmulForward<Real>, Tile>& version,
                                  const MatmulCase<Real>& c, Tile tile) {
    const MatmulArrays<Real> d(&pad, c);
    version.launch(pad, d.forward(), tile);
    return d.out.values();
}

template <class Real, class Versions>
static void check_forward(const MatmulCase<Real>& c, const Versions& versions) {
    for_each_version<Real>(versions, [&](LaunchPad& pad, auto& version, Tile tile) {
        expect_close("out", forward(pad, version, c, tile), c.out, tolerance<Real>());
    });
}

template <class Real, class Versions>
static void check_dinp(const MatmulCase<Real>& c, const Versions& versions) {
    for_each_version<Real>(versions, [&](LaunchPad& pad, auto& version, Tile tile) {
        const MatmulArrays<Real> d(&pad, c);
        version.launch(pad, d.backward_input(), tile);
        d.expect_dinp();
    });
}

// Overwrites NaN, and accumulates.
template <class Real, class Versions>
static void check_dweight(const MatmulCase<Real>& c, const Versions& versions) {
    for_each_version<Real>(versions, [&](LaunchPad& pad, auto& version, Tile tile) {
        const MatmulArrays<Real> d(&pad, c);
        version.launch(pad, d.backward_parameters(false), tile);
        d.expect_dweight();
        DeviceArray<Real> added(pad, c.dweight_before);
        MatmulBackwardParameters<Real> p = d.backward_parameters(true);
        p.dweight = added;
        version.launch(pad, p, tile);
        expect_close("dweight, accumulated", added.values(), c.dweight_added, tolerance<Real>());
    });
}

TYPED_TEST(Matmul, ForwardGpuMatchesDouble) {
    using Real = TypeParam;
    for_each_shape<Real>([](const MatmulCase<Real>& c) {
        check_forward(c, other_versions(matmul_forward_versions<Real>(), c));
    });
}

TYPED_TEST(Matmul, DinpGpuMatchesDouble) {
    using Real = TypeParam;
    for_each_shape<Real>(
        [](const MatmulCase<Real>& c) { check_dinp(c, other_versions(matmul_dinp_versions<Real>(), c)); });
}

TYPED_TEST(Matmul, DweightGpuMatchesDouble) {
    using Real = TypeParam;
    for_each_shape<Real>([](const MatmulCase<Real>& c) {
        check_dweight(c, other_versions(matmul_dweight_versions<Real>(), c));
    });
}

TYPED_TEST(Matmul, DbiasGpuMatchesCpu) {
    for (const Shape& s : shapes)
        check_rows<TypeParam>("matmul_dbias",
                              {.B = s.num_rows, .T = 1, .C = 8, .NH = 1, .linear = {{s.C, s.OC}}});
}

// Numbers of rows for which a kernel that loads 64 rows at a time nearly completes its last load. The rows
// after them are NaN.
TYPED_TEST(Matmul, DbiasStopsAtTheLastRow) {
    using Real = TypeParam;
    const int OC = 48;
    for (const int num_rows : {55, 56, 57, 60, 63, 64, 1083, 1147, 2111}) {
        SCOPED_TRACE(format_string("%d rows", num_rows));
        std::vector<float> dout = random_values<Real>(size_t(num_rows) * OC, 4);
        std::vector<double> want(OC, 0.0);
        for (size_t i = 0; i < dout.size(); i++) want[i % OC] += double(dout[i]);
        const std::vector<float> after = nans(64 * OC);
        dout.insert(dout.end(), after.begin(), after.end());
        for_each_version<Real>(with_baselines(matmul_dbias_versions<Real>()), [&](LaunchPad& pad,
                                                                                  auto& version,
                                                                                  int block_size) {
            DeviceArray<Real> rows(pad, dout), dbias(pad, std::vector<float>(OC, 0.0f));
            version.launch(pad, {.dbias = dbias, .dout = rows, .num_rows = num_rows, .OC = OC}, block_size);
            expect_close("dbias", dbias.values(), {want.begin(), want.end()}, tolerance<Real>());
        });
    }
}

// The functions that training calls, with and without the optional tensors; the backward pass twice, as in
// two micro-steps.
template <class Real>
static void check_training_functions(const MatmulCase<Real>& c, bool all_memory_modes) {
    for (const auto& pad : test_pads()) {
        if (!all_memory_modes && pad != test_pads()[0]) continue;
        const MatmulArrays<Real> d(pad.get(), c);
        matmul_forward<Real>(pad.get(), d.forward(false));
        expect_close("out without bias", d.out.values(), c.out_without_bias(), tolerance<Real>());
        matmul_forward<Real>(pad.get(), d.forward());
        d.expect_out();
        d.backward();
        d.expect_dinp();
        d.expect_dweight();
        expect_close("dbias", d.dbias.values(), c.dbias, tolerance<Real>());
        matmul_backward_parameters<Real>(pad.get(), d.backward_parameters(true));
        std::vector<float> twice(c.dweight);
        for (float& w : twice) w *= 2;
        expect_close("dweight after two calls", d.dweight.values(), twice, 2 * tolerance<Real>());
        expect_close("dbias, not requested", d.dbias.values(), c.dbias, tolerance<Real>());
    }
}

TYPED_TEST(Matmul, BackwardGpuMatchesDouble) {
    const bool fp32 = std::is_same_v<TypeParam, float>;
    for_each_shape<TypeParam>(
        [&](const MatmulCase<TypeParam>& c) { check_training_functions<TypeParam>(c, fp32); });
}

// GEMMs fused with GELU and its derivative, against the separate layers.
template <class Real>
static void check_gelu(const MatmulCase<Real>& c) {
    const size_t n = c.out.size(), n_inp = c.dinp.size();
    const std::vector<float> pre_inp = random_values<Real>(n_inp, 9);
    std::vector<float> want_out(n), want_dinp(n_inp);
    gelu_forward<float>(nullptr, {.out = want_out.data(), .inp = c.out.data(), .n = n});
    gelu_backward<float>(
        nullptr, {.dinp = want_dinp.data(), .inp = pre_inp.data(), .dout = c.dinp.data(), .n = n_inp});
    std::vector<LaunchPad*> places = {nullptr};
    for (const auto& pad : test_pads())
        if (pad == test_pads()[0] || std::is_same_v<Real, float>) places.push_back(pad.get());
    for (LaunchPad* pad : places) {
        SCOPED_TRACE(pad ? "device" : "CPU");
        const MatmulArrays<Real> d(pad, c);
        DeviceArray<Real> pre(pad, n), pre_of_inp(pad, pre_inp);
        MatmulForward<Real> forward = d.forward();
        forward.pre = pre;
        MatmulBackwardInput<Real> backward = d.backward_input();
        backward.pre = pre_of_inp;
        matmul_forward(pad, forward);
        matmul_backward_input(pad, backward);
        expect_close("pre", pre.values(), c.out, tolerance<Real>());
        expect_close("out", d.out.values(), want_out, 2 * tolerance<Real>());
        expect_close("dinp", d.dinp.values(), want_dinp, 2 * tolerance<Real>());
    }
}

TYPED_TEST(Matmul, GeluMatchesTheLayers) { for_each_shape<TypeParam>(check_gelu<TypeParam>); }

// --- tensor cores; dev/setup.sh newer-mesa unpacks a software device that has fragments for fp16 ---

TYPED_TEST(Matmul, MatrixVersionsMatchDouble) {
    using Real = TypeParam;
    const std::span<const Shape> some = shapes_for_tensor_cores<Real>();
    if (some.empty()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    for_shapes<Real>(some, [](const MatmulCase<Real>& c) {
        check_forward(c, tensor_core_versions(matmul_forward_versions<Real>(), c.num_rows));
        check_dinp(c, tensor_core_versions(matmul_dinp_versions<Real>(), c.num_rows));
        check_dweight(c, tensor_core_versions(matmul_dweight_versions<Real>(), c.num_rows));
    });
}

// Sums over 3072 elements: splitting fp32 values loses no more than fp32 arithmetic does (version 3).
TEST(MatmulFp32, MatrixErrorsAreThoseOfFp32) {
    if (shapes_for_tensor_cores<float>().empty()) GTEST_SKIP() << "no tensor cores for fp32 here";
    LaunchPad& pad = *test_pads()[0];
    const MatmulCase<float> c({64, 3072, 72});
    const auto error_of = [&](const KernelVersion<MatmulForward<float>, Tile>& version) {
        const std::vector<float> got = forward(pad, version, c, {64, 64});
        double squares = 0;
        for (size_t i = 0; i < got.size(); i++) squares += std::pow(double(got[i]) - double(c.out[i]), 2);
        return std::sqrt(squares / double(got.size()));
    };
    const auto versions = matmul_forward_versions<float>();
    ASSERT_STREQ(versions[0].name, "matmul3");
    ASSERT_STREQ(versions[2].name, "matmul7_nt");
    const double fp32 = error_of(versions[0]), split = error_of(versions[2]);
    EXPECT_GT(split, 0);
    EXPECT_LT(split, 2 * fp32);
}

TYPED_TEST(Matmul, MatrixTrainingFunctionsMatchDouble) {
    using Real = TypeParam;
    const std::span<const Shape> some = shapes_for_tensor_cores<Real>();
    if (some.empty()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    const bool fp32 = std::is_same_v<Real, float>;
    for_shapes<Real>(some, [&](const MatmulCase<Real>& c) { check_training_functions<Real>(c, fp32); });
    for_shapes<Real>(is_software(*test_pads()[0]) ? some.first(1) : some, check_gelu<Real>);
}

// Few rows and long sums: the training functions split K, and what reads the result waits for the reduction.
TYPED_TEST(Matmul, MatrixSplitKIsReduced) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty() || !on_tensor_cores<Real>(*test_pads()[0], 8, 8))
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad& pad = *test_pads()[0];
    const GemmShape forward = {GemmLayout::nt, 17, 24, 2048, EPILOGUE_BIAS};
    const GemmShape dinp = {GemmLayout::nn, 17, 24, 2048, EPILOGUE_NONE};
    for (const GemmShape& gemm : {forward, dinp})
        EXPECT_GT(plan_gemm<Real>(pad, gemm, std::nullopt, true).splits, 1);
    check_training_functions<Real>(MatmulCase<Real>({17, 2048, 24}), false);
    check_training_functions<Real>(MatmulCase<Real>({17, 24, 2048}), false);
}

// Emulates a device on which operands take twice the registers: an iteration has half as many steps.
TYPED_TEST(Matmul, MatrixWithShortIterations) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty()) GTEST_SKIP() << "no tensor cores for this type here";
    if (std::is_same_v<Real, float>) GTEST_SKIP() << "fp32's iterations have one step";
    LaunchPadOptions options = test_options();
    options.in_place = false;
    LaunchPad pad(options);
    const MatmulCase<Real> c(tensor_core_shapes[0]);
    const MatmulArrays<Real> d(&pad, c);
    const auto first = [&](const auto& versions) { return tensor_core_versions(versions, c.num_rows)[0]; };
    first(matmul_forward_versions<Real>()).launch(pad, d.forward(), {32, 64});
    first(matmul_dinp_versions<Real>()).launch(pad, d.backward_input(), {64, 64});
    first(matmul_dweight_versions<Real>()).launch(pad, d.backward_parameters(false), {32, 64});
    d.expect_out();
    d.expect_dinp();
    d.expect_dweight();
}

// So many rows that packing pays, and that do not fill the last tile.
static int rows_worth_packing(const LaunchPad& pad) {
    return std::max(4096, 128 * int(pad.limits().compute_units)) + 72;
}

// So many rows that the weight is packed first, for the forward pass and for dinp. K ends within the last
// tile of a, N and the rows within a tile of the result.
TYPED_TEST(Matmul, MatrixTrainingFunctionsPackTheWeight) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty())
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad& pad = *test_pads()[0];
    const int rows = rows_worth_packing(pad);
    const MatmulCase<Real> c({rows, 48, 80});
    if (!can_pack<Real>(pad, c.C, c.OC)) GTEST_SKIP() << "this device's fragments cannot be packed";
    ASSERT_TRUE(packing_pays<Real>(pad, c.num_rows, c.C, c.OC));
    ASSERT_TRUE(packing_pays<Real>(pad, c.num_rows, c.OC, c.C));
    const MatmulArrays<Real> d(&pad, c);
    matmul_forward<Real>(&pad, d.forward());
    d.expect_out();
    matmul_backward_input<Real>(&pad, d.backward_input());
    d.expect_dinp();
}

// Two calls with the same weight, which was packed for both: also the second one, of too few rows to pack for
// themselves, uses that. Then zeros replace the weight, to show that.
TYPED_TEST(Matmul, MatrixChunksShareThePackedWeight) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty())
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad& pad = *test_pads()[0];
    const int first = rows_worth_packing(pad), rows = first + 72;
    const MatmulCase<Real> c({rows, 48, 80});
    if (!can_pack<Real>(pad, c.C, c.OC)) GTEST_SKIP() << "this device's fragments cannot be packed";
    ASSERT_FALSE(packing_pays<Real>(pad, 72, c.C, c.OC));
    const MatmulArrays<Real> d(&pad, c);
    const std::vector<Real> zeros(c.weight.size());
    const std::vector<LinearWeight<Real>> weights = {{d.weight, c.C, c.OC}};
    const Real* packed = matmul_pack<Real>(&pad, Direction::forward, rows, weights)[0];
    const Real* packed_backward = matmul_pack<Real>(&pad, Direction::backward, rows, weights)[0];
    ASSERT_TRUE(packed && packed_backward);
    pad.upload(d.weight.data, zeros.data(), zeros.size() * sizeof(Real));
    for (const bool again : {false, true}) {
        const size_t from = again ? first : 0;
        MatmulForward<Real> forward = d.forward();
        MatmulBackwardInput<Real> backward = d.backward_input();
        forward.num_rows = backward.num_rows = again ? rows - first : first;
        forward.out += from * c.OC;
        forward.inp += from * c.C;
        forward.packed = packed;
        backward.dinp += from * c.C;
        backward.dout += from * c.OC;
        backward.packed = packed_backward;
        matmul_forward<Real>(&pad, forward);
        matmul_backward_input<Real>(&pad, backward);
    }
    d.expect_out();
    d.expect_dinp();
}

// Weights that were packed together, of which one is too narrow to be worth it: GEMMs use what was packed.
// Zeros replace the weights in between, to show that.
TYPED_TEST(Matmul, MatrixWeightsArePackedTogether) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty())
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad& pad = *test_pads()[0];
    const int rows = rows_worth_packing(pad);
    const MatmulCase<Real> a({rows, 48, 80}), narrow({rows, 12, 20}), b({rows, 64, 32});
    if (!can_pack<Real>(pad, a.C, a.OC)) GTEST_SKIP() << "this device's fragments cannot be packed";
    const std::vector<Real> zeros(a.weight.size() + b.weight.size());
    for (const bool backward : {false, true}) {
        const MatmulArrays<Real> on_a(&pad, a), on_b(&pad, b), on_narrow(&pad, narrow);
        const std::vector<LinearWeight<Real>> weights = {
            {on_a.weight, a.C, a.OC}, {on_narrow.weight, narrow.C, narrow.OC}, {on_b.weight, b.C, b.OC}};
        const std::vector<const Real*> packed =
            matmul_pack<Real>(&pad, backward ? Direction::backward : Direction::forward, rows, weights);
        ASSERT_TRUE(packed[0] && !packed[1] && packed[2]);
        for (const auto& [d, i] : {std::pair{&on_a, 0}, std::pair{&on_b, 2}}) {
            pad.upload(d->weight.data, zeros.data(), d->weight.size * sizeof(Real));
            MatmulForward<Real> forward = d->forward();
            MatmulBackwardInput<Real> input = d->backward_input();
            forward.packed = input.packed = packed[i];
            if (backward) {
                matmul_backward_input<Real>(&pad, input);
                d->expect_dinp();
            } else {
                matmul_forward<Real>(&pad, forward);
                d->expect_out();
            }
        }
    }
}

// On the CPU and for few rows, nothing is packed.
TYPED_TEST(Matmul, NothingIsPackedWhereItDoesNotPay) {
    using Real = TypeParam;
    const std::vector<Real> weight(48 * 80);
    const std::vector<const Real*> none = {nullptr, nullptr};
    EXPECT_EQ(matmul_pack<Real>(nullptr, Direction::forward, 65536,
                                {{weight.data(), 48, 80}, {weight.data(), 80, 48}}),
              none);
    EXPECT_EQ(matmul_pack<Real>(nullptr, Direction::backward, 65536,
                                {{weight.data(), 48, 80}, {weight.data(), 80, 48}}),
              none);
    for (const auto& pad : test_pads())
        EXPECT_EQ(matmul_pack<Real>(pad.get(), Direction::forward, 72,
                                    {{weight.data(), 48, 80}, {weight.data(), 80, 48}}),
                  none);
}

// Some devices truncate when they convert whole fragments, which no tolerance of sums shows. With one term
// each, exact in fp32, the stored result must be the nearest value of the type.
TYPED_TEST(Matmul, MatrixResultsAreRoundedToNearest) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty())
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    if (std::is_same_v<Real, float>) GTEST_SKIP() << "fp32 results are rounded in each addition";
    const int num_rows = 40, C = 24, OC = 48;
    LaunchPad& pad = *test_pads()[0];
    std::vector<float> inp(size_t(num_rows) * C, 0.0f);
    const std::vector<float> scales = random_values<Real>(num_rows, 1),
                             weights = random_values<Real>(size_t(OC) * C, 2);
    for (int n = 0; n < num_rows; n++) inp[size_t(n) * C] = scales[n];
    DeviceArray<Real> x(pad, inp), w(pad, weights), plain(pad, size_t(num_rows) * OC), gelu(pad, plain.size),
        pre(pad, plain.size), zero(pad, std::vector<float>(OC, 0.0f));
    matmul_forward<Real>(
        &pad, {.out = plain, .inp = x, .weight = w, .bias = zero, .num_rows = num_rows, .C = C, .OC = OC});
    matmul_forward<Real>(&pad, {.out = gelu,
                                .pre = pre,
                                .inp = x,
                                .weight = w,
                                .bias = zero,
                                .num_rows = num_rows,
                                .C = C,
                                .OC = OC});
    const std::vector<float> got = plain.values(), got_pre = pre.values();
    for (int n = 0; n < num_rows; n++)
        for (int o = 0; o < OC; o++) {
            const float exact = scales[n] * weights[size_t(o) * C],
                        least = std::abs(float(Real(exact)) - exact);
            const size_t i = size_t(n) * OC + o;
            ASSERT_LE(std::abs(got[i] - exact), least) << n << " " << o << " " << got[i] << " " << exact;
            ASSERT_LE(std::abs(got_pre[i] - exact), least) << n << " " << o;
        }
    // the layer itself, on the stored values, gives bit-identical results
    DeviceArray<Real> again(pad, plain.size);
    gelu_forward<Real>(&pad, {.out = again, .inp = pre, .n = plain.size});
    EXPECT_EQ(again.values(), gelu.values());
}

// Of the most tokens that -b auto takes, and of the largest models, on a GPU of 0.4 TFLOP/s whose speed is
// not known yet: no submission has a GEMM, or a piece of one, that takes more than a second. Nothing is
// executed.
template <class Real, class Params>
static void check_pieces(LaunchPad& pad, std::vector<KernelVersion<Params, Tile>> versions, const Params& p) {
    LaunchPadState slow_gpu;
    slow_gpu.info.type = DeviceType::integrated;
    slow_gpu.limits = pad.limits();
    const auto of_tensor_cores = tensor_core_versions(versions, tensor_core_shapes[0].num_rows);
    std::erase_if(versions, [](const auto& version) { return is_tensor_core_gemm(version.name); });
    if (gemm_fragment<Real>(pad))
        versions.insert(versions.end(), of_tensor_cores.begin(), of_tensor_cores.end());
    for (const auto& version : versions)
        for (const Tile tile : version.configs) {
            SCOPED_TRACE(format_string("%s %s, %d x %d x %d", version.name, config_name(tile).c_str(),
                                       p.num_rows, p.C, p.OC));
            pad.begin_recording();
            version.launch(pad, p, tile);
            Recording* const recording = pad.end_recording();
            double flops = 0;
            for (const Command& command : recording->commands)
                if (const auto* d = std::get_if<Dispatch>(&command)) {
                    flops += d->work.flops;
                    EXPECT_LE(d->work.flops * first_piece(slow_gpu, *d) / 0.4e12, 1);
                }
            EXPECT_GE(flops, 2.0 * p.num_rows * p.C * p.OC);
            pad.forget(recording);
        }
}

TYPED_TEST(Matmul, MatrixLargestGemmsAreDivided) {
    using Real = TypeParam;
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPad& pad = *test_pads()[0];
    Memory memory(&pad);
    const int rows = 1 << 16, logit_rows = 1 << 12, vocabulary = 50304;
    Real* const all = memory.allocate<Real>(size_t(rows) * 6400, "operands, which nothing reads");
    for (const int C : {768, 1600})
        for (const auto& [in, out] : {std::pair(C, 3 * C), {C, 4 * C}, {4 * C, C}, {C, vocabulary}}) {
            const int n = out == vocabulary ? logit_rows : rows;
            check_pieces<Real>(pad, matmul_forward_versions<Real>(),
                               {.out = all, .inp = all, .weight = all, .num_rows = n, .C = in, .OC = out});
            check_pieces<Real>(pad, matmul_dinp_versions<Real>(),
                               {.dinp = all, .dout = all, .weight = all, .num_rows = n, .C = in, .OC = out});
            check_pieces<Real>(pad, matmul_dweight_versions<Real>(),
                               {.dweight = all, .dout = all, .inp = all, .num_rows = n, .C = in, .OC = out});
        }
}

// A dry run notes a GEMM that was not tuned. Tuning keeps the fastest tile on disk, where later launchpads
// find it; a damaged file counts as none. Tiles with equal k_groups give bit-identical results.
TYPED_TEST(Matmul, MatrixTilesAreTunedOnce) {
    using Real = TypeParam;
    if (shapes_for_tensor_cores<Real>().empty())
        GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    const GemmShape gemm = {GemmLayout::nt, 300, 136, 72, EPILOGUE_BIAS};
    const std::string name = tuning_name<Real>(gemm);
    TemporaryFolder folder;
    LaunchPadOptions options = test_options();
    options.cache_directory = folder.path;
    {
        LaunchPad pad(options);
        EXPECT_FALSE(pad.tuned(name, {}));
        pad.prepare({.untuned = {{name,
                                  {.measure = [&] { return tile_code(tune_gemm<Real>(pad, gemm)); },
                                   .prepare = [&] { prepare_tuning<Real>(pad, gemm); }}}}});
        pad.tune();
        EXPECT_TRUE(pad.tuned(name, {}));
    }
    LaunchPad pad(options);
    EXPECT_TRUE(pad.tuned(name, {}));
    const MatmulCase<Real> c({gemm.M, gemm.K, gemm.N});
    std::map<int, std::vector<float>> first;  // by k_groups
    for (const Tile tile : tensor_core_tiles<Real>(GemmLayout::nt)) {
        const std::vector<float> out = forward(pad, matmul_forward_versions<Real>()[2], c, tile);
        std::vector<float>& expected = first[k_groups<Real>(GemmLayout::nt, tile)];
        if (expected.empty()) expected = out;
        EXPECT_EQ(out, expected) << config_name(tile);
    }
    EXPECT_EQ(first.size(), (std::is_same_v<Real, float> ? 1u : 2u));
    for (const auto& file : std::filesystem::directory_iterator(folder.path))
        if (file.path().extension() == ".measured") std::ofstream(file.path()) << "\x01\x02 no number";
    LaunchPad another(options);
    EXPECT_FALSE(another.tuned(name, {}));
}

// Without a tile that fits for each direction of a layer, tensor cores are not used. No commands run, so the
// device need not have any.
TYPED_TEST(Matmul, MatrixNeedsATileThatFits) {
    using Real = TypeParam;
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPad pad(test_options());
    Limits& limits = const_cast<Limits&>(pad.limits());
    limits.bf16_fragment = limits.fp16_fragment = {.M = 16, .N = 16, .K = 16, .in_place = true};
    limits.splits_fp32 = true;
    limits.subgroup_size = 32;
    limits.max_block = 1024;
    for (const uint32_t shared : {1u << 10, 12u << 10, 48u << 10, 100u << 10}) {
        limits.shared_bytes = shared;
        bool all = true;
        for (const GemmLayout layout : {GemmLayout::nt, GemmLayout::nn, GemmLayout::tn}) {
            const bool has = has_tile<Real>(pad, layout);
            const std::string error = message_of([&] {
                plan_gemm<Real>(pad, {layout, 300, 136, 72, EPILOGUE_NONE}, std::nullopt, true);
            });
            EXPECT_EQ(error.find("has no tile for a GEMM") == std::string::npos, has) << error;
            all = all && has;
        }
        EXPECT_EQ(on_tensor_cores<Real>(pad, 64, 64), all) << shared;
        EXPECT_EQ(all, shared > (12u << 10)) << shared;
    }
}
