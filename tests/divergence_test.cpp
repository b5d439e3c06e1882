// Models and runs with values that are not finite: files with NaN or infinity are refused by every program,
// and a run whose updates are skipped one after the other stops and keeps its last healthy checkpoint. Some
// tensors are tried in each program and file; NOT_FINITE_ALL=1 tries all.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "llmc/base/file.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/hugging_face.h"
#include "llmc/run/run_state.h"
#include "tests/tiny_run.h"
#include "tests/token_shard.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static void expect_one_line(const ProgramResult& result, const Words& says) {
    expect_refusal(result);
    for (const std::string& text : says) EXPECT_TRUE(contains(result.err, text));
}

// The tensors that are tried: the first ones, one in the middle, and the last of a layer.
static std::vector<int> tensors_to_try() {
    if (!getenv("NOT_FINITE_ALL")) return {WTE, WPE, QKVW, FCPROJB};
    std::vector<int> all(NUM_PARAMETER_TENSORS);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

using Divergence = WithData;

// A file of llm.c's, in which the last value of a tensor is bad, or of Hugging Face; in fp32 or bf16.
TEST_F(Divergence, ModelsThatAreNotFiniteAreRefused) {
    const ModelConfig config =
        parse_descriptor("custom:layers=2,heads=2,channels=24,max_seq_len=32,vocab=257");
    const std::vector<int> tried = tensors_to_try();
    for (int bad_tensor = 0; bad_tensor < NUM_PARAMETER_TENSORS; bad_tensor++)
        for (const float bad : {NAN, INFINITY, -INFINITY}) {
            const auto fill_at = [&](size_t at) {
                return [=](int tensor, size_t offset, float* values, size_t n) {
                    std::fill_n(values, n, 0.01f);
                    if (tensor == bad_tensor && at >= offset && at < offset + n) values[at - offset] = bad;
                };
            };
            const bool in_bf16 = bad_tensor % 2;
            write_model(data / "bad.bin", config, fill_at(parameter_size(config, bad_tensor) - 1), in_bf16);
            write_hugging_face(data / "hf", config, fill_at(1),
                               in_bf16 ? StoredType::bf16 : StoredType::fp32);
            for (const std::string model : {"bad.bin", "hf/model.safetensors"}) {
                Words says = {model, parameter_info[bad_tensor].name, std::isnan(bad) ? "nan" : "inf"};
                if (model != "bad.bin") says.push_back("at element 1");
                if (parameter_info[bad_tensor].per_layer && model == "bad.bin") says.push_back("layer 1");
                std::vector<Words> commands = {{"train_gpt2", "--export", "hf", data / "out"}};
                if (std::ranges::count(tried, bad_tensor))
                    commands.insert(commands.end(),
                                    {args("train_gpt2 -i", data.train, "-b 1 -t 8 -x 1 -s 0 -v 0"),
                                     {"eval", "-i", data.val},
                                     {"generate", "text"}});
                for (Words& command : commands) {
                    SCOPED_TRACE(command[0] + " " + model);
                    command[0] = bin(command[0]);
                    const ProgramResult result =
                        run_program(with(command, {"-e", data / model, "--device", "cpu"}));
                    EXPECT_EQ(result.status, 1);
                    EXPECT_TRUE(command[0] == program || result.out.empty()) << result.out;
                    for (const std::string& text : says) EXPECT_TRUE(contains(result.err, text));
                }
                EXPECT_FALSE(std::filesystem::exists(data / "out/model.safetensors"));
            }
        }
}

// Finite weights, whose logits overflow: no program takes such a loss for a result.
TEST_F(Divergence, LossesThatOverflowAreNoResult) {
    const std::string model = data / "large.bin", questions = data / "hellaswag.bin", run = data / "run";
    write_model(model, parse_descriptor(tiny), [](int, size_t, float* values, size_t n) {
        for (size_t i = 0; i < n; i++) values[i] = i % 2 ? 3e38f : -3e38f;
    });
    const HellaSwagExample example = {0, {1, 6, 11}, {{{16, 5}, {21, 2}, {3, 4}, {5, 1}}}};
    write_hellaswag(questions, std::vector<HellaSwagExample>(5, example));
    const std::string eval = BINARY_DIR "/eval";
    const Words evaluations[] = {{"-i", data.val, "eval: the loss is not finite"},
                                 {"--hellaswag", questions, "5 of 5 examples"}};
    for (const Words& e : evaluations) {
        const ProgramResult result = run_program({eval, "-e", model, e[0], e[1], "--device", "cpu"});
        EXPECT_EQ(result.status, 1) << result.out;
        EXPECT_EQ(result.out, "");
        EXPECT_TRUE(contains(result.err, e[2]));
    }
    const std::string trained = output_of(run_program(
        "train_gpt2 -e", model, "-i", data.train, "-j", data.val,
        "-b 1 -t 17 -x 4 -v 2 -s 0 -n 2 -h 1 --hellaswag-file", questions, "--device cpu -o", run));
    EXPECT_TRUE(contains(trained, "there is no accuracy"));
    EXPECT_TRUE(contains(trained, "none was finite"));
    EXPECT_FALSE(contains(trained, "HellaSwag: 0/5"));
    for (const char* logged : {"tel:", "eval:"})
        EXPECT_FALSE(contains(read_whole_file(run + "/main.log"), logged));
}

// A checkpoint whose checksum is right, but whose state is not finite.
TEST_F(Divergence, StatesThatAreNotFiniteAreRefused) {
    const std::string run = data / "run";
    expect_ok(data.run(args("-x 2 -n 2 -s 0 -v 0 --device cpu --precision bf16 -o", run)));
    const ModelConfig config = read_model_header(model_path(run, 2));
    const OptimizerState state = read_optimizer_state(optimizer_path(run, 2), config);
    const std::string json = check_checkpoint(run, 2);
    const std::pair<Moment, const char*> moments[] = {
        {MOMENT_M, "moment m of "}, {MOMENT_V, "moment v of "}, {MASTER_WEIGHTS, "master weights of "}};
    int runs = 0;
    for (const int bad_tensor : tensors_to_try())
        for (const auto& [bad, name] : moments) {
            auto fill = [](int, size_t, float* values, size_t n) { std::fill_n(values, n, 0.5f); };
            auto fill_moment = [&, bad = bad](Moment moment, int tensor, size_t, float* values, size_t n) {
                std::fill_n(values, n, moment == bad && tensor == bad_tensor ? INFINITY : 0.5f);
            };
            write_checkpoint(run, {config, state, fill, fill_moment, true, json});
            expect_one_line(
                run_program("train_gpt2 -y 1 -o", run, "-x 3"),
                {"state_00000002_00000.bin", name + std::string(parameter_info[bad_tensor].name), "inf"});
            runs++;
        }
    printf("states: %d runs refused\n", runs);
}

// A flipped sign or exponent: the updates would be NaN.
TEST_F(Divergence, ImpossibleMomentsAreRefused) {
    const std::string run = data / "run";
    expect_ok(data.run({"-x", "2", "-n", "2", "-s", "0", "-v", "0", "--device", "cpu", "-o", run}));
    const ModelConfig config = read_model_header(model_path(run, 2));
    const OptimizerState state = read_optimizer_state(optimizer_path(run, 2), config);
    auto fill = [](int, size_t, float* values, size_t n) { std::fill_n(values, n, 0.5f); };
    struct Bad {
        Moment moment;
        float value;
        const char* cannot_be;
    };
    for (const int bad_tensor : tensors_to_try())
        for (const Bad& bad : {Bad{MOMENT_M, -1e-12f, ""},
                               {MOMENT_M, -3e38f, "that large"},
                               {MOMENT_V, -1e-12f, "negative"}}) {
            auto fill_moment = [&](Moment moment, int tensor, size_t offset, float* values, size_t n) {
                std::fill_n(values, n, 0.5f);
                const bool has_last = offset + n == parameter_size(config, tensor);
                if (moment == bad.moment && tensor == bad_tensor && has_last) values[n - 1] = bad.value;
            };
            write_checkpoint(run, {config, state, fill, fill_moment, false, check_checkpoint(run, 2)});
            const ProgramResult result = run_program("train_gpt2 -y 1 -o", run, "-x 2");
            EXPECT_EQ(result.status, *bad.cannot_be != 0) << result.err;
            if (!*bad.cannot_be) continue;
            const std::string name = std::string(bad.moment == MOMENT_V ? "moment v of " : "moment m of ") +
                                     parameter_info[bad_tensor].name;
            expect_one_line(result,
                            {"state_00000002_00000.bin: " + name, std::string("cannot be ") + bad.cannot_be});
        }
}

TEST_F(Divergence, ARunOfSkippedUpdatesStops) {
    for (const std::string& where : devices()) {
        const Words options = args("-s 0 -v 0 -l 1000 -c 1 --device", where, "-x 200");
        const ProgramResult result = data.run(options);
        const std::string skipped = where == "cpu" ? "the last 25 updates were skipped"
                                                   : "updates were skipped";  // a device may be a step ahead
        expect_one_line(result, {"the run has diverged", skipped, "lower learning rate"});
        EXPECT_LT(printed_losses(result.out).size(), 100u);
        if (where != "cpu") continue;  // the host counts
        const ProgramResult sooner = data.run(with(options, {"--max-nonfinite-updates", "5"}));
        expect_one_line(sooner, {"the last 5 updates"});
        EXPECT_FALSE(contains(sooner.out, "200/200"));
        expect_ok(data.run(with(options, {"--max-nonfinite-updates", "0"})), "200/200");
    }
}

// 40 healthy steps; then the learning rate goes to 1000. Pruning keeps one checkpoint of those steps.
TEST_F(Divergence, PruningKeepsTheLastHealthyCheckpoint) {
    const std::string run = data / "run";
    const Words options = args("-s 0 -v 0 -n 4 -nk 2 -c 1 -o", run, "--device cpu");
    expect_ok(data.run(with(options, {"-x", "40", "-l", "0.001"})));
    EXPECT_EQ(list_checkpoints(run), (std::vector<int>{40, 36}));  // nothing more is kept while all is well
    const ProgramResult diverged = data.run(with(options, args("-x 400 -l 1000 -k constant -y 1")));
    expect_one_line(diverged, {"the run has diverged", "resume with -y 1 and a lower learning rate"});
    std::vector<int> left = list_checkpoints(run);
    ASSERT_GE(left.size(), 2u);
    const int kept = left.back();  // the oldest one
    EXPECT_TRUE(contains(diverged.err, "from step " + std::to_string(kept)));
    EXPECT_TRUE(contains(diverged.err, "delete the later checkpoints"));
    EXPECT_GE(kept, 40);
    for (const int step : left)
        if (step > kept) delete_checkpoint(run, step);
    EXPECT_EQ(run_state_from_json(check_checkpoint(run, kept), "it").healthy_checkpoint, kept);
}

// Loss and gradients are finite, and the second update overflows: weight decay multiplies each weight by
// 1 - 3 * 1000, and the last position, which a batch of 17 tokens does not use, starts with a large one.
TEST_F(Divergence, WeightsThatOverflowAreNotSaved) {
    const std::string run = data / "run", model = data / "large.bin";
    const ModelConfig config = parse_descriptor(tiny);
    write_model(model, config, [&](int tensor, size_t offset, float* values, size_t n) {
        for (size_t i = 0; i < n; i++) values[i] = 0.01f * float((offset + i) % 7);
        if (tensor == WPE && offset + n == parameter_size(config, tensor)) values[n - 1] = 1e33f;
    });
    const Words options =
        args(program, "-e", model, "-i", data.train, "-j", data.val,
             "-b 3 -t 17 -l 3 -c 1000 -k constant -n 1 -nk 1 --device cpu -s 0 -v 0 -o", run, "-x 9");
    const ProgramResult result = run_program(options);
    expect_one_line(result, {"cannot be saved: ", "the model has diverged", "-y 1 resumes from there"});
    EXPECT_EQ(list_checkpoints(run), std::vector<int>{1});
    EXPECT_FALSE(std::filesystem::exists(model_path(run, 2)));
    check_checkpoint(run, 1);
    expect_one_line(run_program(with(options, {"-y", "1"})), {"cannot be saved: "});
    EXPECT_EQ(list_checkpoints(run), std::vector<int>{1});
    const ProgramResult eval = run_program("eval -e", run, "-i", data.val, "--device cpu");
    EXPECT_FALSE(contains(eval.out, "perplexity inf"));
    EXPECT_TRUE(contains(eval.out, "perplexity over 1e308")) << eval.err;
}

TEST_F(Divergence, HealthIsJudgedByTheLastSteps) {
    StepJudge judge;
    EXPECT_TRUE(judge.is_healthy(0));
    for (int step = 1; step <= 30; step++) {
        judge.judge(1.0f, 1.0f, 1.0f);
        EXPECT_TRUE(judge.is_healthy(step)) << step;
    }
    judge.judge(NAN, 1.0f, 1.0f);
    judge.judge(1.0f, INFINITY, 0.0f);
    EXPECT_EQ(judge.not_finite_in_a_row, 2);
    EXPECT_FALSE(judge.is_healthy(32));
    for (int step = 33; step < 33 + StepJudge::healthy_stretch; step++) {
        EXPECT_FALSE(judge.is_healthy(step - 1)) << step;
        judge.judge(1.0f, 1.0f, 1.0f);
        EXPECT_EQ(judge.not_finite_in_a_row, 0);
    }
    EXPECT_TRUE(judge.is_healthy(32 + StepJudge::healthy_stretch));
    RunState state;
    state.judge = judge;
    state.healthy_checkpoint = 57;
    const RunState read = run_state_from_json(run_state_to_json(state), "it");
    EXPECT_EQ(read.judge.finite_in_a_row, StepJudge::healthy_stretch);
    EXPECT_EQ(read.judge.not_finite_in_a_row, 0);
    EXPECT_EQ(read.healthy_checkpoint, 57);
}

// An error in the middle of a run, here a token past the vocabulary, saves the steps before it.
TEST_F(Divergence, AFatalErrorSavesFirst) {
    std::vector<uint16_t> tokens(4000, 5);
    tokens[3000] = 500;
    write_token_shard(data.train, tokens.data(), tokens.size());
    for (const std::string& where : devices()) {
        const std::string run = data / ("run" + where);
        const ProgramResult result =
            data.run(args("-x 78 -n 1000 -s 0 -v 0 -d 102 --device", where, "-o", run));
        expect_one_line(result, {"500", "-y 1 resumes from step "});
        const int step = find_latest_checkpoint(run).step, printed = int(printed_losses(result.out).size());
        EXPECT_EQ(step, printed) << result.out;
        EXPECT_GT(step, 1);
        // the same as a run that was to end there
        expect_refusal(data.run(args("-x 78 -n", std::to_string(step), "-s 0 -v 0 -d 102 --device", where,
                                     "-o", data / "other")));
        expect_bit_identical(run, data / "other", step);
        std::filesystem::remove_all(data / "other");
    }
}
