// Mixtures of sources by weight: shares, resuming, processes, wrong weights, validation of each source.
#include "llmc/data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/os.h"
#include "llmc/data/token_file.h"
#include "llmc/data/weighted_path.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/run_state.h"
#include "tests/distributed_run.h"
#include "tests/message_of.h"

// --- weights ---

using Weights = InFolder;

TEST_F(Weights, WhatIsAWeight) {
    write_whole_file(folder / "a", {"x"});
    const auto weight = [&](const std::string& text) { return weighted_path(folder / text).weight; };
    EXPECT_EQ(weight("a"), 0);
    EXPECT_EQ(weight("a:0.7"), 0.7);
    EXPECT_EQ(weight("[ab]:2"), 2);
    EXPECT_EQ(weight("missing.txt:1e-3"), 1e-3);
    EXPECT_EQ(weighted_path(folder / "a:0.7").path, folder / "a");
    for (const std::string path : {"C:\\novels.txt", "C:/novels.txt", "C:", ":0.7", "https://a/b"})
        EXPECT_EQ(weighted_path(path).path, path);
    EXPECT_EQ(weighted_path("C:\\novels.txt:0.7").path, "C:\\novels.txt");
    for (const std::string wrong : {"0", "-1", "nan", "inf", "0x1", "1e-7", "1e400", "0,7", "", "70%"})
        EXPECT_TRUE(contains(message_of([&] { weight("a:" + wrong); }),
                             "a:" + wrong + ": the weight '" + wrong + "' is not a number from"))
            << wrong;
}

TEST_F(Weights, AFileMayEndAsAWeightDoes) {
    write_whole_file(folder / "a:0.7", {"x"});
    EXPECT_EQ(weighted_path(folder / "a:0.7").path, folder / "a:0.7");
    EXPECT_EQ(weighted_path(folder / "a:0.7").weight, 0);
    EXPECT_EQ(weighted_path(folder / "a:0.7:3").path, folder / "a:0.7");
    EXPECT_EQ(weighted_path(folder / "a:0.7:3").weight, 3);
    EXPECT_EQ(message_of([&] { refuse_weight(folder / "a:0.7"); }), "");
}

TEST_F(Weights, WhereNoneIsTaken) {
    write_whole_file(folder / "a", {"x"});
    for (const std::string wrong : {":0.5", ":0", ":-1", ":1e999", ":"})
        EXPECT_EQ(
            message_of([&] { refuse_weight(folder / "a" + wrong); }),
            folder / "a" + wrong + ": weights are for the -i and --text of train_gpt2: leave out " + wrong);
    for (const std::string right : {"a", "missing:0.5", "a:last", ""})
        EXPECT_EQ(message_of([&] { refuse_weight(folder / right); }), "") << right;
    const std::string a = folder / "a:0.5", says = a + ": weights are for";
    const std::string eval = BINARY_DIR "/eval", prepare = BINARY_DIR "/prepare_data",
                      train = BINARY_DIR "/train_gpt2";
    for (const Words& command :
         {Words{train, "-j", a}, Words{train, "-i", folder / "a", "--val-data=" + a},
          Words{train, "--plot", a}, Words{eval, "-e", "d1", "-i", a}, Words{eval, "-e", "d1", "--text", a},
          Words{prepare, a}, Words{prepare, "--files-from", a}}) {
        expect_refusal(run_program(command), says);
    }
}

TEST_F(Weights, SharesAddUpToOne) {
    EXPECT_EQ(shares_of({"a:3", "b:1"}), (std::vector<double>{0.75, 0.25}));
    EXPECT_EQ(shares_of({"a", "b"}), std::vector<double>());
    EXPECT_EQ(shares_of({"a:0.7"}), std::vector<double>());  // all of the tokens
    EXPECT_EQ(message_of([] {
                  shares_of({"a", "b", "c:0.3"});
              }),
              "c:0.3 has a weight, and a has none: give each a weight, as in a:0.5, or none");
}

// --- batches ---

// Sources of the tokens 0 to 999, 1000 to 1999 and so on, the last one a short one.
struct Sources : testing::Test {
    const TemporaryFolder folder;
    Words patterns;
    const int T = 4;

    void add(uint64_t count) {
        std::vector<uint16_t> tokens(count);
        for (size_t i = 0; i < count; i++) tokens[i] = uint16_t(1000 * patterns.size() + i);
        patterns.push_back(folder / (std::to_string(patterns.size()) + ".bin"));
        write_token_shard(patterns.back(), tokens.data(), count);
    }
    void SetUp() override {
        for (const uint64_t count : {500, 400, 9}) add(count);
    }
    Mixture open(const std::vector<double>& shares, int B, uint64_t seed = 1) const {
        return Mixture({patterns.begin(), patterns.begin() + std::ptrdiff_t(shares.size())}, shares, B, T,
                       3000, seed);
    }
    // The first tokens of the next sequences, in the order of all processes.
    std::vector<int> next(Mixture& mixture, int B, int processes = 1) const {
        std::vector<int> firsts;
        const MixturePosition before = mixture.position();
        for (int rank = 0; rank < processes; rank++) {
            std::vector<int> inputs(size_t(B / processes * T), -1), targets(inputs.size(), -1);
            mixture.resume(before);
            mixture.next_batch(inputs.data(), targets.data(), {rank * B / processes, B / processes});
            for (size_t i = 0; i < inputs.size(); i++) EXPECT_EQ(targets[i], inputs[i] + 1);
            for (size_t i = 0; i < inputs.size(); i += size_t(T)) firsts.push_back(inputs[i]);
        }
        return firsts;
    }
    std::vector<int> sequences(Mixture mixture, int B, int count, int processes = 1) const {
        std::vector<int> all;
        while (int(all.size()) < count)
            for (const int first : next(mixture, B, processes)) all.push_back(first);
        return all;
    }
};

TEST_F(Sources, HaveTheirSharesAtAnyTime) {
    const std::vector<double> shares = {0.62, 0.3, 0.08};
    std::vector<double> counts(3);
    double all = 0;
    for (const int first : sequences(open(shares, 5), 5, 3000)) {
        counts[size_t(first / 1000)]++;
        all++;
        for (size_t i = 0; i < shares.size(); i++) EXPECT_LE(std::abs(counts[i] - shares[i] * all), 1) << all;
    }
}

TEST_F(Sources, TheOrderDependsOnTheSeedAlone) {
    const std::vector<double> shares = {0.7, 0.3};
    const std::vector<int> one = sequences(open(shares, 1), 1, 480);
    for (const int B : {2, 6, 12}) EXPECT_EQ(sequences(open(shares, B), B, 480), one) << B;
    for (const int processes : {2, 3, 6}) EXPECT_EQ(sequences(open(shares, 6), 6, 480, processes), one);
    EXPECT_NE(sequences(open(shares, 1, 2), 1, 480), one);
}

TEST_F(Sources, ASourceThatEndsBeginsAgain) {
    std::vector<int> of_third;  // two sequences in the first epoch, and later ones that begin elsewhere
    for (const int first : sequences(open({0.5, 0.25, 0.25}, 4), 4, 400))
        if (first >= 2000) of_third.push_back(first);
    ASSERT_EQ(of_third.size(), 100u);
    EXPECT_EQ(std::set<int>(of_third.begin(), of_third.begin() + 2), (std::set<int>{2000, 2004}));
    std::vector<int> of_first;  // each sequence once before one comes again
    for (const int first : sequences(open({0.5, 0.5}, 4), 4, 248))
        if (first < 1000) of_first.push_back(first);
    ASSERT_EQ(of_first.size(), 124u);  // of 499 tokens
    EXPECT_EQ(std::set<int>(of_first.begin(), of_first.end()).size(), 124u);
}

TEST_F(Sources, AResumedMixtureGoesOn) {
    const std::vector<double> shares = {0.6, 0.3, 0.1};
    const std::vector<int> whole = sequences(open(shares, 3), 3, 900);
    for (const int done : {0, 3, 300, 597}) {
        Mixture before = open(shares, 3);
        sequences(open(shares, 3), 3, done);
        while (int(before.position().sequences()) < done) next(before, 3);
        Mixture resumed = open(shares, 6);
        resumed.skip(before.position().sequences());
        EXPECT_EQ(sequences(std::move(resumed), 6, 300),
                  std::vector<int>(whole.begin() + done, whole.begin() + done + 300))
            << done;
    }
}

TEST_F(Sources, ABatchMayRepeatAShortValidationSet) {
    DataLoader loader(Words{patterns[2]}, 3, 10, 3000, false, 42, true);
    std::vector<int> inputs(30, -1), targets(30, -1);
    EXPECT_EQ(loader.num_batches(), 1u);
    for (int epoch = 0; epoch < 2; epoch++) {
        EXPECT_EQ(loader.next_batch(inputs.data(), targets.data()), 8);  // each counts once
        for (int i = 0; i < 30; i++) EXPECT_EQ(inputs[i], 2000 + i % 8);
        for (int i = 0; i < 30; i++) EXPECT_EQ(targets[i], inputs[i] + 1);
    }
    EXPECT_THROW(DataLoader(Words{patterns[2]}, 3, 10, 3000, false), Error);
}

// --- runs ---

// The validation losses that a run printed, by source; "" is the mixture.
static std::map<std::string, std::vector<double>> validations(const std::string& out) {
    std::map<std::string, std::vector<double>> found;
    const std::regex line("val loss (?:of ([^ ]+) )?([0-9.]+)");
    for (std::sregex_iterator at(out.begin(), out.end(), line), end; at != end; ++at)
        found[(*at)[1]].push_back(std::stod((*at)[2]));
    return found;
}

struct MixedRun : Distributed {
    const std::string other = data / "other.bin", other_val = data / "other_val.bin";
    const Words mixed = {"-i", data.train + ":3", "-i", other + ":1"};

    MixedRun() {
        std::vector<uint16_t> tokens(300);
        for (size_t i = 0; i < tokens.size(); i++) tokens[i] = uint16_t(i * i * 31 % 61);
        write_token_shard(other, tokens.data(), tokens.size());
        write_token_shard(other_val, tokens.data(), 40);  // less than a batch
    }
    void SetUp() override {}
    ProgramResult run(const Words& options) const {
        return run_program(with(args(program, "-j", data.val, "-j", other_val, "-e", tiny,
                                     "-b 4 -t 17 -d 136 -x 8 -v 3 -s 0 --device cpu"),
                                with(mixed, options)));
    }
};

TEST_F(MixedRun, EachSourceAndTheMixtureAreValidated) {
    const std::string result = output_of(run({"-o", folder("run")}));
    EXPECT_TRUE(contains(result,
                         "source train.bin: 75% of the tokens of a step; its 4000 are read 0.204 times\n"
                         "source other.bin: 25% of the tokens of a step; its 300 are read 0.907 times\n"));
    auto losses = validations(result);
    ASSERT_EQ(losses[""].size(), 4u);  // steps 0, 3, 6, 8
    for (size_t i = 0; i < 4; i++)
        EXPECT_NEAR(losses[""][i], 0.75 * losses["train.bin"].at(i) + 0.25 * losses["other.bin"].at(i), 2e-6);
    const auto best = std::min_element(losses[""].begin() + 1, losses[""].end());
    EXPECT_TRUE(contains(result, format_string("best %.4f", *best)));
    EXPECT_TRUE(contains(read_whole_file(folder("run") + "/metrics.csv"),
                         format_string(",%.5f", losses[""][3]).substr(0, 7)));
    const ProgramResult one = run({"-j", data.val, "-x", "1", "-v", "1"});
    EXPECT_FALSE(contains(one.out, "val loss of "));
    expect_refusal(run({"-j", data.val, "-j", data.val, "-j", data.val}),
                   "-j: 3 patterns for the 2 sources of -i");
}

// -m counts the batches of all sources, of each the same number, and one at least.
TEST_F(MixedRun, AValidationReadsNoMoreThanThatOfOneSource) {
    for (const auto& [most, tokens] : {std::pair("5", 2 * 68 + 40), std::pair("1", 68 + 40)}) {
        const ProgramResult plan = run({"-m", most, "-x", "1", "--dry-run"});
        EXPECT_TRUE(contains(plan.out, format_string("of which a validation reads %d (-m %s;", tokens, most)))
            << plan.err;
    }
    const ProgramResult all = run({"-m", "-1", "-x", "1"}), half = run({"-m", "2", "-x", "1"});
    EXPECT_FALSE(contains(all.out, "of which a validation"));
    EXPECT_EQ(validations(half.out)["other.bin"], validations(all.out)["other.bin"]);
    EXPECT_NE(validations(half.out)["train.bin"], validations(all.out)["train.bin"]);
}

TEST_F(MixedRun, AResumedRunIsBitIdentical) {
    const Words options = {"--dropout", "0.1", "-n", "5"}, resume = {"-y", "1", "-x", "8"};
    expect_ok(run(with(options, {"-o", folder("whole")})));
    expect_ok(run(with(options, {"-o", folder("run"), "-x", "5"})));
    expect_ok(run(with(options, with(resume, {"-o", folder("run")}))));
    EXPECT_EQ(model_after("run", 8), model_after("whole", 8));
    // in other micro-batches, of which each step has the same sequences
    expect_ok(run({"-o", folder("plain")}));
    expect_ok(run({"-o", folder("other"), "-x", "5"}));
    expect_ok(run(with(resume, {"-o", folder("other"), "-b", "2"})));
    for (size_t step = 5; step < 8; step++)
        EXPECT_NEAR(data.losses(folder("other")).at(step), data.losses(folder("plain")).at(step), 1e-4);
}

TEST_F(MixedRun, AResumedRunRefusesAnotherMixture) {
    expect_ok(run({"-o", folder("run"), "-x", "2"}));
    const Words resume = {"-o", folder("run"), "-y", "1", "-x", "3"};
    const auto refused = [&](const Words& options, const std::string& says) {
        expect_refusal(run(with(resume, options)), says);
    };
    refused({"-i", data.train + ":3", "-i", other + ":2"},
            "-i names sources with the shares 0.6, 0.4, and the run in " + folder("run") +
                " has sources with the shares 0.75, 0.25");
    refused({"-i", data.train}, "-i names one source without a weight");
    refused({"-i", other + ":3", "-i", data.train + ":1"}, "-i: the sources have other shards");
    refused({"-t", "16", "-d", "128"},
            "-t 16: the run in " + folder("run") + " mixes sequences of 17 tokens");
    expect_ok(run_program("train_gpt2 -o", folder("run"), "-y 1 -x 3"));
    // a number of sequences that would be drawn for centuries, in a file whose checksum is right
    const std::string path = run_path(folder("run"), 3);
    nlohmann::json file = read_json_object(path);
    for (const uint64_t wrong : {uint64_t(23), uint64_t(1) << 62, ~uint64_t(0)}) {
        file["content"]["run"]["mixture"]["sequences"] = wrong;
        file["checksum"] = checksum_of(json_text(file["content"]));
        write_whole_file(path, {json_text(file)});
        expect_refusal(run({"-o", folder("run"), "-y", "1", "-x", "4"}),
                       format_string("%s is damaged: %llu sequences of 17 tokens are not the 408 tokens",
                                     path.c_str(), (unsigned long long)wrong));
    }
}

// Processes divide the sequences of each step.
TEST_F(MixedRun, TwoProcessesTrainLikeOne) {
    Distributed::SetUp();
    if (IsSkipped()) return;
    const Words options = with(mixed, {"-j", data.val, "-j", other_val});
    const auto losses = [&](int processes, const std::string& output) {
        const std::string result = output_of(start(processes, options, output));
        return std::pair(printed_losses(result), validations(result));
    };
    const auto [one, one_val] = losses(1, "one");
    const auto [two, two_val] = losses(2, "two");
    ASSERT_EQ(one.size(), size_t(STEPS));
    for (size_t i = 0; i < one.size(); i++) EXPECT_NEAR(one[i], two.at(i), 1e-5) << i;
    ASSERT_EQ(one_val.size(), 3u);
    for (const auto& [name, values] : one_val)
        for (size_t i = 0; i < values.size(); i++)
            EXPECT_NEAR(values[i], two_val.at(name).at(i), 1e-5) << name;
}

TEST_F(MixedRun, TextsAreMixed) {
    write_whole_file(data / "novels.txt", {numbered(900, "once upon a time, line ", "\n")});
    write_whole_file(data / "wiki.txt", {numbered(1500, "", " is followed by another number\n")});
    const auto train = [&](const Words& options) {
        return run_program(with({"env", "-C", data.path, program, "--device", "cpu", "-e",
                                 "custom:layers=1,heads=2,channels=16,max_seq_len=32", "-x", "4", "-s", "0"},
                                options));
    };
    const Words texts = {"--text", "novels.txt:0.8", "--text", "wiki.txt:0.2"};
    expect_ok(train(with(texts, {"--dry-run"})), "source novels.txt: 80% of the tokens of a step; its ");
    const std::string first = output_of(train(with(texts, {"--tokenizer", "bpe:300"})));
    EXPECT_EQ(validations(first).size(), 3u) << first;
    EXPECT_TRUE(file_exists(data / "runs/novels-wiki-text/tokens/text2_tokenizer.json"));
    const ProgramResult again = train(with(texts, {"--tokenizer", "bpe:300"}));
    EXPECT_TRUE(contains(again.out, "the text has not changed")) << again.err;
    std::filesystem::remove(data / "novels.txt");  // its tokens are there
    const Words resume = {"-o", "runs/novels-wiki-text", "-y", "1", "-x", "5"};
    expect_ok(train(resume));
    expect_refusal(train(with(resume, {"--text", "novels.txt:0.7", "--text", "wiki.txt:0.3"})),
                   "--text novels.txt:0.7 --text wiki.txt:0.3: the run in");
    const ProgramResult half = train({"--text", "novels.txt:0.7", "--text", "wiki.txt"});
    EXPECT_TRUE(contains(half.err, "novels.txt:0.7 has a weight, and wiki.txt has none"));
}

// Sources of all kinds, and the options for each kind.
struct KindsRun : testing::Test {
    const TemporaryFolder folder;

    KindsRun() {
        std::string plain, text, body, chat;
        for (int i = 0; i < 900; i++) {
            const std::string number = std::to_string(i * i);
            plain += "the square of " + std::to_string(i) + " is " + number + "\n";
            text += "{\"text\": \"once upon a time, " + number + "\", \"id\": 1}\n";
            body += "{\"body\": \"hello to all of us, " + number + " of us\"}\n";
            chat += "{\"prompt\": \"what is " + number + "?\", \"completion\": \"A square.\"}\n";
        }
        create_folders(folder / "notes");
        for (const auto& [name, content] : {std::pair("plain.txt", plain),
                                            {"notes/a.md", plain},
                                            {"notes/b.txt", "@@@"},
                                            {"text.jsonl", text},
                                            {"body.jsonl", body},
                                            {"chat.jsonl", chat},
                                            {"template", "Q: {user}\nA: {assistant}\n"}})
            write_whole_file(folder / name, {content});
    }
    ProgramResult train(const Words& options) const {
        return run_program(with({"env", "-C", folder.path, program, "--device", "cpu", "-e",
                                 "custom:layers=1,heads=2,channels=16,max_seq_len=32", "-x", "2", "-s", "0"},
                                options));
    }
    std::set<int> bytes_of(int source) const {
        std::set<int> bytes;
        for (const TokenShard& shard :
             open_token_shards(folder / format_string("run/tokens/text%d_*.bin", source))) {
            const std::vector<uint16_t> tokens = read_shard(shard.path);
            bytes.insert(tokens.begin(), tokens.end());
        }
        return bytes;
    }
};

TEST_F(KindsRun, EachSourceTakesTheOptionsOfItsKind) {
    Words options = {"-o", "run"};
    for (const char* source : {"plain.txt", "text.jsonl", "body.jsonl", "chat.jsonl", "notes"})
        options.insert(options.end(), {"--text", std::string(source) + ":1"});
    options = with(options,
                   words_of("--field text --field body --skip-bad-lines --include *.md --include *.tex "
                            "--template template"));
    EXPECT_EQ(train(with(options, {"--tokenizer", "bpe:300"})).err,
              "note: --include " + shell_word("*.tex") +
                  ": no text file of a folder has such a name\n"
                  "note: fields that are not read: id (--field can be repeated)\n");
    expect_ok(train(with(options, {"--tokenizer", "bytes"})));
    for (const int source : {1, 2, 3, 4, 5}) EXPECT_EQ(bytes_of(source).count('{'), 0u) << source;
    EXPECT_EQ(bytes_of(2).count('p'), 1u);
    EXPECT_EQ(bytes_of(3).count('p'), 0u);
    EXPECT_EQ(bytes_of(4).count('Q'), 1u);
    EXPECT_EQ(bytes_of(5).count('@'), 0u);
}

TEST_F(KindsRun, WhatFitsNoSourceIsOneLine) {
    const auto refused = [&](const Words& options, const std::string& says) {
        for (const Words& dry : {Words{}, Words{"--dry-run"}})
            expect_refusal(train(with(options, dry)), says);
    };
    const Words plain = {"--text", "plain.txt:1", "--text", "notes/a.md:1"};
    refused(with(plain, {"--field", "text"}), "--field text: no text is JSONL with this field");
    refused(with(plain, {"--skip-bad-lines"}), "--skip-bad-lines is for JSONL, and no text is any");
    refused(with(plain, {"--template", "template"}), "--template is for JSONL of questions and answers, and");
    refused(with(plain, {"--include", "*.md"}),
            "--include chooses among the files of a folder, and no text is");
    const Words jsonl = {"--text", "text.jsonl:1", "--text", "plain.txt:1"};
    refused(jsonl, "text.jsonl: name the field of the JSON objects");
    refused(with(jsonl, {"--field", "text", "--field", "body"}), "--field body: no text is JSONL with this");
    refused(with(jsonl, {"--field", "body"}), "text.jsonl: line 1 has no string in a field 'body'");
    refused({"--text", "text.jsonl", "--text", "plain.txt", "--field", "text"},
            "--text a.txt:0.5 --text b.jsonl:0.5\n");
    refused(
        {"--text", "text.jsonl", "--text", "plain.txt", "--field", "text", "--skip-bad-lines"},
        "--skip-bad-lines leaves out all lines at the beginning of plain.txt; the first: plain.txt: line 1 "
        "is not a JSON object: plain text is read alone (--include chooses files of a");
    refused({"--text", "text.jsonl", "--text", "chat.jsonl", "--field", "text", "--skip-bad-lines"},
            "--skip-bad-lines leaves out all lines at the beginning of chat.jsonl; the first: ");
    refused(
        {"--text", "plain.txt", "--text", "chat.jsonl"},
        "chat.jsonl is JSONL, and plain.txt is plain text: train_gpt2 mixes them by weights, as in --text "
        "plain.txt:0.5 --text chat.jsonl:0.5, which may be patterns; of a folder, --include reads one kind");
    refused({"--text", "plain.txt", "--skip-bad-lines"}, "--skip-bad-lines is for JSONL");
    write_whole_file(folder / "late.jsonl",
                     {read_whole_file(folder / "text.jsonl"), "{\"text\": \"a\", \"body\": \"b\"}\n"});
    expect_refusal(
        train({"--text", "late.jsonl:1", "--text", "body.jsonl:1", "--field", "text", "--field", "body"}),
        "late.jsonl: line 901 has a text in the field 'body', which the source's first line");
}
