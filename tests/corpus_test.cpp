// The corpus: stories parse to the choices that wrote them, the grammar rejects stories that break its rules,
// and make_corpus's numbers match the text, as prepare_data tokenizes it.
#include "llmc/text/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/data/token_file.h"
#include "tests/run_program.h"

static const std::string make_corpus = BINARY_DIR "/make_corpus", prepare_data = BINARY_DIR "/prepare_data";

// Replaces the first occurrence; fails the test where there is none.
static std::string with(std::string text, const std::string& from, const std::string& to) {
    size_t position = text.find(from);
    EXPECT_NE(position, std::string::npos) << from;
    return position == std::string::npos ? text : text.replace(position, from.size(), to);
}

using corpus = InFolder;

TEST_F(corpus, stories_parse_to_the_same_choices) {
    std::mt19937_64 random(3);
    std::set<std::string> words;
    size_t shortest = 1000, longest = 0, bytes = 0;
    double nats = 0;
    for (int i = 0; i < 20000; i++) {
        Story story = write_story(random);
        Story read = read_story(story.text + "One sunny day");  // the next story is ignored
        ASSERT_EQ(read.text, story.text);
        ASSERT_EQ(read.nats, story.nats);
        ASSERT_EQ(read.choices, story.choices);
        ASSERT_EQ(story.text.find("\n\n"), story.text.size() - 2) << story.text;
        shortest = std::min(shortest, story.text.size());
        longest = std::max(longest, story.text.size());
        bytes += story.text.size();
        nats += story.nats;
        std::istringstream stream(story.text);
        for (std::string word; stream >> word; words.insert(word))
            while (!word.empty() && !isalpha(uint8_t(word.back()))) word.pop_back();
    }
    EXPECT_GT(words.size(), 400u);
    EXPECT_GT(shortest, 100u);
    EXPECT_LT(longest, 600u);
    EXPECT_GT(nats / double(bytes), 0.1);
    EXPECT_LT(nats / double(bytes), 0.2);
}

// Stories are drawn with the probabilities that the entropy assumes: the frequencies of some beginnings are
// within four standard deviations of the grammar's probabilities.
TEST_F(corpus, choices_are_as_likely_as_counted) {
    std::mt19937_64 random(4);
    const int stories = 20000;
    const double first_weather = 21.0 / (21 + 14 + 11 + 9 + 7 + 6 + 6 + 5 + 5 + 4);
    int one = 0, was = 0, one_sunny = 0, girl = 0, once = 0;
    for (int i = 0; i < stories; i++) {
        const Story story = write_story(random);
        std::string_view text = story.text;
        one += text.starts_with("One ");
        was += text.starts_with("It was a ");
        one_sunny += text.starts_with("One sunny ");
        once += text.starts_with("There was once a ");
        girl += text.starts_with("There was once a ") && text.find(" girl called ") != text.npos;
    }
    auto expect_share = [](int count, int of, double p) {
        EXPECT_LT(std::abs(count - of * p), 4 * std::sqrt(of * p * (1 - p)))
            << count << " of " << of << ", not " << p;
    };
    expect_share(one, stories, 5.0 / 11);
    expect_share(was, stories, 3.0 / 11);
    expect_share(one_sunny, one, first_weather);
    expect_share(girl, once, 0.5);
}

// A hand-written story is accepted; variants with one wrong fact are rejected.
TEST_F(corpus, the_grammar_remembers_facts) {
    const std::string story =
        "There was once a shy girl called Mia. She was in the garden. She had a red ball. She put the ball "
        "behind the fence. Then Tom came by. They went to the kitchen. \"Where is your ball?\" asked Tom. "
        "\"It is behind the fence in the garden,\" said Mia. At last they went home. The ball was still "
        "behind the fence in the garden. It was a good day.\n\n";
    Story read = read_story(story);
    EXPECT_EQ(read.text, story);
    EXPECT_GT(read.nats, 20);
    for (auto [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"She was in", "He was in"},                           // a pronoun that disagrees
             {"Mia. She", "Paul. She"},                             // a girl with a boy's name
             {"a red", "an red"},                                   // the wrong article
             {"put the ball", "put the kite"},                      // a thing that she does not have
             {"behind the fence. Then", "behind the stove. Then"},  // a stove in the garden
             {"Then Tom", "Then Mia"},                              // she meets herself
             {"to the kitchen", "to the garden"},                   // they are there already
             {"asked Tom", "asked Ben"},                            // Ben is not there
             {"It is behind the fence in the garden", "It is behind the fence"},  // not where they are now
             {"still behind the fence", "still between the roses"},               // it moved by itself
             {"fence in the garden. It", "fence in the park. It"},
             {"they went home", "she went home"},  // he stays behind
             {"good day.\n\n", "good day.\n"},
         })
        EXPECT_THROW(read_story(with(story, from, to)), Error) << from << " -> " << to;
    EXPECT_THROW(read_story(""), Error);
    EXPECT_THROW(read_story(story.substr(0, story.size() / 2)), Error);
    // A rarer name for the girl (weight 14 instead of 21), which is also excluded from the people she can
    // meet.
    int names = 0;
    for (int i = 0; i < 26; i++) names += 2 * (1 + 40 / (i + 2));
    EXPECT_NEAR(read_story(with(with(story, "Mia", "Lily"), "Mia", "Lily")).nats - read.nats,
                std::log(21.0 / 14) + std::log((names - 14.0) / (names - 21.0)), 1e-9);
}

TEST_F(corpus, sums_are_correct_and_pronouns_unambiguous) {
    const std::string sums =
        "One sunny day, Ben was at school. He counted his apples: three. He found nine more. Now he had "
        "twelve apples. Then Mia ran up. She ate";
    const std::string story =
        "One sunny day, Ben was at school. He counted his shells: three. He found nine more. Now he had "
        "twelve shells. Then Tom ran up. Tom took two. Then Ben had ten shells left. At last they went home. "
        "Ben had ten shells. Soon it was dark.\n\n";
    EXPECT_EQ(read_story(story).text, story);
    EXPECT_THROW(read_story(with(story, "had twelve", "had eleven")), Error);
    EXPECT_THROW(read_story(with(story, "Ben had ten shells left", "Ben had nine shells left")), Error);
    EXPECT_THROW(read_story(with(story, "Ben had ten shells. ", "Ben had ten apples. ")), Error);
    EXPECT_THROW(read_story(with(story, "Then Ben had", "Then he had")), Error);  // Tom could be meant
    EXPECT_THROW(read_story(sums), Error);                                        // "she" cannot be a boy

    const std::string gifts =
        "It was a cold day. Anna was at the market. She met Leo. She had a red ball, and Leo had a blue "
        "drum. They swapped. \"Who has the ball?\" asked her uncle. \"Leo does,\" said Anna. Leo gave the "
        "ball to her. At last they went home. Anna had the red ball and the blue drum, and Leo had nothing. "
        "The stars came out.\n\n";
    EXPECT_EQ(read_story(gifts).text, gifts);
    EXPECT_THROW(read_story(with(gifts, "Leo does", "I do")), Error);
    EXPECT_THROW(read_story(with(gifts, "gave the ball", "gave the drum")), Error);
    EXPECT_THROW(read_story(with(gifts, "the blue drum, and Leo had nothing", "and Leo had the blue drum")),
                 Error);
}

// A seed gives the same text on every machine and with every compiler.
TEST_F(corpus, the_text_of_a_seed_is_fixed) {
    std::mt19937_64 random(1);
    EXPECT_EQ(
        write_story(random).text,
        "One foggy day, Paul was at the market. He had a soft bottle. He sat down and rested. He put the "
        "bottle beside the well. Then Ben walked in. Ben ate some bread. They laughed. At last they went "
        "home. The bottle was still beside the well at the market. Everything was fine.\n\n");
}

static uint64_t tokens_in(const std::string& path) { return open_token_shard(path).tokens; }

// Makes a corpus and compares its numbers with the text and with the shards that prepare_data makes of it.
static void check_numbers(const std::string& tokenizer) {
    TemporaryFolder folder;
    expect_ok(run_program({make_corpus, "--out", folder / "c.txt", "--bytes", "100000", "--seed", "5",
                           "--tokenizer", tokenizer, "--val-tokens", "5000"}));
    nlohmann::json json = nlohmann::json::parse(read_whole_file(folder / "c.json"));
    std::string text = read_whole_file(folder / "c.txt");
    uint64_t stories = 0, bytes = 0;
    double nats = 0;
    while (bytes < text.size()) {
        Story story = read_story(std::string_view(text).substr(bytes));
        stories++;
        bytes += story.text.size();
        nats += story.nats;
        if (stories == json["val_stories"]) {
            EXPECT_EQ(json["val_bytes"], bytes);
            EXPECT_NEAR(json["val_nats"].get<double>(), nats, 1e-6);
        }
    }
    EXPECT_GE(text.size(), 100000u);
    EXPECT_EQ(json["seed"], 5);
    EXPECT_EQ(json["tokenizer"], tokenizer);
    EXPECT_EQ(json["stories"], stories);
    EXPECT_EQ(json["bytes"], text.size());
    EXPECT_NEAR(json["nats"].get<double>(), nats, 1e-6);

    expect_ok(run_program({prepare_data, "--tokenizer", tokenizer, "--split-documents", "blank-line",
                           "--val-tokens", json["val_tokens"].dump(), "--out", folder.path, "--name", "c",
                           folder / "c.txt"}));
    uint64_t val = tokens_in(folder / "c_val.bin"), all = val + tokens_in(folder / "c_train.bin");
    EXPECT_GE(val, 5000u);
    EXPECT_LT(val, 5700u);
    EXPECT_EQ(json["tokens"], all);
    EXPECT_NEAR(json["nats_per_token"].get<double>(), nats / double(all), 1e-9);
    EXPECT_NEAR(json["val_nats_per_token"].get<double>(), json["val_nats"].get<double>() / double(val), 1e-9);
    EXPECT_NEAR(json["nats_per_byte"].get<double>(), nats / double(text.size()), 1e-9);
    uint16_t first = 0;  // the training part begins with a document
    read_tokens(open_token_shard(folder / "c_train.bin"), 0, 1, &first);
    EXPECT_EQ(first, tokenizer == "bytes" ? 256 : 50256);
}

TEST_F(corpus, program_s_numbers_match_the_text_in_bytes) { check_numbers("bytes"); }

TEST_F(corpus, program_s_numbers_match_the_text_in_gpt2_tokens) {
    const std::string tokenizer = SOURCE_DIR "/../shared/data/gpt2_tokenizer.bin";
    if (!std::filesystem::exists(tokenizer)) GTEST_SKIP() << "no ../shared/data/gpt2_tokenizer.bin";
    check_numbers(tokenizer);
}

TEST_F(corpus, program_checks_stories) {
    expect_ok(run_program({make_corpus, "--out", folder / "c.txt", "--stories", "3"}));
    std::string text = read_whole_file(folder / "c.txt");
    write_whole_file(folder / "sample.txt",
                     {"<|endoftext|>", text, "One day, nobody was there.\n\n", "One sun"});
    expect_ok(run_program({make_corpus, "--check", folder / "sample.txt"}), "3 of 4 stories",
              "story 4 is not a story of the grammar: byte 4");
    std::string seven;  // characters of three bytes, of which six begin within 20 bytes
    for (int i = 0; i < 7; i++) seven += "\xe5\xa4\xa9";
    write_whole_file(folder / "sample.txt", {"One ", seven, "\n\n"});
    expect_ok(run_program({make_corpus, "--check", folder / "sample.txt"}),
              "has \"" + seven.substr(0, 18) + "\", expected");
}

// It reads a file piece by piece, however large it is.
TEST_F(corpus, program_checks_large_files) {
    expect_ok(run_program({make_corpus, "--out", folder / "c.txt", "--stories", "500"}));
    ProgramResult result = run_program({make_corpus, "--check", folder / "c.txt"});
    EXPECT_TRUE(contains(result.out, "500 of 500 stories"));
    std::filesystem::resize_file(folder / "c.txt", uint64_t(2) << 30);  // with zeros
    result = run_program({make_corpus, "--check", folder / "c.txt"});
    expect_refusal(result, "no blank line");
}

TEST_F(corpus, program_s_bad_input_gives_one_line_and_status_1) {
    write_whole_file(folder / "empty", {""});
    const std::string out = folder / "c.txt";
    expect_refusals(make_corpus, {{},
                                  {"--bytes", "100"},
                                  {"--out", out},
                                  {"--out", folder / "c.json", "--bytes", "100"},
                                  {"--out", folder / "c.JSON", "--bytes", "100"},
                                  {"--out", folder / "no/such/c.txt", "--bytes", "100"},
                                  {"--out", out, "--bytes", "100", "--val-tokens", "100000"},
                                  {"--out", out, "--bytes", "100", "--tokenizer", folder / "missing"},
                                  {"--out", out, "--bytes", "100", "--tokenizer", folder / "empty"},
                                  {"--check", folder / "missing"},
                                  {"--check", folder / "empty"}});
    EXPECT_FALSE(std::filesystem::exists(out));
}
