// The program train_gpt2: losses fall and are bitwise reproducible, devices agree, checkpoints hold the
// trained model, and every kind of bad input gives one line and status 1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <regex>

#include "llmc/base/file.h"
#include "llmc/base/real.h"
#include "llmc/files/checkpoint.h"
#include "tests/terminal.h"
#include "tests/tiny_run.h"
#include "tests/token_shard.h"

static const Words schedule = words_of("-x 30 -l 0.01 -s 0 -v 15 -n 30 -c 0.1 -d 102");

using train_gpt2 = WithData;

TEST_F(train_gpt2, a_gpu_agrees_with_the_cpu_and_is_reproducible) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none: no Vulkan device is to be used";
    const ProgramResult cpu = data.run(with(schedule, {"--device", "cpu"}));
    const ProgramResult gpu = data.run(with(schedule, {"--device", device(), "-o", data / "a"}));
    const ProgramResult again = data.run(with(schedule, {"--device", device(), "-o", data / "b"}));
    ASSERT_EQ(cpu.status, 0) << cpu.err;
    ASSERT_EQ(gpu.status, 0) << gpu.err;
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_FALSE(contains(gpu.err, "validation:"));
    const std::vector<double> a = printed_losses(cpu.out), b = printed_losses(gpu.out);
    ASSERT_EQ(a.size(), 30u);
    ASSERT_EQ(b.size(), 30u);
    for (size_t i = 0; i < a.size(); i++) EXPECT_NEAR(a[i], b[i], 1e-3) << "step " << i;
    EXPECT_EQ(read_whole_file(data / "a/main.log"), read_whole_file(data / "b/main.log"));
    EXPECT_EQ(read_whole_file(model_path(data / "a", 30)), read_whole_file(model_path(data / "b", 30)));
}

TEST_F(train_gpt2, accumulating_gradients_equals_a_larger_batch) {
    // -a 1 trains on the first batch in every micro-step, so both runs see the same tokens
    auto run = [&](const std::string& b, const std::string& d) {
        return printed_losses(run_program("train_gpt2 -j", data.val, "-e", tiny, "-b", b, "-t 16 -d", d,
                                          "-a 1 -x 4 -l 0.01 -s 0 -v 0 --device cpu")
                                  .out);
    };
    const std::vector<double> once = run("2", "32"), twice = run("2", "64");
    ASSERT_EQ(once.size(), 4u);
    ASSERT_EQ(twice.size(), 4u);
    for (size_t i = 0; i < 4; i++) EXPECT_NEAR(once[i], twice[i], 2e-5) << "step " << i;
}

static int32_t header_int(const std::string& path, size_t index) {
    const std::string bytes = read_whole_file(path);
    int32_t value = -1;
    if (bytes.size() >= 1024) memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
}

// Rounding errors change single losses, not the curve: after 30 steps the losses of all types agree. Runs
// repeat bit-identically.
TEST_F(train_gpt2, sixteen_bits_follow_fp32) {
    const std::vector<double> full = printed_losses(data.run(with(schedule, {"--device", "cpu"})).out);
    ASSERT_EQ(full.size(), 30u);
    EXPECT_LT(full.back(), full[0] - 0.3);
    struct Case {
        const char *precision, *master;
        double limit;
    };
    for (const std::string& where : devices())
        for (const Case& c : {Case{"bf16", "1", 0.03}, Case{"bf16", "0", 0.1}, Case{"fp16", "1", 0.01}}) {
            if (where != "cpu" && c.limit == 0.1) continue;  // adamw_test has it on a device
            SCOPED_TRACE(std::string(c.precision) + ", master weights " + c.master + ", on " + where);
            const Words options =
                with(schedule, {"--device", where, "--precision", c.precision, "-w", c.master});
            const std::string a = data / "a", b = data / "b";
            const ProgramResult first = data.run(with(options, {"-o", a}));
            const ProgramResult again = data.run(with(options, {"-o", b}));
            ASSERT_EQ(first.status, 0) << first.err;
            EXPECT_FALSE(contains(first.err, "validation:"));
            const std::vector<double> losses = printed_losses(first.out);
            ASSERT_EQ(losses.size(), 30u);
            EXPECT_NE(losses, full);
            for (size_t i = 0; i < 30; i++) EXPECT_NEAR(losses[i], full[i], c.limit) << "step " << i;
            EXPECT_EQ(losses, printed_losses(again.out));
            expect_bit_identical(a, b, 30);
            EXPECT_EQ(header_int(model_path(a, 30), 1), std::string(c.precision) == "bf16" ? 5 : 3);
            EXPECT_EQ(header_int(optimizer_path(a, 30), 4), atoi(c.master));
        }
}

// The number behind `label` in the plan's line of memory; NaN: it is not there.
static double planned_mib(const std::string& out, const std::string& label) {
    double mib = NAN;
    const size_t at = out.find(" " + label + " ");
    if (at != std::string::npos) sscanf(out.c_str() + at + label.size() + 2, "%lf", &mib);
    return mib;
}

// Three steps of two micro-steps each with these settings of -r leave the same files.
static void check_recomputation(const Words& settings, const Words& options) {
    const Data data;
    double last_mib = 1e9;
    for (const std::string& recompute : settings) {
        SCOPED_TRACE("-r " + recompute);
        const std::string folder = data / recompute;
        const std::string result = output_of(
            data.run(with(args("-e custom:layers=6,heads=2,channels=24,max_seq_len=32,vocab=67 -b 20 -d 680 "
                               "-x 3 -l 0.01 -s 0 -v 2 -n 3 -r",
                               recompute, "-o", folder),
                          options)));
        expect_bit_identical(data / "0", folder, 3);
        EXPECT_EQ(printed_losses(result).size(), 3u) << result;
        const double mib = planned_mib(result, "activations");
        EXPECT_LT(mib, last_mib) << result;
        last_mib = mib;
    }
}

TEST_F(train_gpt2, recomputing_only_saves_memory_on_the_cpu) {
    for (const char* dropout : {"0", "0.2"}) {
        SCOPED_TRACE(std::string("dropout ") + dropout);
        check_recomputation({"0", "1", "2", "3"}, args("--device cpu --precision bf16 --dropout", dropout));
    }
}

TEST_F(train_gpt2, recomputing_only_saves_memory_on_a_device) {
    if (devices().back() == "cpu") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    check_recomputation({"0", "3"}, args("--device", devices().back(), "--precision bf16 --dropout 0.2"));
}

// Each offloaded or not: the first half of a run, and the second, which resumes it. LAUNCHPAD_STAGED makes
// the device one with memory of its own.
static void check_offload(const Data& data, const std::string& where, const std::string& optimizer) {
    const Words options = args("--device", where, "--optimizer", optimizer,
                               "--precision bf16 -x 6 -l 0.01 -s 0 -v 0 -n 3 -r 3");
    const std::string whole = output_of(data.run(with(options, {"-o", data / "whole"})));
    EXPECT_FALSE(contains(whole, "host memory"));
    for (const char* first : {"none", "optimizer"}) {
        const std::string folder = data / first;
        const std::string start = output_of(data.run(with(options, {"-o", folder, "--offload", first})));
        delete_checkpoint(folder, 6);
        const std::string second = first == std::string("none") ? "optimizer" : "none";
        const std::string resumed =
            output_of(data.run(with(options, {"-o", folder, "-y", "1", "--offload", second})));
        EXPECT_TRUE(contains(resumed, "at step 3"));
        const std::string& offloaded = second == "none" ? start : resumed;
        const std::string sign = where == "cpu" ? "--offload optimizer has no effect" : "MiB of host memory";
        EXPECT_TRUE(contains(offloaded, sign));
        expect_bit_identical(data / "whole", folder, 6);
    }
}

TEST_F(train_gpt2, offloading_the_optimizer_is_bit_identical) {
    setenv("LAUNCHPAD_STAGED", "1", 1);
    for (const std::string& where : devices())
        for (const std::string& optimizer : optimizer_names()) {
            if (where == "cpu" && optimizer != "adamw") continue;  // the option has no effect
            SCOPED_TRACE(optimizer + " on " + where);
            check_offload(Data(), where, optimizer);
        }
    unsetenv("LAUNCHPAD_STAGED");
}

// The model in the file as float, whatever its type there.
static std::vector<float> all_weights(const std::string& path) {
    std::vector<float> weights;
    read_model(path, [&](int, size_t, const float* values, size_t count) {
        weights.insert(weights.end(), values, values + count);
    });
    return weights;
}

TEST_F(train_gpt2, reads_checkpoints_of_either_precision_into_either) {
    auto run = [&](const std::string& precision, const std::string& model, const std::string& output,
                   const std::string& steps) {
        expect_ok(data.run(args("-e", model, "-x", steps, "-n 9 -v 0 -s 0 -l 0.01 --device cpu --precision",
                                precision, "-o", output)));
        return model_path(output, atoi(steps.c_str()));
    };
    const std::string full = run("fp32", tiny, data / "full", "3"),
                      half = run("bf16", tiny, data / "half", "3");
    EXPECT_EQ(read_whole_file(run("fp32", full, data / "again32", "0")), read_whole_file(full));
    EXPECT_EQ(read_whole_file(run("bf16", half, data / "again16", "0")), read_whole_file(half));
    const std::string widened = run("fp32", half, data / "widened", "0");
    EXPECT_EQ(header_int(widened, 1), 3);
    EXPECT_EQ(all_weights(widened), all_weights(half));
    const std::string rounded = run("bf16", full, data / "rounded", "0");
    EXPECT_EQ(header_int(rounded, 1), 5);
    std::vector<float> expected = all_weights(full);
    for (float& weight : expected) weight = float(bf16(weight));
    EXPECT_EQ(all_weights(rounded), expected);
    const std::string fp16_file = run("fp16", half, data / "fp16", "0");  // exact except for tiny weights
    EXPECT_EQ(header_int(fp16_file, 1), 3);
    const std::vector<float> from = all_weights(half), to = all_weights(fp16_file);
    for (size_t i = 0; i < from.size(); i++) ASSERT_NEAR(from[i], to[i], 0x1p-25) << i;
}

// All types start from the same random numbers, rounded once. The master weights are not rounded.
TEST_F(train_gpt2, sixteen_bits_start_from_the_weights_of_fp32) {
    std::vector<float> weights[3];
    for (int i = 0; i < 3; i++) {
        const char* precision[] = {"fp32", "bf16", "fp16"};
        expect_ok(data.run(
            args("-x 0 -s 0 -v 0 -n 1 --device cpu --precision", precision[i], "-o", data / precision[i])));
        weights[i] = all_weights(model_path(data / precision[i], 0));
    }
    ASSERT_EQ(weights[0].size(), weights[1].size());
    ASSERT_EQ(weights[0].size(), weights[2].size());
    for (size_t i = 0; i < weights[0].size(); i++) {
        ASSERT_EQ(weights[1][i], float(bf16(weights[0][i]))) << i;
        ASSERT_EQ(weights[2][i], float(fp16(weights[0][i]))) << i;
    }
    std::vector<float> master;
    const ModelConfig config = read_model_header(model_path(data / "bf16", 0));
    read_moments(optimizer_path(data / "bf16", 0), config,
                 [&](Moment moment, int, size_t, const float* values, size_t count) {
                     if (moment == MASTER_WEIGHTS) master.insert(master.end(), values, values + count);
                 });
    EXPECT_EQ(master, weights[0]);
}

TEST_F(train_gpt2, fp16_scales_the_loss_down_when_gradients_overflow) {
    for (const std::string& where : devices()) {
        const std::string result =
            output_of(run_program("train_gpt2 -i", data.train, "-e", tiny,
                                  "-b 1 -t 1 -x 30 -s 0 -l 0.01 --device", where, "--precision fp16"));
        EXPECT_TRUE(contains(result, "scaled by 32768"));
        EXPECT_TRUE(contains(result, "the update was skipped"));
        const size_t last = result.rfind("step   30/30");
        ASSERT_NE(last, std::string::npos) << result;
        EXPECT_EQ(result.find("nan", last), std::string::npos) << result;
        EXPECT_EQ(result.find("inf", last), std::string::npos) << result;
    }
}

// One batch in forty has tokens that occur nowhere else.
TEST_F(train_gpt2, skips_outliers_on_request) {
    std::vector<uint16_t> tokens(6401);
    for (size_t i = 0; i < tokens.size(); i++)
        tokens[i] = uint16_t(i / 16 % 40 == 20 ? 30 + i * 7 % 37 : i % 4);
    write_token_shard(data.train, tokens.data(), tokens.size());
    for (const std::string& where : devices()) {
        const Words options = args("-b 1 -t 16 -x 390 -s 0 -v 0 -l 0.01 --device", where, "-o", data / where);
        const bool cpu = where == "cpu";  // the host judges; a device skips what it is told to
        if (cpu) {
            const std::string plain = output_of(data.run(options));
            EXPECT_EQ(count_of(plain, "was skipped"), 0) << plain;
        }
        for (const std::string flag : {"-sl", "-sg"}) {
            if (!cpu && flag == "-sl") continue;
            const std::string skipping = output_of(data.run(with(options, {flag, "6"})));
            const int skipped = count_of(skipping, "is an outlier; the update was skipped");
            EXPECT_GE(skipped, 2) << flag;
            EXPECT_LE(skipped, 10) << flag;
            EXPECT_EQ(count_of(read_whole_file(data / (where + "/metrics.csv")), ",outlier,"), skipped);
            EXPECT_TRUE(contains(skipping, std::to_string(skipped) + " updates were skipped"));
        }
    }
}

TEST_F(train_gpt2, updates_that_are_not_finite_are_skipped_and_counted) {
    for (const std::string& where : devices()) {
        const std::string result = output_of(
            data.run(args("-x 20 -s 0 -v 0 -l 1000 -c 1 -n 20 --device", where, "-o", data / where)));
        const int skipped = count_of(result, "is not finite; the update was skipped");
        EXPECT_GE(skipped, 1) << result;
        EXPECT_EQ(count_of(read_whole_file(data / (where + "/metrics.csv")), ",not finite,"), skipped);
        EXPECT_TRUE(contains(result, std::to_string(skipped) + " updates were skipped"));
        for (float weight : all_weights(model_path(data / where, 20))) ASSERT_TRUE(std::isfinite(weight));
    }
}

TEST_F(train_gpt2, overfits_one_batch) {
    const std::string result = output_of(run_program(
        "train_gpt2 -j", data.val, "-e", tiny, "-b 2 -t 16 -a 1 -x 150 -l 0.01 -s 0 -v 0 --device cpu"));
    EXPECT_NEAR(printed_losses(result)[0], std::log(67), 0.3);
    EXPECT_LT(printed_losses(result).back(), 0.1);
}

TEST_F(train_gpt2, runs_on_the_given_number_of_threads) {
    const Words options = args("-x 3 -s 0 -v 0 --device cpu --threads");
    const ProgramResult one = data.run(with(options, {"1"})), three = data.run(with(options, {"3"}));
    EXPECT_TRUE(contains(one.out, "device: CPU, 1 thread "));
    EXPECT_TRUE(contains(three.out, "device: CPU, 3 threads"));
    EXPECT_EQ(printed_losses(one.out), printed_losses(three.out));
    setenv("OMP_THREAD_LIMIT", "2", 1);
    EXPECT_TRUE(contains(data.run(with(options, {"3"})).out, "device: CPU, 2 threads"));
    unsetenv("OMP_THREAD_LIMIT");
}

TEST_F(train_gpt2, profiles_a_gpu) {
    const Words options = args("-x 2 -s 0 -v 0 --profile --device");
    const ProgramResult cpu = data.run(with(options, {"cpu"}));
    EXPECT_TRUE(contains(cpu.out, "no profile"));
    if (device() == "none") return;
    const std::string gpu = output_of(data.run(with(options, {device(), "--precision", "bf16"})));
    for (const char* text : {"kernel", "share", "_bf16", "peaks: copy"}) EXPECT_TRUE(contains(gpu, text));
    const std::regex once("\\nsum_losses2_fp32 +1 ");  // not in the first of the two steps
    EXPECT_TRUE(std::regex_search(gpu, once)) << gpu;
}

TEST_F(train_gpt2, a_dry_run_prints_the_plan_and_writes_nothing) {
    for (const std::string& where : devices()) {
        const std::string result =
            output_of(data.run(args("-x 1000 -d 102 -n 5 -o", data / "out", "--dry-run --device", where)));
        for (const char* text :
             {"memory: ", "optimizer", "the largest batch that fits and divides -d 102 is -b 6\n",
              "tokens: 1.02e+05 in 1000 steps, 25.50 epochs", "operations: ", "time: about "})
            EXPECT_TRUE(contains(result, text));
        EXPECT_FALSE(contains(result, "\nstep "));
        EXPECT_FALSE(std::filesystem::exists(data / "out"));
    }
}

TEST_F(train_gpt2, out_of_memory_suggests_a_change) {
    expect_refusal(
        run_program(
            "train_gpt2 -i", data.train,
            "-e custom:layers=1024,heads=64,channels=8192,max_seq_len=32,vocab=67 -b 4 -t 32 --device cpu"),
        "not even one sequence fits: use a smaller model");
}

// A terminal gets one status line, which is overwritten, unless it knows no escape sequences.
TEST_F(train_gpt2, a_terminal_gets_one_status_line) {
    const Words command = args(program, "-i", data.train, "-j", data.val, "-e", tiny,
                               "-b 3 -t 17 -x 30 -v 10 -s 0 --device cpu -o", data / "out");
    const std::string shown = shown_on_terminal(command, "xterm");
    if (shown.empty()) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_FALSE(contains(shown, "step   30/30"));
    for (const char* part : {"[####################] 30/30 ETA 0:00:00 | loss ", "\r\033[K",
                             "step 1 (micro-batch 1 of 1)\r\033[K", "\033[Kval loss"})
        EXPECT_TRUE(contains(shown, part));
    EXPECT_EQ(data.losses(data / "out").size(), 30u);
    const std::string dumb = shown_on_terminal(command, "dumb");
    EXPECT_FALSE(contains(dumb, "\033"));
    EXPECT_TRUE(contains(dumb, "step   30/30"));
}

// Each line is written at once, in order, so that a log explains a wait.
TEST_F(train_gpt2, a_log_shows_what_happens_before_the_first_step) {
    const Words options = args("-x 1 -s 0 -d 102 --device");
    for (const std::string& where : devices()) {
        const std::string result = output_of(data.run(with(options, {where})));
        size_t at = 0;
        for (const char* line :
             {"device: ", "\nmodel: ", "\nmemory: ", "\nloading the parameters\n", "\nvalidating\n",
              "\nval loss ", "\nstep 1 (micro-batch 1 of 2)\n", "\nstep    1/1 | loss "}) {
            at = result.find(line, at);
            ASSERT_NE(at, std::string::npos) << line << "\n" << result;
        }
        EXPECT_EQ(result.find('\r'), std::string::npos) << result;
        if (where == "cpu") continue;
        EXPECT_TRUE(contains(result, "\ncompiling kernels (0 of "));
    }
}

TEST_F(train_gpt2, a_log_has_the_plan_before_an_error) {
    const std::string command = program + " -i " + data.train + " -e " + tiny +
                                " -b 3 -t 17 -x 1 -s 0 --device cpu -o " + data / "out" + " 2>&1";
    std::filesystem::create_directory(data / "out");
    std::filesystem::create_directory(data / "out/main.log");  // cannot be written
    const ProgramResult result = run_program({"sh", "-c", command});
    EXPECT_EQ(result.status, 1);
    const size_t plan = result.out.find("memory: "), error = result.out.find("train_gpt2: ");
    ASSERT_NE(plan, std::string::npos) << result.out;
    ASSERT_NE(error, std::string::npos) << result.out;
    EXPECT_LT(plan, error) << result.out;
}

// In llm.c, a sample leaves values in the memory of attention that the next steps read.
TEST_F(train_gpt2, pauses_between_steps_change_nothing) {
    for (const std::string& where : devices()) {
        const Words options = args("-x 6 -l 0.01 -g 30 --device", where, "-o");
        const ProgramResult plain = data.run(with(options, {data / "a", "-s", "0", "-v", "0", "-n", "6"}));
        const ProgramResult busy = data.run(with(options, {data / "b", "-s", "2", "-v", "2", "-n", "2"}));
        ASSERT_EQ(plain.status, 0) << plain.err;
        ASSERT_EQ(busy.status, 0) << busy.err;
        EXPECT_EQ(printed_losses(plain.out), printed_losses(busy.out));
        EXPECT_TRUE(read_whole_file(optimizer_path(data / "a", 6)) ==
                    read_whole_file(optimizer_path(data / "b", 6)));
    }
}

TEST_F(train_gpt2, bad_input_gives_one_line_and_status_1) {
    write_tokens(data / "large.bin", 4000, 5000);  // tokens past the vocabulary
    write_tokens(data / "short.bin", 20, 67);
    write_whole_file(data / "truncated.bin", {read_whole_file(data.train).substr(0, 5000)});
    const std::pair<Words, const char*> cases[] = {
        {{"-i", data / "nothing*.bin"}, "nothing"},
        {{"-i", data / "truncated.bin"}, "truncated"},
        {{"-i", data / "large.bin"}, "vocabulary"},
        {{"-i", data / "short.bin"}, "tokens"},
        {{"-e", "nonsense"}, "nonsense"},
        {{"-e", data / "missing.bin"}, "missing.bin"},
        {{"-e", data.train}, "train.bin"},
        {{"-e", "custom:layers=2,heads=0,channels=24,max_seq_len=32"}, "heads"},
        {{"-t", "33"}, "max_seq_len"},
        {{"-d", "100"}, "multiple"},
        {{"--device", "99"}, "99"},
        {{"--device", "no such gpu"}, "no such gpu"},
        {{"--tokenizer", data / "missing.bin"}, "missing.bin"},
        {{"--tokenizer", data.train}, "train.bin"},
        {{"--tokenizer", "bytes"}, "257 tokens"},
        {{"-o", data.train}, "train.bin"},
    };
    const Words usual = words_of("-x 1 -s 0 -v 0 --device cpu");
    for (const auto& [options, says] : cases) expect_refusal(data.run(with(usual, options)), says);
    expect_refusal(run_program("train_gpt2"));
}
