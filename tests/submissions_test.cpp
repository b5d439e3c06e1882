// Long commands and recordings become several submissions, without a change of bits: here each may take next
// to no time, so that everything that can be divided is.
#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "llmc/launchpad/internal.h"
#include "llmc/layers/gradient_sum.h"
#include "tests/launchpad_test.h"
#include "tests/tiny_run.h"

// Calls check(pad, is_short) in each memory mode, with such submissions and with long ones.
template <class Check>
static void for_short_and_long(Check check) {
    for_each_mode([&](LaunchPad& like) {
        for (const double seconds : {1e-9, 1e9}) {
            SCOPED_TRACE(seconds);
            LaunchPadOptions options = fresh_options(like);
            options.submission_seconds = seconds;
            LaunchPad pad(options);
            check(pad, seconds < 1);
        }
    });
}

// What the commands become.
template <class Commands>
static Ticket count_submissions(LaunchPad& pad, Commands commands) {
    const Ticket before = pad.commit();
    commands();
    return pad.commit() - before;
}

static std::vector<float> numbered(size_t n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; i++) values[i] = float(i % 1000003);
    return values;
}

TEST(Submissions, DivideCopiesAndFills) {
    for_short_and_long([](LaunchPad& pad, bool is_short) {
        const size_t n = (5 << 18) + 7;  // 5 MiB and a little
        const std::vector<float> values = numbered(n);
        const size_t bytes = (n - 2) * sizeof(float);
        for (const char* way : {"copy", "asynchronous copy"}) {
            SCOPED_TRACE(way);
            DeviceArray<float> from(pad, values), to(pad, std::vector<float>(n, NAN));
            if (way == std::string("copy"))
                EXPECT_EQ(count_submissions(pad, [&] { pad.copy(to.data + 1, from.data + 2, bytes); }),
                          is_short ? 6u : 1u);
            else
                pad.copy_async({{to.data + 1, from.data + 2, bytes}});
            const std::vector<float> copied = to.values();
            EXPECT_TRUE(std::equal(values.begin() + 2, values.end(), copied.begin() + 1));
            EXPECT_TRUE(std::isnan(copied[0]) && std::isnan(copied[n - 1]));
        }
        DeviceArray<float> filled(pad, values);
        EXPECT_EQ(count_submissions(pad, [&] { pad.fill(filled.data + 1, 0x40000000, bytes); }),
                  is_short ? 6u : 1u);
        std::vector<float> expected(n, 2.0f);
        expected.front() = values.front();
        expected.back() = values.back();
        EXPECT_EQ(filled.values(), expected);
    });
}

// A grid along x, and one that is folded into two dimensions where a device has at most 65,535 workgroups.
TEST(Submissions, DivideDispatches) {
    for_short_and_long([](LaunchPad& pad, bool is_short) {
        for (const auto& [vec4s, block] : {std::pair(77, 2), std::pair(70001, 1)}) {
            SCOPED_TRACE(vec4s);
            const std::vector<float> values = numbered(size_t(vec4s) * 4);
            DeviceArray<float> from(pad, values), to(pad, std::vector<float>(values.size(), NAN));
            for (int run = 0; run < 6; run++) {
                pad.fill(to.data, 0x7fc00000, values.size() * sizeof(float));
                const Ticket count = count_submissions(pad, [&] { copy_vec4(pad, to, from, vec4s, block); });
                EXPECT_GE(count, !is_short ? 1u : vec4s == 77 ? 39u : 2u);
                ASSERT_EQ(to.values(), values) << "run " << run;
            }
        }
    });
}

// Workgroups that take turns do so whatever a submission holds of them.
TEST(Submissions, DivideKernelsWithLoops) {
    for_short_and_long([](LaunchPad& pad, bool) {
        const int count = 3;
        const size_t n = 8195, stride = 8200;
        const std::vector<float> values = numbered(count * stride);
        DeviceArray<float> inp(pad, values);
        for (int run = 0; run < 6; run++) {
            DeviceArray<float> sum(pad, std::vector<float>(n, NAN));
            gradient_sum_versions<float>()[0].launch(pad,
                                                     {.out = sum.data,
                                                      .inp = inp.data,
                                                      .own = nullptr,
                                                      .n = n,
                                                      .stride = stride,
                                                      .count = count,
                                                      .own_index = -1},
                                                     64);
            const std::vector<float> got = sum.values();
            for (size_t i = 0; i < n; i++)
                ASSERT_EQ(got[i], values[i] + values[stride + i] + values[2 * stride + i]) << i;
        }
    });
}

// A recording is executed command by command until all have been timed; what it computes stays the same.
TEST(Submissions, RecordingsRepeatTheirCommands) {
    for_short_and_long([](LaunchPad& pad, bool) {
        const int n = 300000;
        DeviceArray<float> total(pad, std::vector<float>{0.0f}), one(pad, std::vector<float>{1.0f});
        DeviceArray<float> from(pad, numbered(n)), middle(pad, std::vector<float>(n, NAN)),
            to(pad, std::vector<float>(n, NAN));
        pad.begin_recording();
        {
            const ConcurrentGroup group(&pad);
            add_to(pad, total, one, 1);
            copy_vec4(pad, middle, from, n / 4, 256);
        }
        pad.copy_async({{to.data, middle.data, n * sizeof(float)}});
        add_to(pad, total, one, 1, 10.0f);
        pad.finish_copies();
        pad.fill(middle.data, 0, n * sizeof(float));
        Recording* recording = pad.end_recording();
        for (int i = 1; i <= 8; i++) {
            pad.fill(to.data, 0, n * sizeof(float));
            pad.replay(recording);
            ASSERT_EQ(total.values()[0], 11.0f * float(i));
            ASSERT_EQ(to.values(), numbered(n)) << i;
            ASSERT_EQ(middle.values(), std::vector<float>(n, 0.0f)) << i;
        }
        pad.forget(recording);
    });
}

// Once its kernels have been timed, a recording that is short enough is one submission.
TEST(Submissions, OfARecording) {
    for_short_and_long([](LaunchPad& pad, bool is_short) {
        DeviceArray<float> from(pad, numbered(4 * 77)), to(pad, std::vector<float>(4 * 77, NAN));
        pad.begin_recording();
        for (int i = 0; i < 5; i++) copy_vec4(pad, to, from, 77, 2);
        Recording* recording = pad.end_recording();
        EXPECT_GE(count_submissions(pad, [&] { pad.replay(recording); }), 3u);  // timed
        EXPECT_TRUE(pad.is_done(pad.commit()));
        for (int i = 0; i < 2; i++)
            EXPECT_EQ(count_submissions(pad, [&] { pad.replay(recording); }), is_short ? 5 * 39u : 1u);
        pad.forget(recording);
        EXPECT_EQ(to.values(), from.values());
    });
}

// The programs, all of whose kernels are divided: 20 texts at a time take a grid of two dimensions.
TEST(Submissions, ProgramsComputeTheSameBits) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const Data data;
    const std::string model = "custom:layers=2,heads=2,channels=24,max_seq_len=32,vocab=257";
    const auto run = [](const char* ms, const Words& command) {
        setenv("LAUNCHPAD_SUBMISSION_MS", ms, 1);
        const ProgramResult result = run_program(with(command, {"--device", device()}));
        unsetenv("LAUNCHPAD_SUBMISSION_MS");
        EXPECT_EQ(result.status, 0) << result.err;
        return result.out;
    };
    for (const auto& [optimizer, precision] : {std::pair("adamw", "bf16"), std::pair("muon", "fp32")}) {
        SCOPED_TRACE(format_string("%s %s", optimizer, precision));
        const std::string whole = data / "whole", divided = data / "divided";
        for (const auto& [ms, output] : {std::pair("1000000", whole), std::pair("0.01", divided)})
            run(ms, {program, "-i", data.train, "-j",          data.val,  "-e",          model,    "-b", "3",
                     "-t",    "17", "-x",       "4",           "-v",      "2",           "-m",     "2",  "-s",
                     "0",     "-o", output,     "--optimizer", optimizer, "--precision", precision});
        for (auto path : {model_path, optimizer_path, run_path})
            EXPECT_TRUE(read_whole_file(path(whole, 4)) == read_whole_file(path(divided, 4)));
        const Words generate = {BINARY_DIR "/generate", "-e",      whole, "-n", "9", "--samples", "20",
                                "--precision",          precision, ""};
        EXPECT_EQ(run("1000000", generate), run("0.01", generate));
    }
}

TEST(Submissions, GoToAFamilyWithoutGraphics) {
    const auto families = [](std::initializer_list<VkQueueFlags> flags) {
        std::vector<VkQueueFamilyProperties> all;
        for (const VkQueueFlags f : flags) all.push_back({.queueFlags = f});
        return all;
    };
    const VkQueueFlags graphics = VK_QUEUE_GRAPHICS_BIT, compute = VK_QUEUE_COMPUTE_BIT,
                       transfer = VK_QUEUE_TRANSFER_BIT, amd = 0x1002, nvidia = 0x10de;
    EXPECT_EQ(compute_family(families({graphics | compute | transfer, compute | transfer}), amd), 1);
    EXPECT_EQ(compute_family(families({graphics | compute | transfer, transfer, compute}), nvidia), 0);
    EXPECT_EQ(compute_family(families({graphics, transfer, graphics | compute}), amd), 2);
    EXPECT_EQ(compute_family(families({compute | transfer}), amd), 0);
    EXPECT_EQ(compute_family(families({graphics, transfer}), amd), -1);
}
