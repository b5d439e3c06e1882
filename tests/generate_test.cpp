// The program generate: prompts from all sources, reproducible texts, texts longer than the model's context,
// and bad input. The stream that prints whole characters.
#include <gtest/gtest.h>

#include <algorithm>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/base/utf8.h"
#include "llmc/text/text_stream.h"
#include "tests/run_program.h"
#include "tests/terminal.h"

static const std::string program = BINARY_DIR "/generate";
static const std::string tiny = "custom:layers=2,heads=2,channels=32,max_seq_len=64,vocab=257";

static ProgramResult generate(Words arguments) {
    const Words first = {program, "-e", tiny, "--device", "cpu"};
    arguments.insert(arguments.begin(), first.begin(), first.end());
    return run_program(arguments);
}

TEST(TextStream, NeverSplitsACharacter) {
    const std::pair<const char*, size_t> cases[] = {{"", 0},
                                                    {"a", 1},
                                                    {"\xc3", 0},
                                                    {"a\xc3", 1},
                                                    {"\xc3\xa9", 2},
                                                    {"\xe2\x82", 0},
                                                    {"x\xe2", 1},
                                                    {"\xe2\x82\xac", 3},
                                                    {"\xf0\x9f\x98", 0},
                                                    {"\xf0\x9f\x98\x80", 4},
                                                    {"\x80", 1},
                                                    {"\x80\x80\x80\x80", 4},
                                                    {"\xff", 1},
                                                    {"\xc3\xa9\xa9", 3},
                                                    {"a\xc0", 2},
                                                    {"\xe5\xe6", 0},
                                                    {"\xe5\xe6z", 3},
                                                    {"a\xf0\x9f\x98\xe5", 1}};
    for (const auto& [text, whole] : cases) EXPECT_EQ(whole_characters(text), whole) << text;
    EXPECT_EQ(first_characters("h\xc3\xa9\xe2\x82\xac", 5), "h\xc3\xa9");
    EXPECT_EQ(first_characters("h\xc3\xa9", 5), "h\xc3\xa9");
}

TEST(TextStream, EveryByteArrives) {
    TemporaryFolder folder;
    const std::string path = folder / "text", all = "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\x80z\xe2";
    File file(fopen(path.c_str(), "wb"));
    TextStream stream = {file.get()};
    for (char c : all) {
        stream.write(std::string(1, c));
        const std::string now = read_whole_file(path);
        EXPECT_EQ(whole_characters(now), now.size());
        EXPECT_EQ(now, all.substr(0, now.size()));
    }
    EXPECT_EQ(read_whole_file(path), all.substr(0, all.size() - 1));
    stream.finish();
    EXPECT_EQ(read_whole_file(path), all);
}

TEST(TextStream, ReportsWriteErrors) {
    File full(fopen("/dev/full", "wb"));
    if (!full) GTEST_SKIP() << "no /dev/full";
    TextStream stream = {full.get()};
    EXPECT_ANY_THROW(stream.write("text"));
}

TEST(TextStream, EscapesControlCharactersOnTerminals) {
    EXPECT_EQ(printable_lines("a\tb\n\xc3\xa9\xe2\x82\xac"), "a\tb\n\xc3\xa9\xe2\x82\xac");
    EXPECT_EQ(printable_lines(std::string("\x1b[2J\r\0\x7f\x07", 8)), "\\x1b[2J\\x0d\\x00\\x7f\\x07");
    EXPECT_EQ(printable_lines("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0");  // U+009B, as ESC [
    EXPECT_EQ(printable_lines("\xff\xc2z\xe2\x82"), "\\xff\\xc2z\\xe2\\x82");
    EXPECT_EQ(printable_lines("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // U+202E turns the line around
}

TEST(StopTexts, EndTheTextBeforeTheFirst) {
    struct Case {
        Words stops;
        const char *text, *shown;
        bool found;
    };
    const Case cases[] = {{{}, "text", "text", false},          {{"."}, "one. two.", "one", true},
                          {{"END"}, "ENEND more", "EN", true},  {{"END"}, "the EN", "the EN", false},
                          {{"bc", "b"}, "abc", "a", true},      {{"abcX", "c"}, "abcd", "ab", true},
                          {{"\n\n"}, "a\nb\n\nc", "a\nb", true}};
    for (const Case& c : cases)
        for (size_t step : {1, 2, 100}) {  // bytes in a token
            StopTexts stop = {c.stops};
            std::string shown;
            const std::string text = c.text;
            for (size_t i = 0; i < text.size() && !stop.found; i += step)
                shown += stop.add(text.substr(i, step));
            shown += stop.finish();
            EXPECT_EQ(shown, c.shown) << text << " " << step;
            EXPECT_EQ(stop.found, c.found) << text;
        }
}

using Generate = InFolder;

TEST_F(Generate, PromptFromArgumentFileOrStandardInput) {
    write_whole_file(folder / "prompt", {"Once upon"});
    const ProgramResult argument = generate({"-n", "40", "Once upon"});
    ASSERT_EQ(argument.status, 0) << argument.err;
    EXPECT_EQ(argument.out.rfind("Once upon", 0), 0u) << argument.out;
    EXPECT_GT(argument.out.size(), 40u);
    EXPECT_TRUE(contains(argument.err, "tokens/s"));
    EXPECT_EQ(generate({"-n", "40", "--file", folder / "prompt"}).out, argument.out);
    const Words reads = {program, "-e", tiny, "--device", "cpu", "-n", "40", "-"};
    EXPECT_EQ(run_with_input(reads, "Once upon").out, argument.out);
    for (const char* line_end : {"\n", "\r\n"}) {
        write_whole_file(folder / "line", {"Once upon", line_end});
        EXPECT_EQ(generate({"-n", "40", "--file", folder / "line"}).out, argument.out);
        EXPECT_EQ(run_with_input(reads, std::string("Once upon") + line_end).out, argument.out);
    }
    write_whole_file(folder / "lines", {"Once upon\n\n"});
    EXPECT_EQ(generate({"-n", "0", "--file", folder / "lines"}).out, "Once upon\n\n");
    EXPECT_EQ("Once upon" + generate({"-n", "40", "--no-echo", "Once upon"}).out, argument.out);
    EXPECT_EQ(generate({"-n", "0", "Once upon"}).out, "Once upon\n");
    expect_ok(generate({"-n", "5"}));  // a new document
    // the reader of text files: a byte order mark, UTF-16, compression
    write_whole_file(folder / "marked", {"\xef\xbb\xbfOnce upon"});
    EXPECT_EQ(generate({"-n", "40", "--file", folder / "marked"}).out, argument.out);
    EXPECT_EQ(generate({"-n", "40", "--prompts", folder / "marked"}).out, argument.out);
    using namespace std::string_view_literals;
    write_whole_file(folder / "wide", {"\xff\xfeO\0n\0c\0e\0 \0u\0p\0o\0n\0"sv});
    for (const char* option : {"--file", "--prompts"})
        EXPECT_EQ(generate({"-n", "40", option, folder / "wide"}).out, argument.out);
    EXPECT_EQ(run_with_input(reads, read_whole_file(folder / "wide")).out, argument.out);
}

// A random model of bytes ends within a character now and then, at -n, at a stop text or at the context's
// end.
TEST_F(Generate, EndsWithNoPartOfACharacter) {
    std::string all = generate({"-n", "60", "--no-echo", "--ignore-end", "a"}).out;
    int ended_within = 0;
    for (int n = 1; n < 40; n++) {
        const size_t whole = whole_characters(all.substr(0, n));
        const Words options = {"-n", std::to_string(n), "--no-echo", "--ignore-end", "a"};
        EXPECT_EQ(generate(options).out, all.substr(0, whole) + "\n") << n;
        if (whole == size_t(n)) continue;
        ended_within++;
        EXPECT_TRUE(contains(generate(with(options, {"--samples", "2"})).out,
                             all.substr(0, whole) + "\n--- sample 2"))
            << n;
    }
    EXPECT_GT(ended_within, 0);
}

TEST_F(Generate, SameSeedSameTextAlsoPastTheContext) {
    auto text = [](const std::string& seed) {
        return generate({"-n", "300", "--ignore-end", "--seed", seed, "To be"}).out;
    };
    const std::string first = text("7");
    EXPECT_GT(first.size(), 290u);
    EXPECT_EQ(text("7"), first);
    EXPECT_NE(text("8"), first);
}

TEST_F(Generate, SamplingOptionsHaveAnEffect) {
    auto text = [](Words options) {
        options.insert(options.end(), {"-n", "60", "--ignore-end", "To be"});
        return generate(options).out;
    };
    const std::string greedy = text({"--temperature", "0"});
    EXPECT_EQ(text({"--top-k", "1", "--seed", "9"}), greedy);
    EXPECT_EQ(text({"--top-p", "0", "--seed", "10"}), greedy);
    EXPECT_EQ(text({"--min-p", "1", "--seed", "11"}), greedy);
    EXPECT_NE(text({"--temperature", "0", "--repetition-penalty", "1.5"}), greedy);
    EXPECT_NE(text({}), greedy);
    EXPECT_NE(text({"--top-k", "5"}), text({}));
}

// The texts of several samples are what each seed gives alone.
TEST_F(Generate, SeveralSamplesSideBySide) {
    std::string expected;
    for (int i = 0; i < 3; i++)
        expected += "--- sample " + std::to_string(i + 1) + " of 3 ---\n" +
                    generate({"-n", "80", "--seed", std::to_string(7 + i), "To be"}).out;
    const std::string result = output_of(generate({"-n", "80", "--seed", "7", "--samples", "3", "To be"}));
    EXPECT_EQ(result, expected);
    expect_ok(generate({"-n", "1", "--samples", "65", "x"}));  // more than the context has tokens
    EXPECT_NE(generate({"-n", "1", "--samples", "1025", "x"}).status, 0);
}

TEST_F(Generate, FileOfPrompts) {
    write_whole_file(folder / "prompts", {"To be\r\n\nOnce\n"});
    const std::string result = output_of(generate({"-n", "20", "--prompts", folder / "prompts"}));
    EXPECT_EQ(result, "--- prompt 1 of 2 ---\n" + generate({"-n", "20", "To be"}).out +
                          "--- prompt 2 of 2 ---\n" + generate({"-n", "20", "Once"}).out);
    const ProgramResult samples =
        generate({"-n", "5", "--prompts", folder / "prompts", "--samples", "2", "--no-echo"});
    EXPECT_TRUE(contains(samples.out, "--- prompt 2 of 2, sample 1 of 2 ---\n"));
}

TEST_F(Generate, StopsBeforeAText) {
    const std::string all = generate({"-n", "100", "--ignore-end", "To be"}).out;
    const std::string stop = all.substr(40, 2), other = all.substr(60, 2);
    const std::string result =
        output_of(generate({"-n", "100", "--ignore-end", "--stop", other, "--stop", stop, "To be"}));
    const size_t at = std::min(all.find(stop, 5), all.find(other, 5));
    EXPECT_EQ(result, all.substr(0, at) + "\n");
}

TEST_F(Generate, SaysHowMuchOfALongPromptIsUsed) {
    const ProgramResult result = generate({"-n", "1", std::string(100, 'x')});
    EXPECT_EQ(result.status, 0);
    EXPECT_TRUE(contains(result.err,
                         "the prompt has 100 tokens and the model's context is 64: only the last 32 are "
                         "used"));
    EXPECT_FALSE(contains(generate({"-n", "1", std::string(63, 'x')}).err, "note"));
}

TEST_F(Generate, ThreadsDoNotChangeTheText) {
    const std::string one = generate({"-n", "30", "--threads", "1", "To be"}).out;
    EXPECT_EQ(generate({"-n", "30", "--threads", "2", "To be"}).out, one);
    EXPECT_GT(one.size(), 30u);
}

// What the program shows on a terminal, with the input typed.
static std::string on_terminal(Words arguments, const std::string& typed) {
    arguments.insert(arguments.begin(), {program, "-e", tiny, "--device", "cpu"});
    return shown_on_terminal(arguments, "dumb", typed);
}

TEST_F(Generate, EscapesControlCharactersOnATerminalOnly) {
    const std::string prompt = "a\x1b[31mb\rc\td";
    EXPECT_EQ(generate({"-n", "0", prompt}).out, prompt + "\n");
    const std::string shown = on_terminal({"-n", "0", prompt}, "");
    if (shown.empty()) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_TRUE(contains(shown, "a\\x1b[31mb\\x0dc"));
    EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
}

TEST_F(Generate, InteractivePromptsAreContinued) {
    const std::string one = generate({"-n", "30", "--no-echo", "To be"}).out,
                      two = generate({"-n", "30", "--no-echo", "Once"}).out;
    const Words interactive = {program, "-e", tiny, "--device", "cpu", "-n", "30", "-i"};
    EXPECT_EQ(run_with_input(interactive, "To be\n\nOnce").out, one + two);
    if (!terminals_are_pipes) {
        EXPECT_TRUE(run_with_input(interactive, "To be\n\x1a\n\x04\nOnce").out.ends_with(two));
    }
    EXPECT_NE(run_with_input(interactive, "caf\xe9").err.find("not UTF-8 at byte 3"), std::string::npos);
    if (const File directory{fopen(folder.path.c_str(), "rb")}) {  // not on Windows
        EXPECT_TRUE(contains(run_program(interactive, {}, directory.get()).err, "standard input: Is a dir"));
    }
    const std::string shown = on_terminal({"-n", "30", "-i"}, "To be\nOnce\n\x04");
    if (shown.empty()) GTEST_SKIP() << "no pseudo-terminal";
    EXPECT_NE(on_terminal({"-i"}, "No\x03\x04"), "");  // deletes the line; then the input ends
    for (const std::string& text : {one, two}) {
        std::string expected = printable_lines(text);
        for (size_t at = 0; (at = expected.find('\n', at)) != std::string::npos; at += 2)
            expected.replace(at, 1, "\r\n");  // as terminals do
        EXPECT_TRUE(contains(shown, expected));
    }
}

TEST_F(Generate, BadInputGivesOneLineAndStatus1) {
    write_whole_file(folder / "text", {"some text"});
    write_whole_file(folder / "empty", {"\n\n"});
    const std::string small = "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=99";
    expect_refusals(program, {{},
                              {"-e", "d7", "x"},
                              {"-e", folder / "missing.bin", "x"},
                              {"-e", folder / "missing.safetensors", "x"},
                              {"-e", tiny, "--tokenizer", folder / "text", "x"},
                              {"-e", small, "--tokenizer", "bytes", "x"},
                              {"-e", tiny, "--file", folder / "missing"},
                              {"-e", tiny, "--file", folder / "text", "x"},
                              {"-e", tiny, "--prompts", folder / "text", "x"},
                              {"-e", tiny, "--prompts", folder / "empty"},
                              {"-e", tiny, "-i", "x"},
                              {"-e", tiny, "--stop", "", "x"},
                              {"-e", tiny, "--precision", "int8", "x"},
                              {"-e", tiny, "--device", "no such device", "x"}});
}
