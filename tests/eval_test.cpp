// The program eval: loss, perplexity and bits per byte against known values, shards whose ends do not fill a
// batch, HellaSwag, and bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "llmc/model/gpt2.h"
#include "llmc/model/initialize.h"
#include "tests/compressed.h"
#include "tests/run_program.h"
#include "tests/terminal.h"
#include "tests/token_shard.h"

static const std::string program = BINARY_DIR "/eval";
static const std::string tiny = "custom:layers=2,heads=2,channels=32,max_seq_len=16,vocab=257";

static std::vector<uint16_t> some_tokens(size_t count) {
    std::vector<uint16_t> tokens(count);
    for (size_t i = 0; i < count; i++) tokens[i] = i % 20 == 0 ? 256 : uint16_t('a' + i * i % 23);
    return tokens;
}

// The sum of the losses over sequences of T tokens, one at a time.
static double expected_nats(const std::vector<uint16_t>& tokens, int T) {
    GPT2<float> g(parse_descriptor(tiny), nullptr);
    initialize_parameters(g.config, 42, parameter_writer(g));
    gpt2_allocate(g, 1, T, false);
    double sum = 0;
    for (size_t at = 0; at + 1 < tokens.size(); at += T) {
        const int count = int(std::min<size_t>(T, tokens.size() - 1 - at));
        const std::vector<int> values(tokens.begin() + at, tokens.begin() + at + count + 1);
        gpt2_set_batch(g, values.data(), values.data() + 1, count, false);
        gpt2_forward(g, 1, count);
        gpt2_head(g, 1, count, 1, Gradients::none);
        for (int t = 0; t < count; t++) sum += g.acts.losses[t];
    }
    return sum;
}

using Eval = InFolder;

TEST_F(Eval, LossPerplexityAndBitsPerByte) {
    const std::vector<uint16_t> a = some_tokens(83), b = some_tokens(8), empty = some_tokens(1);
    write_token_shard(folder / "a.bin", a.data(), a.size());
    write_token_shard(folder / "b.bin", b.data(), b.size());
    write_token_shard(folder / "c.bin", empty.data(), 1);
    int bytes = 0;
    for (const auto& tokens : {a, b})
        for (size_t i = 1; i < tokens.size(); i++) bytes += tokens[i] != 256;
    for (const int T : {16, 5}) {
        const double nats = expected_nats(a, T) + expected_nats(b, T);
        for (const char* B : {"1", "4", "32"}) {
            Words data = {"-i", folder / "*.bin"};
            if (T == 5) data = {"-i", folder / "a.bin", "-i", folder / "[bc].bin"};
            const std::string result = output_of(run_program(
                with({program, "-e", tiny, "--device", "cpu", "-b", B, "-t", std::to_string(T)}, data)));
            unsigned tokens;
            double loss, perplexity, bits;
            ASSERT_EQ(sscanf(result.c_str(), "tokens %u | loss %lf nats | perplexity %lf | %lf bits per byte",
                             &tokens, &loss, &perplexity, &bits),
                      4)
                << result;
            EXPECT_EQ(tokens, 89u);
            EXPECT_NEAR(loss, nats / 89, 2e-6);
            EXPECT_NEAR(perplexity, std::exp(nats / 89), 1e-2);
            EXPECT_NEAR(bits, nats / std::log(2) / bytes, 2e-6);
        }
    }
}

// A text gives what its shards give, whatever the sizes of blocks, and however the file is compressed.
TEST_F(Eval, TextsAsTheirShards) {
    std::filesystem::create_directories(folder / "texts");
    std::string text;
    for (int i = 0; i < 30000; i++) text += "line " + std::to_string(i) + (i % 7 ? "\n" : "\n\n");
    write_whole_file(folder / "texts/a.txt", {text});
    write_whole_file(folder / "texts/b.txt.gz", {gzip("another text, " + text.substr(0, 5000))});
    const auto eval = [&](const Words& options) {
        return output_of(run_program(
            with({program, "-e", tiny, "--device", "cpu", "--tokenizer", "bytes", "-b", "64"}, options)));
    };
    for (const char* split : {"none", "blank-line"}) {
        expect_ok(run_program("prepare_data --out", folder.path, "--name x --split-documents", split,
                              folder / "texts"));
        const std::string shards = eval({"-i", folder / "x_train.bin"});
        EXPECT_EQ(eval({"--text", folder / "texts", "--split-documents", split}), shards);
        EXPECT_NE(eval({"--text", folder / "texts/a.txt", "--split-documents", split}), shards);
        EXPECT_EQ(eval({"--text", folder / "texts", "--split-documents", split, "-m", "3"}),
                  eval({"-i", folder / "x_train.bin", "-m", "3"}));
    }
}

// Exported, too, a model knows where the documents of its training end; another one is told.
TEST_F(Eval, DocumentsEndAsInTraining) {
    std::string text;
    for (int i = 0; text.size() < 30000; i++) text += "line " + std::to_string(i) + (i % 3 ? "\n" : "\n\n");
    write_whole_file(folder / "a.txt", {text});
    const std::string train = BINARY_DIR "/train_gpt2", run = folder / "run", mark = "--split-documents ";
    const auto eval = [&](const std::string& model, const std::string& more) {
        const ProgramResult result = run_program(
            words_of(program + " --device cpu --text " + (folder / "a.txt") + " -e " + model + " " + more));
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(contains(result.err, "give --split-documents"),
                  model.ends_with(".safetensors") && more.empty());
        return result.out;
    };
    for (const std::string split : {"blank-line", "none", "endoftext"}) {
        expect_ok(run_program(words_of(train + " --text " + (folder / "a.txt") + " -x 2 -t 32 -s 0 -o " +
                                       run + " --device cpu -e custom:layers=1,heads=2,channels=16 " +
                                       (split == "blank-line" ? "" : mark + split))));
        const std::string exported = folder / split, alone = folder / (split + "_alone");
        expect_ok(run_program(words_of(train + " -e " + run + " --export hf " + exported)));
        EXPECT_EQ(eval(exported, ""), eval(run, "")) << split;
        EXPECT_EQ(eval(exported, ""), eval(run, mark + split));
        EXPECT_NE(eval(exported, mark + (split == "blank-line" ? "none" : "blank-line")), eval(run, ""));
        const std::string config = read_whole_file(exported + "/config.json");
        std::filesystem::copy(exported, alone);  // as other programs write it
        write_whole_file(alone + "/config.json",
                         {config.substr(0, config.find(",\n  \"document_split")), "}"});
        EXPECT_EQ(eval(alone + "/model.safetensors", ""), eval(alone, mark + "none"));
    }
}

TEST_F(Eval, LongWorkShowsHowMuchIsDone) {
    write_whole_file(folder / "a.txt", {std::string(400000, 'a')});
    const Words command = words_of(
        program + " -e custom:layers=2,heads=4,channels=256,max_seq_len=16,vocab=257 --tokenizer bytes" +
        " --device cpu --threads 1 --text " + (folder / "a.txt"));
#if defined(SANITIZED)  // which take thirty times as long
    const std::string batches = "100";
#else
    const std::string batches = "4000";
#endif
    EXPECT_TRUE(contains(shown_on_terminal(with(command, {"-m", batches}), "xterm"), "evaluating ("));
    EXPECT_FALSE(contains(output_of(run_program(with(command, {"-m", "9"}))), "evaluating"));
}

TEST_F(Eval, HellaSwagOfACheckpoint) {
    const ModelConfig config = parse_descriptor(tiny);
    write_model(folder / "zero.bin", config,
                [](int, size_t, float* values, size_t n) { std::fill_n(values, n, 0.0f); });
    std::vector<HellaSwagExample> examples;
    for (int i = 0; i < 5; i++) examples.push_back({i % 4, {1, 2}, {{{3}, {4, 5}, {6}, {7, 8, 9}}}});
    write_hellaswag(folder / "h.bin", examples);
    // a model of zeros finds all endings equally likely and takes the first, which is correct twice
    const std::string result = output_of(
        run_program("eval -e", folder / "zero.bin", "--hellaswag", folder / "h.bin", "--device cpu"));
    EXPECT_EQ(result, "HellaSwag: 2/5 = 0.400000\n");
}

TEST_F(Eval, BadInputGivesOneLineAndStatus1) {
    const std::vector<uint16_t> tokens = some_tokens(50), large = {1, 2, 300, 4};
    write_token_shard(folder / "good.bin", tokens.data(), tokens.size());
    write_token_shard(folder / "large.bin", large.data(), large.size());
    write_token_shard(folder / "one.bin", tokens.data(), 1);
    const std::string good = folder / "good.bin";
    expect_refusals(program, {{},
                              {"-e", tiny},
                              {"-e", tiny, "--text", folder / "missing"},
                              {"-e", tiny, "--text", good},
                              {"-i", good},
                              {"-e", tiny, "-i", folder / "missing*.bin"},
                              {"-e", tiny, "-i", folder / "one.bin"},
                              {"-e", folder / "missing.bin", "-i", good},
                              {"-e", tiny, "-i", good, "-t", "17"},
                              {"-e", tiny, "-i", good, "-m", "0"},
                              {"-e", tiny, "-i", good, "--hellaswag", good},
                              {"-e", tiny, "-i", good, "--tokenizer", folder / "missing"}});
    for (const Words& option : {Words{"--field", "text"},
                                {"--split-documents", "none"},
                                {"--include", "*.md"},
                                {"--special-tokens"},
                                {"--skip-bad-lines"},
                                {"--as-text"}}) {
        expect_refusal(run_program(with({program, "-e", tiny, "-i", good, "--device", "cpu"}, option)),
                       option[0], "name a file or folder with --text");
    }
    EXPECT_TRUE(contains(run_program("eval -e", tiny, "-i", folder / "large.bin", "--device cpu").err,
                         "token 2 is 300"));
}
