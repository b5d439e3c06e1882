// The table of kernels (llmc/kernels/kernel_cases.h): every row against the CPU's version at
// an odd size; and every shader is in it.
#include "llmc/kernels/kernel_cases.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "dev/vulkan/baselines/baselines.h"
#include "dev/vulkan/model_commands.h"
#include "llmc/layers/tensor_core.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/spirv_flow.h"

static const KernelShape odd = {
    .B = 2, .T = 33, .C = 96, .NH = 3, .V = 301, .Vp = 384, .layers = 1, .linear = {{96, 40}}};

// The versions' default configs; the tests of layers take the others.
static KernelCase with_defaults(KernelCase c) {
    const auto version = [](const KernelRun& run) { return run.name.substr(0, run.name.rfind('/')); };
    const auto same = [&](const KernelRun& a, const KernelRun& b) { return version(a) == version(b); };
    c.versions.erase(std::unique(c.versions.begin(), c.versions.end(), same), c.versions.end());
    return c;
}

template <class Real>
struct KernelCases : testing::Test {};
TYPED_TEST_SUITE(KernelCases, RealTypes);

TYPED_TEST(KernelCases, EveryVersionAgreesWithTheCpu) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    if (sizeof(TypeParam) == 2 && !test_pads()[0]->limits().template fragment<TypeParam>())
        GTEST_SKIP() << "the versions of fp32, which the tests of layers run in 16 bits, too";
    add_baselines();
    for (const KernelCase& c : kernel_cases<TypeParam>(odd))
        EXPECT_EQ(message_of(
                      [&] { EXPECT_GE(check_kernels(*test_pads().back(), with_defaults(c)), 1) << c.layer; }),
                  "");
}

// One wrong element, or one that no kernel writes, is found in whatever array it is.
TEST(KernelCheck, AWrongElementIsFound) {
    const auto run = [](float value) {
        return KernelRun{"run", [=](Operands& o) {
                             const size_t n = 100;
                             o.input<float>(n);
                             float* out = o.output<float>(n);
                             return [=, pad = o.pad] {
                                 std::vector<float> values(n, 1);
                                 if (pad) values[n - 1] = value;
                                 pad ? pad->upload(out, values.data(), n * sizeof(float))
                                     : void(std::copy(values.begin(), values.end(), out));
                             };
                         }};
    };
    for (const auto& pad : test_pads())
        for (const auto& [value, says] :
             {std::pair(1.0f, ""), {1.1f, "operand 2: wrong result of the GPU"}, {NAN, "operand 2: wrong"}}) {
            const std::string message = message_of([&] {
                check_kernels(*pad, {"a_layer", "n:100", {}, run(value), {}});
            });
            EXPECT_TRUE(contains(message, says));
            EXPECT_EQ(message.empty(), *says == '\0') << message;
        }
}

// A new shader that is in no table of versions, or whose launcher is not called, is compiled for no vendor's
// device.
// A version that no row has would not be checked on a device.
template <class Real>
static void expect_rows(const std::set<std::string>& versions) {
    const std::vector<KernelCase> cases = kernel_cases<Real>(odd);
    for (const std::string& name : versions) {
        if (name.find(std::string("/") + real_name<Real>() + "/") == std::string::npos) continue;
        EXPECT_TRUE(std::ranges::any_of(cases, [&](auto& c) { return find_run(c, name).has_value(); }))
            << name;
    }
}

template <class Real>
static void add_names(std::set<std::string>& names, LaunchPad& pad) {
    const ModelConfig config = parse_descriptor("custom:layers=2,heads=2,channels=128,max_seq_len=1024");
    const auto commands = [&] {
        give_default_commands<Real>(pad, config, 2, 64);  // few rows take kernels of their own
        give_all_versions<Real>(pad, config, 2, 1024);
    };
    const Requirements needed = pad.dry_run(commands);
    EXPECT_GT(needed.versions.size(), 10u);
    expect_rows<Real>(needed.versions);
    for (const auto& [key, constants] : needed.kernels) {
        const std::string name = key.substr(0, key.find('\0'));
        for (const char* type : {"_fp32", "_bf16", "_fp16"}) names.insert(name.substr(0, name.find(type)));
    }
}

// The kernels of a run, by name.
static std::set<std::string> kernels_of(LaunchPad& pad, const std::function<void()>& commands) {
    std::set<std::string> names;
    for (const auto& [key, constants] : pad.dry_run(commands).kernels)
        names.insert(key.substr(0, key.find('\0')));
    return names;
}

template <class Real>
static void test_all(LaunchPad& pad) {
    for (const KernelShape& shape : self_test_shapes())
        for (const KernelCase& c : kernel_cases<Real>(shape))
            for (const KernelRun& run : c.versions) {
                Operands operands(&pad, Fill::nothing);
                if (!run.fits || run.fits(pad)) run.prepare(operands)();
            }
}

// Losses are fp32 in every precision.
template <class Real>
static void expect_tested(LaunchPad& pad) {
    const ModelConfig config = parse_descriptor("custom:layers=2,heads=2,channels=128,max_seq_len=1024");
    std::set<std::string> tested = kernels_of(pad, [&] { test_all<Real>(pad); });
    tested.merge(kernels_of(pad, [&] { test_all<float>(pad); }));
    for (const std::string& name :
         kernels_of(pad, [&] { give_default_commands<Real>(pad, config, 2, 1024); }))
        EXPECT_TRUE(tested.contains(name)) << name;
}

// Also those of GEMMs that are split, and of sampling.
TEST(KernelTable, TheSelfTestRunsWhatTrainingTakes) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPadOptions options = test_options();
    options.compile_only = true;
    LaunchPad pad(options);
    expect_tested<float>(pad);
    if (pad.limits().fragment<fp16>()) expect_tested<fp16>(pad);
}

TEST(KernelTable, HasEveryShader) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPadOptions options = test_options();
    options.compile_only = true;
    LaunchPad pad(options);
    std::set<std::string> names;
    add_names<float>(names, pad);
    if (pad.limits().fragment<fp16>()) add_names<fp16>(names, pad);
    std::vector<std::string> folders = {"/shaders", "/dev/vulkan/baselines"};
    if (pad.limits().fragment<fp16>()) folders.push_back("/shaders/cooperative_matrix");
    if (pad.limits().fp32_pieces()) folders.push_back("/shaders/cooperative_matrix/fp32");
    for (const std::string& folder : folders)
        for (const auto& entry : std::filesystem::directory_iterator(SOURCE_DIR + folder)) {
            std::string name = entry.path().stem().string();
            if (is_tensor_core_gemm(name) && !pad.limits().fragment<fp16>()) continue;
            if (name.starts_with("matmul7") && pad.limits().fp16_pieces) name += "_half";
            if (entry.path().extension() != ".comp") continue;
            EXPECT_TRUE(names.count(name)) << name << ": give it a row in llmc/kernels/kernel_cases.cpp";
        }
}

// --- shared memory ---

extern const EmbeddedShader baseline_shaders[];

static std::map<std::string, Module> modules_by_name() {
    std::map<std::string, Module> all;
    for (const EmbeddedShader* table : {embedded_shaders, baseline_shaders})
        for (; table->name; table++) all.emplace(table->name, Module(*table));
    return all;
}

// Of everything that training and the self-test may take; the number of kernels that use nearly all of it.
template <class Real>
static int expect_shared_memory(LaunchPad& pad, const std::map<std::string, Module>& modules) {
    const ModelConfig config = parse_descriptor("custom:layers=1,heads=2,channels=128,max_seq_len=1024");
    const auto commands = [&] {
        for (const int T : {64, 1024}) give_default_commands<Real>(pad, config, 2, T);
        test_all<Real>(pad);
    };
    int near = 0;
    for (const auto& [key, constants] : pad.dry_run(commands).kernels) {
        const std::string name = key.substr(0, key.find('\0'));
        static std::map<std::string, uint64_t> known;  // by key
        if (!known.contains(key)) known[key] = shared_bytes(modules.at(name), constants);
        const uint64_t bytes = known[key];
        EXPECT_LE(bytes, pad.limits().shared_bytes) << name;
        near += bytes > pad.limits().shared_bytes / 8 * 7;
    }
    return near;
}

// Imaginary devices with each amount of shared memory, each shape of fragments, and either way to convert
// them: what launchers count is all that the kernels have.
TEST(KernelTable, KernelsHaveNoMoreSharedMemoryThanTheDevice) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPadOptions options = test_options();
    options.compile_only = true;
    LaunchPad pad(options);
    const std::map<std::string, Module> modules = modules_by_name();
    Limits& limits = const_cast<Limits&>(pad.limits());
    limits.max_block = limits.barrier_block = 1024;
    limits.compiles_slowly = false;
    int near = 0;
    for (const FragmentShape shape : {FragmentShape{}, {16, 16, 16}, {16, 8, 16}, {8, 8, 16}, {8, 8, 8}})
        for (const uint32_t lanes : {8, 32, 64})
            for (const uint32_t kib : {24, 28, 32, 40, 48, 64, 100}) {
                for (const bool in_place : {false, true}) {
                    limits.subgroup_size = lanes;
                    limits.shared_bytes = kib << 10;
                    limits.bf16_fragment = limits.fp16_fragment = shape;
                    limits.bf16_fragment.layout_known = limits.fp16_fragment.layout_known = shape.M > 0;
                    limits.bf16_fragment.in_place = limits.fp16_fragment.in_place = in_place;
                    SCOPED_TRACE(format_string("%u x %u x %u, %u lanes, %u KiB", shape.M, shape.N, shape.K,
                                               lanes, kib));
                    limits.splits_fp32 = in_place;
                    near +=
                        expect_shared_memory<float>(pad, modules) + expect_shared_memory<bf16>(pad, modules);
                }
            }
    EXPECT_GT(near, 100);
}
