// The table of options: values from texts and back, command lines, sources, and the reference page.
#include "llmc/options/option_table.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/toml.h"
#include "llmc/options/arguments.h"
#include "llmc/options/train_options.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

enum class Colour { red, green, blue };

// A variable of each type, and the table of their options.
struct Everything {
    Sources sources;
    bool flag = false, on = true, zero_or_one = true;
    int count = 4, any = 0;
    float rate = 0.5f;
    double precise = 0;
    uint64_t seed = 42, size = 0;
    std::string text = "a", word = "one", file = "";
    Words several = {}, pair = {}, words = {};
    std::vector<int> numbers = {};
    Colour colour = Colour::green;

    OptionTable table() {
        OptionTable t = {.program = "test", .description = "Tests.", .sources = &sources};
        t.add("-f,--flag", flag, "a flag");
        t.add("--on", on, "a flag that is on").has_negation = true;
        t.add("-z,--zero", zero_or_one, "0 or 1").zero_or_one();
        t.add("-c,--count", count, "a count").at_least(1).word_for_zero = "auto";
        t.add("-cc,--any", any, "any number").at_least(-9, 1e10);
        t.add("--rate", rate, "a rate").between(0, 1);
        t.add("--precise", precise, "a number");
        t.add("-s,--seed", seed, "a seed");
        t.add("--size", size, "a size").is_size = true;
        t.add("-t,--text", text, "a text");
        t.add("--word", word, "a word").one_of({"one", "two"});
        t.add("--several", several, "texts");
        t.add("--numbers", numbers, "numbers").list().between(0, 9);
        t.add("--colour", colour, "a colour").one_of({"red", "green", "blue"});
        t.add_without_effect("-x,--without", "there is none");
        Option& two = t.add("--pair", pair, "two texts");
        two.count = 2;
        two.placeholder = "A B";
        t.add("FILE", file, "a file");
        t.add("WORD", words, "words");
        return t;
    }
    void parse(const Words& arguments) {
        OptionTable t = table();
        parse_arguments(t, arguments);
    }
    Words texts(const char* name) { return table().find(name)->texts(); }
};

static std::string refusal(const Words& arguments) {
    const std::string message = message_of([&] { Everything().parse(arguments); });
    const size_t advice = message.find(" (--help lists the options)");
    return advice == message.npos ? message : message.substr(0, advice);
}

TEST(OptionTable, EverySpellingOfAnOption) {
    Everything e;
    e.parse(words_of(
        "-f --no-on -z 0 -c9 -cc -3 --rate=0.25 --precise 1e-3 -s 18446744073709551615 --size=7.5G --text=-f "
        "--word two --several a --several=b --numbers 1,2 3 --colour blue -x 9 --pair c d in -- -w v"));
    EXPECT_TRUE(e.flag && !e.on && !e.zero_or_one);
    EXPECT_EQ(e.count, 9);
    EXPECT_EQ(e.any, -3);
    EXPECT_EQ(e.rate, 0.25f);
    EXPECT_EQ(e.precise, 1e-3);
    EXPECT_EQ(e.seed, ~uint64_t(0));
    EXPECT_EQ(e.size, uint64_t(7680) << 20);
    EXPECT_EQ(e.text, "-f");
    EXPECT_EQ(e.word, "two");
    EXPECT_EQ(e.several, (Words{"a", "b"}));
    EXPECT_EQ(e.numbers, (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(e.colour, Colour::blue);
    EXPECT_EQ(e.pair, (Words{"c", "d"}));
    EXPECT_EQ(e.file, "in");
    EXPECT_EQ(e.words, (Words{"-w", "v"}));
}

TEST(OptionTable, OnlyAListIsGivenTwice) {
    Everything e;
    e.parse({"--several", "x", "--numbers", "1", "--several", "y", "--numbers", "2,3"});
    EXPECT_EQ(e.several, (Words{"x", "y"}));
    EXPECT_EQ(e.numbers, (std::vector<int>{1, 2, 3}));
    const std::pair<Words, const char*> cases[] = {{{"--flag", "--flag"}, "--flag"},
                                                   {{"--on", "--no-on"}, "--on"},
                                                   {{"-c", "5", "--count=5"}, "--count"},
                                                   {{"--pair", "a", "b", "--pair", "c", "d"}, "--pair"},
                                                   {{"-x", "1", "--without", "2"}, "--without"},
                                                   {{"--word", "one", "--word", "two"}, "--word"}};
    for (const auto& [arguments, name] : cases)
        EXPECT_EQ(refusal(arguments), std::string(name) + " is given twice: it takes one value");
}

TEST(OptionTable, WrongArgumentsGiveOneLine) {
    const std::pair<Words, const char*> cases[] = {
        {{"--cout", "3"}, "unknown option --cout (did you mean --count?)"},
        {{"-q"}, "unknown option -q"},
        {{"-count", "3"}, "unknown option -count (did you mean --count?)"},
        {{"-count=3"}, "unknown option -count (did you mean --count?)"},
        {{"-cx", "3"}, "unknown option -cx"},
        {{"--no-flag"}, "unknown option --no-flag"},
        {{"-=3"}, "unknown option -"},
        {{"--no-on=1"}, "unknown option --no-on"},
        {{"--flag=1"}, "--flag takes no value: leave out '=1'"},
        {{"--count"}, "--count needs a value"},
        {{"--count", "--flag"},
         "--count needs a value, and --flag looks like an option; as a value: --count=--flag"},
        {{"-t", "-c", "3"}, "--text needs a value, and -c looks like an option; as a value: --text=-c"},
        {{"-x", "-f"}, "--without needs a value, and -f looks like an option; as a value: --without=-f"},
        {{"--word", "--tpyo"},
         "--word needs a value, and --tpyo looks like an option; as a value: --word=--tpyo"},
        {{"--pair", "a", "--flag"}, "--pair needs a value, and --flag looks like an option"},
        {{"--pair", "a"}, "--pair needs 2 values: A B"},
        {{"-c", "0"}, "--count: 0 is not at least 1, or auto"},
        {{"-c", "1073741825"}, "--count: 1073741825 is not at most 1073741824"},
        {{"-c", "1.5"}, "--count: 1.5 is not a whole number in digits"},
        {{"-c", "0x10"}, "--count: 0x10 is not a number: give a whole number, at least 1, or auto"},
        {{"-c", "1e3"}, "--count: 1e3 is not a whole number in digits: write 1000"},
        {{"-c", "010"}, "--count: 010 is not a decimal number: leave out the leading 0"},
        {{"-c", ""}, "--count: '' is not a number: give a whole number, at least 1, or auto"},
        {{"-cc", "2147483648"}, "--any: 2147483648 is not a whole number in digits"},
        {{"--rate", "nan"}, "--rate: nan is not a number: give a number from 0 to 1"},
        {{"--rate", "1,5"}, "--rate: 1,5 is not a number: leave out the marks between its digits"},
        {{"-c", "1_000"}, "--count: 1_000 is not a number: leave out the marks between its digits"},
        {{"--precise", "x"}, "--precise: x is not a number: give a number"},
        {{"--precise", "inf"}, "--precise: inf is not a number"},
        {{"-s", "-1"}, "--seed: -1 is not at least 0"},
        {{"-s", "18446744073709551616"}, "--seed: 18446744073709551616 is not at most 18446744073709551615"},
        {{"--size", "8"}, "--size: 8 is not a size such as 8G or 900M, nor all"},
        {{"--word", "three"}, "--word: three is not one or two"},
        {{"--colour", "Red"}, "--colour: Red is not red, green or blue"},
        {{"--zero", "2"}, "--zero: 2 is not 0 or 1"},
        {{"--numbers", "1,,2"}, "--numbers: '' is not a number: give a whole number from 0 to 9"},
        {{"--unknown", "-c", "0"}, "--count: 0 is not at least 1, or auto"}};
    for (const auto& [arguments, says] : cases)
        EXPECT_EQ(refusal(arguments).find(says), 0u) << refusal(arguments);
    EXPECT_EQ(refusal({"--wrong", "1"}).find("unknown option --wrong"), 0u);
}

TEST(OptionTable, TextsAreReadAsTheSameValues) {
    for (const Words& arguments : {Words{},
                                   {"-f", "--no-on", "-z", "0", "-c", "auto", "--rate", "0.1", "--precise",
                                    "0.1", "--size", "1234567K"},
                                   {"--rate", "1e-7", "--precise", "3.3333333333333335", "--several", "'",
                                    "--several", "\"\\", "-s", "9223372036854775808"}}) {
        Everything e, again;
        e.parse(arguments);
        for (Option& row : e.table().rows) again.table().find(row.name)->set(row.texts());
        for (Option& row : e.table().rows) EXPECT_EQ(again.texts(row.name.c_str()), row.texts()) << row.name;
        EXPECT_EQ(again.rate, e.rate);
        EXPECT_EQ(again.precise, e.precise);
        EXPECT_EQ(again.size, e.size);
        EXPECT_EQ(again.count, e.count);
    }
}

TEST(OptionTable, AStrongerSourceWins) {
    Everything e;
    const auto set = [&](const char* text, Source source) {
        OptionTable t = e.table();
        t.set(*t.find("count"), {text}, source);
        return e.count;
    };
    EXPECT_EQ(e.sources.of(&e.count), Source::built_in);
    e.sources.choose(e.count, 5);
    EXPECT_EQ(e.count, 5);
    e.sources.choose(e.count, 6);  // chosen again
    EXPECT_EQ(e.count, 6);
    EXPECT_FALSE(e.sources.is_given(e.count));
    EXPECT_EQ(set("7", Source::run), 7);
    e.sources.choose(e.count, 8);
    EXPECT_EQ(e.count, 7);
    EXPECT_EQ(set("9", Source::command_line), 9);
    EXPECT_EQ(set("10", Source::config), 9);
    EXPECT_EQ(set("0", Source::config), 9);  // not even looked at
    EXPECT_TRUE(e.sources.is_given(e.count));
    EXPECT_FALSE(e.sources.is_given(e.rate));
    const Everything copy = e;
    EXPECT_TRUE(copy.sources.is_given(copy.count));
    EXPECT_FALSE(copy.sources.is_given(copy.rate));
}

TEST(OptionTable, WhatIsRequiredIsMissed) {
    std::string file;
    OptionTable t = {.program = "test", .description = ""};
    t.add("--out output", file, "a file").required();
    expect_error("--out is required", [&] { parse_arguments(t, {}); });
    expect_error("did you mean --out?", [&] { parse_arguments(t, {"--output", "o"}); });
}

TEST(Toml, TextsAreReadBack) {
    for (const std::string text :
         {"", "a", "it's", "a \"b\"", "a\\b", "'\"", "\\'\"\\", "a\nb\t\x7f", "\"\"\"", "ä # b"}) {
        const std::string list = "list=[" + toml_text(text) + ", " + toml_text(text) + "]\n";
        const auto entries = read_toml(toml_line("name", text) + "\n" + list + "last=1", "file");
        ASSERT_EQ(entries.size(), 3u) << text;
        EXPECT_EQ(entries[0].values, Words{text});
        EXPECT_EQ(entries[1].values, (Words{text, text}));
        EXPECT_EQ(entries[2].line, 3);
    }
}

// The system would take the path before it.
TEST(Toml, RefusesZeroBytes) {
    for (const char* line : {"output = \"r\\u0000x\"", "text = ['a', \"b\\u0000\"]"})
        expect_error("file, line 1: a text has a zero byte", [&] { read_toml(line, "file"); });
}

// Earlier versions wrote no escapes, and numbers that TOML does not have.
TEST(Toml, FilesOfEarlierVersions) {
    const std::pair<const char*, const char*> cases[] = {
        {"model=\"a\\new\"", "a\\new"},
        {"model='a\"b'c' # d", "a\"b'c"},
        {"model=\"\"", ""},
        {"seed=18446744073709551615", "18446744073709551615"},
        {"model=d12 # 'x'", "d12"},
        {"model = \"a\\\\b\"", "a\\b"}};
    for (const auto& [line, value] : cases)
        EXPECT_EQ(read_toml(line, "file").at(0).values, Words{value}) << line;
}

// --- the reference page ---

static std::string section_of(const std::string& page, const std::string& title) {
    const size_t begin = page.find("\n## " + title + "\n");
    return begin == page.npos ? "" : page.substr(begin, page.find("\n## ", begin + 4) - begin);
}

// As Markdown, with options as code.
static std::string cell(const std::string& text) {
    const std::string escaped = std::regex_replace(text, std::regex("[|*<]"), "\\$&");
    return std::regex_replace(escaped, std::regex("(^|[ (])(--?[a-z][a-z=-]*)"), "$1`$2`");
}

static std::string row_of(const Option& row) {
    const std::string flag = row.flag.empty() ? "" : "`-" + row.flag + "`, ";
    const std::string negation = row.has_negation ? ", `--no-" + row.name + "`" : "";
    const Words texts = row.texts();
    std::string value = texts.size() == 1 ? texts[0] : "";
    const bool is_number = row.bare.empty();
    if (value == "false") value = is_number ? "0" : "off";
    if (value == "true") value = is_number ? "1" : "on";
    return "| " + flag + "`" + row.dashed() + "`" + negation + " | " + cell(row.help) + " | " + cell(value) +
           " |\n";
}

// The page's tables of train_gpt2, as the table of options has them: copy the one that is missing.
TEST(Reference, HasTheTableOfTrainGpt2) {
    Options o;
    o.model = "d12";
    const std::string page = section_of(read_whole_file(SOURCE_DIR "/docs/reference.md"), "train_gpt2");
    std::map<std::string, std::string> tables;
    for (const Option& row : option_table(o).rows) tables[row.group] += row_of(row);
    tables.erase("Options");  // --help and --version
    for (const auto& [group, rows] : tables) {
        const std::string table =
            "\n**" + group + "**\n\n| option | meaning | default |\n|---|---|---|\n" + rows + "\n";
        EXPECT_TRUE(contains(page, table));
    }
}

static std::set<std::string> names_in(const std::string& text, const std::regex& pattern) {
    std::set<std::string> names;
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
        names.insert((*match)[1]);
    for (const char* everywhere : {"--help", "--version"}) names.erase(everywhere);
    return names;
}

// The page names the options of the other programs, and no others.
TEST(Reference, HasTheOptionsOfTheOtherPrograms) {
    const std::string page = read_whole_file(SOURCE_DIR "/docs/reference.md");
    for (const std::string program : {"generate", "eval", "prepare_data", "make_corpus"}) {
        const std::string help = run_program({BINARY_DIR "/" + program, "--help"}).out;
        std::string rows;
        for (const std::string& line : lines_of(section_of(page, program)))
            if (line.starts_with("| `")) rows += line.substr(0, line.find(" | ")) + "\n";
        EXPECT_EQ(names_in(rows, std::regex("`(--[a-z0-9-]+)")),
                  names_in("\n" + help, std::regex("\n  (?:-[a-z]+,)?(--[a-z0-9-]+)")))
            << program;
    }
}

// A bound that is no binary fraction, such as 0.05, is one of the values.
TEST(OptionTable, BoundsAreValues) {
    Options o;
    for (Option& row : option_table(o).rows) {
        if (row.range.empty() || row.is_size || row.least < -1e299 || row.most > 1e18) continue;
        for (const double bound : {row.least, row.most})
            EXPECT_NO_THROW(row.set({format_string("%.10g", bound)})) << row.name << " " << bound;
    }
}
