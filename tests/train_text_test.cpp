// The trainer's other inputs and outputs: Hugging Face files, HellaSwag while training, samples of text.
#include <gtest/gtest.h>

#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/base/real.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/run/loss_plot.h"
#include "llmc/text/tokenizer.h"
#include "tests/tiny_run.h"

static std::vector<float> parameters(const std::string& path) {
    const ModelConfig config = read_model_file_header(path);
    size_t starts[NUM_PARAMETER_TENSORS], size = 0;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        starts[i] = size;
        size += parameter_size(config, i);
    }
    std::vector<float> values(size);
    read_model_file(path, [&](int tensor, size_t offset, const float* from, size_t count) {
        std::copy_n(from, count, values.begin() + starts[tensor] + offset);
    });
    return values;
}

TEST(train_gpt2, exports_and_reads_hugging_face_files) {
    Data data;
    expect_ok(data.run({"-x", "8", "-l", "0.01", "-n", "8", "-s", "0", "--device", "cpu", "-o", data / "a"}));
    const std::string model = data / "alone.bin", exported = data / "hf/model.safetensors";
    std::filesystem::copy_file(model_path(data / "a", 8), model);  // no run says that -t was 17
    expect_ok(run_program({program, "-e", model, "--export", "hf", data / "hf"}));
    EXPECT_TRUE(parameters(exported) == parameters(model));
    auto val_loss = [&](const std::string& path) {
        const ProgramResult run = run_program({program, "-i", data.train, "-j", data.val, "-e", path, "-b",
                                               "3", "-t", "17", "-x", "0", "-s", "0", "--device", "cpu"});
        EXPECT_EQ(run.status, 0) << run.err;
        const size_t at = run.out.find("val loss");
        return at == run.out.npos ? run.out : run.out.substr(at);
    };
    EXPECT_EQ(val_loss(exported), val_loss(model));
    expect_ok(run_program({program, "-e", model, "--export", "hf", data / "half", "--precision", "bf16"}));
    const std::vector<float> half = parameters(data / "half/model.safetensors"), whole = parameters(model);
    for (size_t i = 0; i < whole.size(); i++) ASSERT_EQ(half[i], float(bf16(whole[i])));
    for (const Words& bad : {Words{"--export", "gguf", data / "x"},
                             {"--export", "hf"},
                             {"--export", "hf", model},
                             {"--export", "hf", data / "x", "-e", data / "missing.safetensors"}}) {
        expect_refusal(run_program(with({program, "-e", model}, bad)));
    }
}

TEST(train_gpt2, samples_are_text_if_a_tokenizer_is_found) {
    Data data;
    Tokenizer letters;  // 67, as the model has
    for (int i = 0; i < 67; i++) letters.tokens.push_back(std::string(2, char('0' + i)));
    letters.end_of_text = 66;
    const Words options = {"-x", "1", "-v", "0", "-s", "1", "-g", "8", "--device", "cpu"};
    auto sample = [&] {
        const ProgramResult run = data.run(options);
        EXPECT_EQ(run.status, 0) << run.err;
        const size_t start = run.out.find("generating:\n---\n") + 16;
        return run.out.substr(start, run.out.find("\n---\n", start) - start);
    };
    const std::string numbers = sample();
    write_tokenizer(letters, data / "gpt2_tokenizer.bin");  // beside the data
    std::istringstream words(numbers);
    std::string expected;
    for (int token; words >> token;) expected += token == 66 ? "\n\n" : letters.decode(token);
    EXPECT_EQ(sample(), expected);
    letters.tokens.push_back("zz");  // more than the model has: numbers again
    letters.end_of_text = 67;
    write_tokenizer(letters, data / "gpt2_tokenizer.bin");
    EXPECT_EQ(sample(), numbers);
}

TEST(train_gpt2, hellaswag_while_training) {
    Data data;
    std::vector<HellaSwagExample> examples;
    for (int i = 0; i < 6; i++) examples.push_back({i % 4, {1, 2, 5}, {{{3}, {4, 5}, {6}, {7, 8, 9}}}});
    write_hellaswag(data / "h.bin", examples);
    const Words options = args("-x 4 -v 2 -s 0 --device cpu --hellaswag-file", data / "h.bin");
    const ProgramResult with_it = data.run(with(options, {"-h", "1", "-o", data / "a"}));
    const ProgramResult without = data.run(with(options, {"-h", "0"}));
    ASSERT_EQ(with_it.status, 0) << with_it.err;
    int shown = 0, logged = 0;
    for (size_t at = 0; (at = with_it.out.find("HellaSwag: ", at)) != with_it.out.npos; at++) shown++;
    const std::string log = read_whole_file(data / "a/main.log");
    for (size_t at = 0; (at = log.find(" eval:", at)) != log.npos; at++) logged++;
    EXPECT_EQ(shown, 2) << with_it.out;  // not at step 0
    EXPECT_EQ(logged, 2) << log;
    EXPECT_FALSE(contains(without.out, "HellaSwag"));
    EXPECT_EQ(printed_losses(with_it.out), printed_losses(without.out));  // training is not affected
    write_hellaswag(data / "long.bin", {{0, {1, 2}, {{std::vector<uint16_t>(18, 3), {4}, {5}, {6}}}}});
    const ProgramResult refused = data.run(with(options, {"-h", "1", "--hellaswag-file", data / "long.bin"}));
    expect_refusal(refused, "an ending of 18 tokens, but sequences have only 17");
    EXPECT_TRUE(printed_losses(refused.out).empty()) << refused.out;  // before the first step
    expect_refusal(data.run({"-x", "1", "-h", "1", "--device", "cpu"}), "hellaswag_val.bin");
}

TEST(train_gpt2, finds_the_downloaded_hellaswag) {
    Data data;
    std::filesystem::create_directories(data / "data/starter");
    write_hellaswag(data / "data/starter/hellaswag_val.bin", {{0, {1, 2}, {{{3}, {4}, {5}, {6}}}}});
    expect_ok(run_program(args("env -C", data.path, program, "-i", data.train, "-j", data.val, "-e", tiny,
                               "-b 3 -t 17 -x 1 -s 0 --device cpu -h 1")),
              "HellaSwag: ");
}

TEST(train_gpt2, samples_follow_the_options) {
    Data data;
    auto samples = [&](const Words& options) {
        const ProgramResult run =
            data.run(with({"-x", "2", "-v", "0", "-s", "1", "-g", "40", "--device", "cpu"}, options));
        EXPECT_EQ(run.status, 0) << run.err;
        std::string found;
        for (size_t at = 0; (at = run.out.find("---\n", at)) != run.out.npos;) {
            const size_t end = run.out.find("\n---\n", at + 4);
            found += run.out.substr(at, end - at);
            at = end + 5;
        }
        return found;
    };
    const std::string plain = samples({}), greedy = samples({"--temperature", "0"});
    EXPECT_GT(count_lines(plain), 2);  // 40 tokens are more than the model's 32 positions
    EXPECT_EQ(samples({}), plain);
    EXPECT_NE(greedy, plain);
    EXPECT_EQ(samples({"--top-k", "1"}), greedy);
    EXPECT_EQ(samples({"--top-p", "0"}), greedy);
}

// Every token of the validation data counts once, whatever the batch size: the context of each depends on T
// only.
TEST(train_gpt2, validation_loss_does_not_depend_on_the_batch_size) {
    Data data;
    write_tokens(data.val, 200, 67);
    auto val_loss = [&](const char* B) {
        const ProgramResult run = run_program(args(program, "-i", data.train, "-j", data.val, "-e", tiny,
                                                   "-b", B, "-t 10 -x 0 -m -1 -s 0 --device cpu"));
        EXPECT_EQ(run.status, 0) << run.err;
        double loss = 0;
        const size_t at = run.out.find("val loss ");
        EXPECT_NE(at, run.out.npos) << run.out;
        if (at != run.out.npos) loss = std::stod(run.out.substr(at + 9));
        return loss;
    };
    const double one = val_loss("1");
    for (const char* B : {"3", "7", "19"}) EXPECT_NEAR(val_loss(B), one, 2e-6) << B;
}

// Bits per byte count the bytes of the tokens that the validation reads, and are eval's.
TEST(train_gpt2, validation_in_bits_per_byte) {
    Data data;
    Tokenizer words;  // of 1 to 5 bytes
    for (int i = 0; i < 67; i++) words.tokens.push_back(std::string(i % 5 + 1, char('0' + i)));
    words.end_of_text = 66;
    const Words options = {"-x", "2", "-v", "1", "-s", "0", "--device", "cpu", "-o", data / "a"};
    const ProgramResult unknown = data.run(options);
    EXPECT_EQ(unknown.status, 0) << unknown.err;
    EXPECT_FALSE(contains(unknown.out, "bits per byte"));
    write_tokenizer(words, data / "gpt2_tokenizer.bin");
    std::vector<uint16_t> tokens(700);
    read_tokens(open_token_shard(data.val), 0, 700, tokens.data());
    const auto bytes_of = [&](size_t count) {
        double bytes = 0;
        for (size_t i = 1; i <= count; i++) bytes += tokens[i] == 66 ? 0 : tokens[i] % 5 + 1;
        return bytes;
    };
    for (const int batches : {2, -1}) {
        const ProgramResult run = data.run(with(options, {"-m", std::to_string(batches)}));
        ASSERT_EQ(run.status, 0) << run.err;
        const size_t count = batches < 0 ? 699 : 2 * 3 * 17;
        const double bytes = bytes_of(count);
        double loss = NAN, bits = NAN;
        const size_t line = run.out.find("val loss ");
        ASSERT_EQ(sscanf(run.out.c_str() + std::min(line, run.out.size()),
                         "val loss %lf, %lf bits per byte at step 0", &loss, &bits),
                  2)
            << run.out;
        EXPECT_NEAR(bits, loss * double(count) / bytes / std::log(2), 1e-4);
        EXPECT_EQ(read_series(data / "a").validations.size(), 3u);
        EXPECT_NEAR(read_series(data / "a").validations.at(0).bits_per_byte, bits, 1e-4);
    }
    const ProgramResult eval =
        run_program({BINARY_DIR "/eval", "-e", data / "a", "-i", data.val, "-t", "17"});
    double nats = NAN, bits = NAN;
    ASSERT_EQ(
        sscanf(eval.out.c_str(), "tokens 699 | loss %lf nats | perplexity %*f | %lf bits", &nats, &bits), 2)
        << eval.out << eval.err;
    EXPECT_NEAR(bits / nats, 699 / std::log(2) / bytes_of(699), 1e-4);
}

// -m counts batches, whose size depends on -b: the plan says how many tokens these are.
TEST(train_gpt2, the_plan_says_what_a_validation_reads) {
    Data data;
    const ProgramResult some = data.run({"-x", "0", "-m", "2", "-s", "0", "--device", "cpu"});
    EXPECT_TRUE(
        contains(some.out, "700 validation tokens, of which a validation reads 102 (-m 2; -m -1: all"));
    const ProgramResult all = data.run({"-x", "0", "-m", "-1", "-s", "0", "--device", "cpu"});
    EXPECT_TRUE(contains(all.out, "700 validation tokens\n"));
}
