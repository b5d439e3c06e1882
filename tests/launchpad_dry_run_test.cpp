// Tests of the launchpad in every memory mode of the test device: dry runs, what they prepare and tune, and
// the pipeline cache.
#include "tests/launchpad_test.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "llmc/base/file.h"
#include "llmc/layers/gelu.h"
#include "tests/run_program.h"

// Keeps the arguments of all calls of a progress callback.
struct Progress {
    std::vector<std::pair<int, int>> calls;
    LaunchPad::ProgressCallback callback() {
        return [this](int done, int total) { calls.push_back({done, total}); };
    }
};
using Calls = std::vector<std::pair<int, int>>;

// Builds the queued kernels, and returns how many there were.
static int count_compiled(LaunchPad& pad) {
    Progress progress;
    pad.compile(progress.callback());
    return int(progress.calls.size());
}

static int count_tuned(LaunchPad& pad) {
    Progress progress;
    pad.tune(progress.callback());
    return int(progress.calls.size());
}

// No command runs or allocates memory. What postponed commands need is included.
TEST(DryRun, RunsNothingAndNamesWhatIsNeeded) {
    for_each_mode([](LaunchPad& like) {
        LaunchPad pad(fresh_options(like));
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        float* nowhere = reinterpret_cast<float*>(4096);  // not allocated
        const uint64_t allocated = pad.allocated_bytes();
        const Requirements needs = pad.dry_run([&] {
            add_to(pad, total, one, 1);
            add_to(pad, nowhere, one, 1);
            {
                const ConcurrentGroup group(&pad);
                copy_vec4(pad, nowhere, nowhere, 5, 64);
                copy_vec4(pad, nowhere, nowhere, 7, 32);
                pad.barrier();
            }
            copy_vec4(pad, nowhere, nowhere, 9, 64);
            pad.fill(total, 0x3f800000, 4);
            pad.copy(total, one, 4);
            float* scratch = pad.scratch(Scratch::gemm, 100);
            EXPECT_NE(scratch, nullptr);
            EXPECT_EQ(uintptr_t(scratch) % 64, 0u);
            EXPECT_NE(pad.at(scratch, 100), 0u);
            EXPECT_EQ(pad.at<float>(nullptr, 1), 0u);
            pad.scratch(Scratch::gemm, 70);
            pad.scratch(Scratch::norm, 7);
            EXPECT_EQ(pad.scratch(Scratch::norm, 0), nullptr);
            pad.postpone(Scratch::norm, {{nowhere, 4}}, [&] { copy_vec4(pad, nowhere, nowhere, 1, 16); });
            pad.dispatch("peak_copy", {0}, {128}, PeakCopyArgs{});  // an empty grid needs no kernel
            pad.commit(true);
        });
        EXPECT_EQ(total.values()[0], 0.0f);
        EXPECT_EQ(pad.allocated_bytes(), allocated);
        EXPECT_EQ(count_compiled(pad), 0);

        for (int slot = 0; slot < NUM_SCRATCH_SLOTS; slot++)
            EXPECT_EQ(needs.scratch[slot], slot == int(Scratch::gemm)   ? 400u
                                           : slot == int(Scratch::norm) ? 28u
                                                                        : 0u);
        EXPECT_EQ(needs.scratch_bytes(), 428u);
        Words kernels;
        for (const auto& [key, constants] : needs.kernels) {
            ASSERT_EQ(constants.size(), 1u);
            kernels.push_back(
                format_string("%s %u", key.c_str(), constants[0]));  // the key ends its name with 0
        }
        std::sort(kernels.begin(), kernels.end());
        EXPECT_EQ(kernels, (Words{"peak_copy_fp32 16", "peak_copy_fp32 32", "peak_copy_fp32 64",
                                  "sum_losses2_fp32 1"}));
        EXPECT_TRUE(needs.untuned.empty());
    });
}

TEST(DryRun, PrepareAllocatesAndCompileBuilds) {
    for_each_mode([](LaunchPad& like) {
        LaunchPad pad(fresh_options(like));
        DeviceArray<float> values(pad, random_values(4000, 1)), copied(pad, 4000);
        DeviceArray<float> total(pad, std::vector<float>{0.0f});
        auto commands = [&] {
            add_to(pad, total, pad.scratch(Scratch::gemm, 3), 0);
            copy_vec4(pad, copied, values, 1000, 64);
            copy_vec4(pad, copied, values, 1000, 32);
            pad.scratch(Scratch::parameters, 5000);
        };
        const Requirements needs = pad.dry_run(commands);
        pad.prepare(needs);
        const uint64_t allocated = pad.allocated_bytes();
        EXPECT_EQ(count_tuned(pad), 0);
        pad.prepare(needs);  // nothing is queued twice
        Progress progress;
        pad.compile(progress.callback());
        EXPECT_EQ(progress.calls, (Calls{{0, 3}, {1, 3}, {2, 3}}));
        EXPECT_EQ(count_compiled(pad), 0);
        pad.prepare(needs);  // everything has been built
        EXPECT_EQ(count_compiled(pad), 0);
        pad.compile();

        commands();
        EXPECT_TRUE(copied.values() == values.values());
        EXPECT_EQ(total.values()[0], 0.0f);
        EXPECT_EQ(pad.allocated_bytes(), allocated);
        // A kernel that has run is not built again.
        copy_vec4(pad, copied, values, 1000, 16);
        pad.prepare(pad.dry_run([&] { copy_vec4(pad, copied, values, 1000, 16); }));
        EXPECT_EQ(count_compiled(pad), 0);
    });
}

TEST(DryRun, CompileNamesAMissingKernel) {
    for_each_mode([](LaunchPad& like) {
        LaunchPad pad(fresh_options(like));
        pad.prepare(pad.dry_run([&] { pad.dispatch("peak_cpy", {1}, {64}, PeakCopyArgs{}); }));
        expect_error("no kernel is named 'peak_cpy_fp32'", [&] { pad.compile(); });
        EXPECT_EQ(count_compiled(pad), 0) << "the kernel is still queued";
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        add_to(pad, total, one, 1);
        EXPECT_EQ(total.values()[0], 1.0f);
    });
}

TEST(DryRun, Misuse) {
    for_each_mode([](LaunchPad& pad) {
        const char* message = "a dry run, a recording or a group is open";
        auto refused = [&] { expect_error(message, [&] { pad.dry_run([] { ADD_FAILURE(); }); }); };
        bool ran = false;
        pad.dry_run([&] {
            refused();
            float value = 1;
            expect_error("begin_recording: a dry run", [&] { pad.begin_recording(); });
            expect_error("upload: a dry run", [&] { pad.upload(&value, &value, 4); });
            expect_error("download: a dry run", [&] { pad.download(&value, &value, 4); });
            ran = true;
        });
        EXPECT_TRUE(ran);
        pad.begin_recording();
        refused();
        pad.forget(pad.end_recording());
        {
            const ConcurrentGroup group(&pad);
            refused();
        }
    });
}

TEST(DryRun, CompileOnlyRecordsAndTransfersNothing) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    LaunchPadOptions options = test_options();
    options.compile_only = true;
    LaunchPad pad(options);
    float value = 1;
    expect_error("begin_recording: a dry run", [&] { pad.begin_recording(); });
    float* there = pad.allocate<float>(1, "nowhere");
    pad.upload(there, &value, 4);
    pad.download(&value, there, 4);
    EXPECT_EQ(value, 0);
    EXPECT_TRUE(pad.dry_run([] {}).kernels.empty());
    // a dry run inside another adds to it what is prepared
    const Requirements needs = pad.dry_run([&] {
        pad.scratch(Scratch::norm, 7);
        pad.prepare(pad.dry_run([&] {
            pad.scratch(Scratch::norm, 5);
            copy_vec4(pad, there, there, 1, 16);
            pad.tuned("choice", {[] { return 1; }});
        }));
    });
    EXPECT_EQ(needs.kernels.size(), 1u);
    EXPECT_EQ(needs.untuned.size(), 1u);
    EXPECT_EQ(needs.scratch_bytes(), 28u);
}

// Postponed commands run before a dry run. An error inside the dry run leaves nothing behind.
TEST(DryRun, ErrorsLeaveTheLaunchPadUsable) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        const uint64_t allocated = pad.allocated_bytes();
        int runs = 0;
        pad.postpone(Scratch::norm, {{total, 4}, {one, 4}}, [&] {
            runs++;
            add_to(pad, total, one, 1);
        });
        expect_error("stop here", [&] {
            pad.dry_run([&] {
                EXPECT_EQ(runs, 1);
                const ConcurrentGroup group(&pad);
                add_to(pad, total, one, 1, 100.0f);
                pad.scratch(Scratch::gemm, 1 << 20);
                pad.tuned("choice", {[]() -> int { throw Error("not called"); }});
                fail("stop here");
            });
        });
        EXPECT_EQ(pad.allocated_bytes(), allocated);
        EXPECT_EQ(count_compiled(pad), 0);
        EXPECT_EQ(count_tuned(pad), 0);
        add_to(pad, total, one, 1);
        EXPECT_EQ(total.values()[0], 2.0f);
        EXPECT_TRUE(pad.dry_run([] {}).kernels.empty());
    });
}

// Each choice of a dry run is measured once, in the order of the names.
TEST(DryRun, TuneMeasuresEachChoiceOnce) {
    for_each_mode([](LaunchPad& like) {
        LaunchPadOptions options = fresh_options(like);
        options.timestamps = true;
        LaunchPad pad(options);
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        Words measured;
        auto measure = [&](const char* name) {
            measured.push_back(name);
            add_to(pad, total, one, 1);
            return 64;
        };
        const Requirements needs = pad.dry_run([&] {
            EXPECT_FALSE(pad.tuned("b", {[&] { return measure("b"); }}));
            EXPECT_FALSE(pad.tuned("a", {[&] { return measure("a"); }}));
            EXPECT_FALSE(pad.tuned("b", {[&] { return measure("b, which is recorded already"); }}));
        });
        pad.tuned("c", {[&] { return measure("c, not in a dry run"); }});
        EXPECT_EQ(needs.untuned.size(), 2u);
        EXPECT_EQ(count_tuned(pad), 0);
        pad.prepare(needs);
        pad.prepare(needs);
        EXPECT_TRUE(measured.empty());
        EXPECT_FALSE(pad.tuned("a", {}));
        Progress progress;
        pad.tune(progress.callback());
        EXPECT_EQ(measured, (Words{"a", "b"}));
        EXPECT_EQ(progress.calls, (Calls{{0, 2}, {1, 2}}));
        EXPECT_EQ(pad.tuned("a", {}), 64);
        EXPECT_TRUE(pad.take_kernel_times().empty());  // tuning does not count
        EXPECT_EQ(count_tuned(pad), 0);
        EXPECT_TRUE(pad.dry_run([&] { pad.tuned("a", {[&] { return measure("a"); }}); }).untuned.empty());
        pad.tune();
        EXPECT_EQ(total.values()[0], 2.0f);
    });
}

TEST(DryRun, TuneSkipsWhatMemoryIsTooSmallFor) {
    for_each_mode([](LaunchPad& like) {
        LaunchPadOptions options = fresh_options(like);
        options.device_memory = 32 << 20;
        LaunchPad pad(options);
        pad.prepare(pad.dry_run([&] {
            pad.tuned("a", {[&] {
                          pad.free(pad.allocate(size_t(64) << 20, "operands"));
                          ADD_FAILURE() << "64 MiB of 32";
                          return 0;
                      }});
            pad.tuned("b", {[] { return 1; }});
        }));
        pad.tune();
        EXPECT_FALSE(pad.tuned("a", {}));
        EXPECT_EQ(pad.tuned("b", {}), 1);
    });
}

// --- the pipeline cache ---

struct CacheDirectory {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path;
    std::vector<std::filesystem::path> files() const {
        return {std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()};
    }
};

static void run_with_cache(const std::string& directory) {
    LaunchPadOptions options = fresh_options(*test_pads()[0]);
    options.cache_directory = directory;
    LaunchPad pad(options);
    DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{1.0f});
    add_to(pad, total, one, 1);
    EXPECT_EQ(total.values()[0], 2.0f);
}

TEST(PipelineCache, MeasurementsAreKeptBesideIt) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const CacheDirectory cache;
    LaunchPadOptions options = fresh_options(*test_pads()[0]);
    options.cache_directory = (cache.path / "deeper").string();
    {
        LaunchPad pad(options);
        EXPECT_FALSE(pad.tuned("choice/1", {}));
        pad.prepare({.untuned = {{"choice/1", {[] { return 64; }}}, {"choice/2", {[] { return -1; }}}}});
        pad.tune();
        pad.prepare({.untuned = {{"choice/1", {[] { return 128; }}}}});
        pad.tune();
        EXPECT_EQ(pad.tuned("choice/1", {}), 128);
    }
    LaunchPad again(options);
    EXPECT_EQ(again.tuned("choice/1", {}), 128);
    EXPECT_EQ(again.tuned("choice/2", {}), -1);
    EXPECT_FALSE(again.tuned("choice", {}));
    expect_error("has a space", [&] { again.tuned("choice 1", {}); });
}

TEST(PipelineCache, IsWrittenReadAndSurvivesDamage) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const CacheDirectory cache;
    run_with_cache((cache.path / "deeper" / "still").string());
    EXPECT_TRUE(std::filesystem::exists(cache.path / "deeper" / "still"));
    std::filesystem::remove_all(cache.path / "deeper");
    run_with_cache(cache.path.string());
    ASSERT_EQ(cache.files().size(), 1u);  // no temporary file is left
    const std::filesystem::path file = cache.files()[0];
    std::string bytes = read_whole_file(file.string());
    EXPECT_GE(bytes.size(), 40u);  // a checksum and Vulkan's header: all that lavapipe 22.3 writes
    run_with_cache(cache.path.string());
    bytes[bytes.size() / 2] ^= 1;  // one of the damages of device_cache_test
    write_whole_file(file.string(), {bytes});
    run_with_cache(cache.path.string());
    run_with_cache("/proc/no such folder");  // not writable: there is no cache, and no error
}

// If something is in the way of the file, no start leaves another temporary file.
TEST(PipelineCache, LeavesNoTemporaryFiles) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const CacheDirectory cache;
    run_with_cache(cache.path.string());
    ASSERT_EQ(cache.files().size(), 1u);
    const std::filesystem::path file = cache.files()[0];
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    run_with_cache(cache.path.string());
    EXPECT_EQ(cache.files(), std::vector{file});
    std::filesystem::remove(file);
    std::ofstream(temporary_of(file.string())) << "what a killed program left";
    run_with_cache(cache.path.string());
    EXPECT_EQ(cache.files(), std::vector{file});
}

// What a check finds wrong is not taken, nor by the next launchpad, which checks nothing again.
TEST(Prepare, TakesAnotherVersionOfWhatIsWrong) {
    for_each_mode([](LaunchPad& like) {
        const TemporaryFolder folder;
        LaunchPadOptions options = fresh_options(like);
        options.cache_directory = folder / "cache";
        int checked = 0;
        std::string wrong = "/block:256";
        options.check_versions = [&](LaunchPad&, const std::set<std::string>& versions) {
            std::map<std::string, bool> right;
            for (const std::string& version : versions) right[version] = !version.ends_with(wrong);
            checked += int(versions.size());
            return right;
        };
        float* x = reinterpret_cast<float*>(4096);  // not allocated
        const auto taken = [&](LaunchPad& pad) {
            return pad.prepare([&] { gelu_forward<float>(&pad, {.out = x, .inp = x, .n = 100}); }).versions;
        };
        const std::set<std::string> other = {"gelu_forward2/fp32/block:64"};
        for (int start = 0; start < 2; start++) {
            LaunchPad pad(options);
            EXPECT_EQ(taken(pad), other);
            EXPECT_EQ(checked, 2);
        }
        wrong = "";  // all are
        LaunchPad pad(options);
        pad.forget_checks();
        expect_error("gelu_forward: no version of this kernel works on", [&] { taken(pad); });
    });
}
