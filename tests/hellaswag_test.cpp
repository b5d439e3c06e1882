// HellaSwag: exact file format, damaged files, the published JSONL, and the count of correct answers compared
// with running the examples one by one.
#include "llmc/data/hellaswag.h"
#include "llmc/run/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "llmc/base/file.h"
#include "llmc/model/initialize.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static HellaSwagExample example_of(int label, std::vector<uint16_t> context,
                                   std::vector<std::vector<uint16_t>> endings) {
    return {label, context, {endings[0], endings[1], endings[2], endings[3]}};
}

static const std::vector<HellaSwagExample> two = {example_of(3, {1, 2}, {{3}, {4, 5}, {6}, {7, 8, 9}}),
                                                  example_of(0, {9}, {{1}, {2}, {3}, {4}})};

static bool same(const HellaSwagExample& a, const HellaSwagExample& b) {
    return a.label == b.label && a.context == b.context && a.endings == b.endings;
}

using HellaSwag = InFolder;

TEST_F(HellaSwag, FileEqualsLlmcs) {
    write_hellaswag(folder / "h.bin", two);
    const std::string bytes = read_whole_file(folder / "h.bin");
    const uint16_t words[] = {65535, 38, 0,     3,  4, 2, 1, 2, 1, 3, 2, 4, 5, 1, 6, 3, 7,
                              8,     9,  65535, 30, 1, 0, 4, 1, 9, 1, 1, 1, 2, 1, 3, 1, 4};
    ASSERT_EQ(bytes.size(), 1024 + sizeof words);
    EXPECT_EQ(memcmp(bytes.data() + 1024, words, sizeof words), 0);
    int32_t header[256];
    memcpy(header, bytes.data(), sizeof header);
    const int32_t expected[] = {20240522, 1, 2, 38, 0};
    for (int i = 0; i < 5; i++) EXPECT_EQ(header[i], expected[i]);
    const std::vector<HellaSwagExample> read = read_hellaswag(folder / "h.bin", 10);
    ASSERT_EQ(read.size(), 2u);
    EXPECT_TRUE(same(read[0], two[0]));
    EXPECT_TRUE(same(read[1], two[1]));
}

TEST_F(HellaSwag, DamagedFilesAreRefused) {
    const std::string path = folder / "h.bin";
    write_hellaswag(path, two);
    const std::string good = read_whole_file(path);
    auto expect_refused = [&](const std::string& bytes, const std::string& what) {
        write_whole_file(path, {bytes});
        const std::string message = message_of([&] { read_hellaswag(path, 10); });
        EXPECT_TRUE(contains(message, path)) << what;
        EXPECT_EQ(count_lines(message), 1) << message;
    };
    for (size_t length = 0; length < good.size(); length += length < 1024 ? 341 : 1)
        expect_refused(good.substr(0, length), "cut to " + std::to_string(length));
    expect_refused(good + std::string(2, '\0'), "longer");
    expect_refused(good + "x", "longer by a byte");
    for (int field : {0, 1, 2, 3})
        for (int32_t value : {-1, 0, 1 << 30}) {
            if (field == 3 && value > 0) continue;  // an upper bound
            std::string bad = good;
            memcpy(&bad[4 * field], &value, 4);
            expect_refused(bad, "header " + std::to_string(field) + " = " + std::to_string(value));
        }
    // all words that describe others (start, bytes, index, label, 4, lengths), and a token
    for (int word : {0, 1, 2, 3, 4, 5, 8, 10, 13, 15, 18, 19, 20, 21})
        for (uint16_t value : {uint16_t(10), uint16_t(65534), uint16_t(0)}) {
            std::string bad = good;
            if (word == 21 && value == 0) continue;
            if ((word == 2 || word == 3 || word == 18) && value == 0)
                continue;  // correct values, and a token
            memcpy(&bad[1024 + 2 * word], &value, 2);
            expect_refused(bad, "word " + std::to_string(word) + " = " + std::to_string(value));
        }
    std::string label = good;  // the first beyond the four endings
    const uint16_t four = 4;
    memcpy(&label[1024 + 2 * 3], &four, 2);
    expect_refused(label, "label 4");
    write_whole_file(path, {good});
    expect_error("token 9", [&] { read_hellaswag(path, 9); });
}

TEST_F(HellaSwag, ExamplesThatDoNotFitTheFormatAreRefused) {
    EXPECT_FALSE(message_of([&] { write_hellaswag(folder / "h", {}); }).empty());
    std::vector<HellaSwagExample> large = two;
    large[1].context.resize(32757);
    EXPECT_FALSE(message_of([&] { write_hellaswag(folder / "h", large); }).empty());
    large[1].context.resize(70000);
    EXPECT_FALSE(message_of([&] { write_hellaswag(folder / "h", large); }).empty());
    EXPECT_FALSE(message_of([&] {
                     write_hellaswag(folder / "h", std::vector<HellaSwagExample>(65536, two[0]));
                 }).empty());
}

TEST_F(HellaSwag, PublishedJsonIsParsed) {
    Tokenizer bytes = open_tokenizer("bytes");
    const std::string good =
        R"({"ind": 24, "activity_label": "Roof", "ctx_a": "A man", "ctx_b": "he", "ctx": "A man. he",)"
        R"( "label": 2, "endings": ["a", "b b", "c", "d"], "split": "val"})";
    const HellaSwagExample example = parse_hellaswag(good, "line 1", bytes);
    EXPECT_EQ(example.label, 2);
    EXPECT_EQ(std::string(example.context.begin(), example.context.end()), "A man. he");
    EXPECT_EQ(std::string(example.endings[1].begin(), example.endings[1].end()), " b b");
    const std::string as_string = R"({"ctx": "a", "label": "3", "endings": ["a", "b", "c", "d"]})";
    EXPECT_EQ(parse_hellaswag(as_string, "line 1", bytes).label, 3);
    for (const char* bad : {"", "[]", "{", "{}", R"({"ctx": "a", "label": 1, "endings": ["a", "b", "c"]})",
                            R"({"ctx": "a", "label": 4, "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": "a", "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": "a", "label": -1, "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": "a", "label": "4", "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": "a", "label": "", "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": "", "label": 1, "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": 3, "label": 1, "endings": ["a", "b", "c", "d"]})",
                            R"({"ctx": "a", "label": 1, "endings": ["a", "b", 3, "d"]})"})
        EXPECT_TRUE(contains(message_of([&] { parse_hellaswag(bad, "line 1", bytes); }), "line 1")) << bad;
}

TEST_F(HellaSwag, PrepareDataConvertsPublishedJson) {
    const std::string one = R"({"ctx": "A man", "label": 1, "endings": ["a", "b", "c", "dd"]})";
    write_whole_file(folder / "h.jsonl", {one, "\r\n\r\n\n", one, "\r\n"});
    const Words command = args(bin("prepare_data"), "hellaswag", folder / "h.jsonl",
                               "--tokenizer bytes --out", folder / "h.bin");
    expect_ok(run_program(command));
    const auto examples = read_hellaswag(folder / "h.bin", 257);
    ASSERT_EQ(examples.size(), 2u);
    EXPECT_EQ(examples[1].label, 1);
    EXPECT_EQ(examples[1].context, (std::vector<uint16_t>{'A', ' ', 'm', 'a', 'n'}));
    EXPECT_EQ(examples[1].endings[3], (std::vector<uint16_t>{' ', 'd', 'd'}));
    write_whole_file(folder / "h.jsonl", {one, "\n{}"});
    expect_refusal(run_program(command),
                   (folder / "h.jsonl") +
                       ": line 2 lacks the context (ctx), the label or four endings: is "
                       "it HellaSwag's JSONL?");
}

static const ModelConfig config = {96, 60, 128, 2, 2, 16};

static std::unique_ptr<GPT2<float>> make_model(int B, int T) {
    auto g = std::make_unique<GPT2<float>>(config, nullptr);
    initialize_parameters(config, 1, parameter_writer(*g));
    gpt2_allocate(*g, B, T, false);
    return g;
}

static std::vector<uint16_t> random_tokens(std::mt19937& random, int most) {
    std::vector<uint16_t> tokens(1 + random() % most);
    for (uint16_t& token : tokens) token = uint16_t(random() % 60);
    return tokens;
}

// The ending with the lowest mean loss, run one by one with as much context as fits into T.
static int best_ending(GPT2<float>& g, const HellaSwagExample& example, int T) {
    int best = 0;
    double least = INFINITY;
    for (int k = 0; k < 4; k++) {
        std::vector<int> tokens(example.context.begin(), example.context.end());
        const int ending = int(example.endings[k].size());
        tokens.insert(tokens.end(), example.endings[k].begin(), example.endings[k].end());
        if (int(tokens.size()) > T + 1) tokens.erase(tokens.begin(), tokens.end() - (T + 1));
        const int count = int(tokens.size()) - 1;
        gpt2_set_batch(g, tokens.data(), tokens.data() + 1, count, false);
        gpt2_forward(g, 1, count);
        gpt2_head(g, 1, count, 1, Gradients::none);
        double sum = 0;
        for (int t = count - ending; t < count; t++) sum += g.acts.losses[t];
        if (sum / ending < least) {
            least = sum / ending;
            best = k;
        }
    }
    return best;
}

TEST_F(HellaSwag, CorrectAnswersEqualThoseOfSingleExamples) {
    const auto always = [] { return true; };
    std::mt19937 random(3);
    for (const int T : {30, 96}) {  // with some contexts that do not fit, and with all fitting
        const auto single = make_model(1, 96);
        std::vector<HellaSwagExample> right, wrong;
        for (int i = 0; i < 25; i++) {
            HellaSwagExample example = {0, random_tokens(random, 60), {}};
            for (auto& ending : example.endings) ending = random_tokens(random, 25);
            example.label = best_ending(*single, example, T);
            right.push_back(example);
            example.label = (example.label + 1 + int(random() % 3)) % 4;
            wrong.push_back(example);
        }
        for (const int B : {1, 3, 4}) {
            const auto g = make_model(B, T);
            EXPECT_EQ(score_hellaswag(*g, right, nullptr, always)->right, 25) << "B " << B << " T " << T;
            EXPECT_EQ(score_hellaswag(*g, wrong, nullptr, always)->right, 0) << "B " << B << " T " << T;
        }
        if (T < 96) continue;
        const auto g = make_model(1, 20);
        expect_error("ending", [&] { score_hellaswag(*g, right, nullptr, always); });
    }
}
