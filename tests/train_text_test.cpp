// The trainer's other inputs and outputs: HellaSwag while training, samples of text, bits per byte.
#include <gtest/gtest.h>

#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/loss_plot.h"
#include "llmc/text/tokenizer.h"
#include "tests/tiny_run.h"

using train_gpt2 = WithData;

TEST_F(train_gpt2, samples_are_text_if_a_tokenizer_is_found) {
    Tokenizer letters;  // 67, as the model has
    for (int i = 0; i < 67; i++) letters.tokens.push_back(std::string(2, char('0' + i)));
    letters.end_of_text = 66;
    const Words options = {"-x", "1", "-v", "0", "-s", "1", "-g", "8", "--device", "cpu"};
    auto sample = [&] {
        const std::string run = output_of(data.run(options));
        const size_t start = run.find("generating:\n---\n") + 16;
        return run.substr(start, run.find("\n---\n", start) - start);
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

TEST_F(train_gpt2, hellaswag_while_training) {
    std::vector<HellaSwagExample> examples;
    for (int i = 0; i < 6; i++) examples.push_back({i % 4, {1, 2, 5}, {{{3}, {4, 5}, {6}, {7, 8, 9}}}});
    write_hellaswag(data / "h.bin", examples);
    const Words options = args("-x 4 -v 2 -s 0 --device cpu --hellaswag-file", data / "h.bin");
    const ProgramResult with_it = data.run(with(options, {"-h", "1", "-o", data / "a"}));
    const ProgramResult without = data.run(with(options, {"-h", "0"}));
    ASSERT_EQ(with_it.status, 0) << with_it.err;
    EXPECT_EQ(count_of(with_it.out, "HellaSwag: "), 2) << with_it.out;  // not at step 0
    EXPECT_EQ(count_of(read_whole_file(data / "a/main.log"), " eval:"), 2);
    EXPECT_FALSE(contains(without.out, "HellaSwag"));
    EXPECT_EQ(printed_losses(with_it.out), printed_losses(without.out));  // training is not affected
    write_hellaswag(data / "long.bin", {{0, {1, 2}, {{std::vector<uint16_t>(18, 3), {4}, {5}, {6}}}}});
    const ProgramResult refused = data.run(with(options, {"-h", "1", "--hellaswag-file", data / "long.bin"}));
    expect_refusal(refused, "an ending of 18 tokens, but sequences have only 17");
    EXPECT_TRUE(printed_losses(refused.out).empty()) << refused.out;  // before the first step
    expect_refusal(data.run(args("-x 1 -h 1 --device cpu")), "hellaswag_val.bin");
}

TEST_F(train_gpt2, finds_the_downloaded_hellaswag) {
    std::filesystem::create_directories(data / "data/starter");
    write_hellaswag(data / "data/starter/hellaswag_val.bin", {{0, {1, 2}, {{{3}, {4}, {5}, {6}}}}});
    expect_ok(run_program(args("env -C", data.path, program, "-i", data.train, "-j", data.val, "-e", tiny,
                               "-b 3 -t 17 -x 1 -s 0 --device cpu -h 1")),
              "HellaSwag: ");
}

TEST_F(train_gpt2, samples_follow_the_options) {
    auto samples = [&](const Words& options) {
        const std::string run = output_of(data.run(with(args("-x 2 -v 0 -s 1 -g 40 --device cpu"), options)));
        std::string found;
        for (size_t at = 0; (at = run.find("---\n", at)) != run.npos;) {
            const size_t end = run.find("\n---\n", at + 4);
            found += run.substr(at, end - at);
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
TEST_F(train_gpt2, validation_loss_does_not_depend_on_the_batch_size) {
    write_tokens(data.val, 200, 67);
    auto val_loss = [&](const char* B) {
        const std::string run = output_of(run_program("train_gpt2 -i", data.train, "-j", data.val, "-e", tiny,
                                                      "-b", B, "-t 10 -x 0 -m -1 -s 0 --device cpu"));
        double loss = 0;
        const size_t at = run.find("val loss ");
        EXPECT_NE(at, run.npos) << run;
        if (at != run.npos) loss = std::stod(run.substr(at + 9));
        return loss;
    };
    const double one = val_loss("1");
    for (const char* B : {"3", "7", "19"}) EXPECT_NEAR(val_loss(B), one, 2e-6) << B;
}

// Bits per byte count the bytes of the tokens that the validation reads, and are eval's.
TEST_F(train_gpt2, validation_in_bits_per_byte) {
    Tokenizer words;  // of 1 to 5 bytes
    for (int i = 0; i < 67; i++) words.tokens.push_back(std::string(i % 5 + 1, char('0' + i)));
    words.end_of_text = 66;
    const Words options = {"-x", "2", "-v", "1", "-s", "0", "--device", "cpu", "-o", data / "a"};
    const std::string unknown = output_of(data.run(options));
    EXPECT_FALSE(contains(unknown, "bits per byte"));
    write_tokenizer(words, data / "gpt2_tokenizer.bin");
    std::vector<uint16_t> tokens(700);
    read_tokens(open_token_shard(data.val), 0, 700, tokens.data());
    const auto bytes_of = [&](size_t count) {
        double bytes = 0;
        for (size_t i = 1; i <= count; i++) bytes += tokens[i] == 66 ? 0 : tokens[i] % 5 + 1;
        return bytes;
    };
    for (const int batches : {2, -1}) {
        const std::string run = output_of(data.run(with(options, {"-m", std::to_string(batches)})));
        const size_t count = batches < 0 ? 699 : 2 * 3 * 17;
        const double bytes = bytes_of(count);
        double loss = NAN, bits = NAN;
        const size_t line = run.find("val loss ");
        ASSERT_EQ(sscanf(run.c_str() + std::min(line, run.size()),
                         "val loss %lf, %lf bits per byte at step 0", &loss, &bits),
                  2)
            << run;
        EXPECT_NEAR(bits, loss * double(count) / bytes / std::log(2), 1e-4);
        EXPECT_EQ(read_series(data / "a").validations.size(), 3u);
        EXPECT_NEAR(read_series(data / "a").validations.at(0).bits_per_byte, bits, 1e-4);
    }
    const ProgramResult eval = run_program("eval -e", data / "a", "-i", data.val, "-t 17");
    double nats = NAN, bits = NAN;
    ASSERT_EQ(
        sscanf(eval.out.c_str(), "tokens 699 | loss %lf nats | perplexity %*f | %lf bits", &nats, &bits), 2)
        << eval.out << eval.err;
    EXPECT_NEAR(bits / nats, 699 / std::log(2) / bytes_of(699), 1e-4);
}

// -m counts batches, whose size depends on -b: the plan says how many tokens these are.
TEST_F(train_gpt2, the_plan_says_what_a_validation_reads) {
    const ProgramResult some = data.run(args("-x 0 -m 2 -s 0 --device cpu"));
    EXPECT_TRUE(
        contains(some.out, "700 validation tokens, of which a validation reads 102 (-m 2; -m -1: all"));
    const ProgramResult all = data.run({"-x", "0", "-m", "-1", "-s", "0", "--device", "cpu"});
    EXPECT_TRUE(contains(all.out, "700 validation tokens\n"));
}
