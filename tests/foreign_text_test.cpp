// Text from files and file names, wherever it leaves a program: on a terminal, in pages and pictures, and
// in file names.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "tests/report_example.h"
#include "tests/run_program.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// Escape sequences, the end of a line, what shells and HTML interpret, and a change of direction.
static const std::string hostile =
    "a\x1b[31m\x1b]0;title\x07\nsecond line\r!touch touched\n#`touch touched`$(touch "
    "touched)'\"<script>&\x7f\xe2\x80\xae";

// Everything that a terminal would interpret.
static std::string interpreted(const std::string& text) {
    std::string found;
    for (const char c : text)
        if ((uint8_t(c) < ' ' && c != '\n') || c == 0x7f) found += c;
    if (text.find("\xe2\x80\xae") != std::string::npos) found += "U+202E";
    return found;
}

// Commands that print names; %: the folder with the inputs.
static std::vector<Words> commands(const std::string& folder) {
    const std::string shape = "custom:layers=1,heads=1,channels=16,max_seq_len=16,vocab=257";
    const std::string text = folder + "/text.txt";
    return {
        args(bin("make_corpus"), "--stories 2 --out", text, "--seed 3"),
        {BINARY_DIR "/make_corpus", "--check", text},
        {BINARY_DIR "/prepare_data", "--out", folder, "--name", "x", text},
        {BINARY_DIR "/prepare_data", "--out", folder, "--name", fs::path(folder).filename().string(), text},
        {BINARY_DIR "/prepare_data", "--out", folder, "--name", "y", text + "missing"},
        {BINARY_DIR "/prepare_data", "--out", folder + "/latin", "--name", "y", folder + "/latin.txt"},
        with({BINARY_DIR "/train_gpt2", "-i", folder + "/x_train.bin", "-e", shape, "-o", folder + "/run"},
             words_of("-b 1 -t 16 -x 2 -n 1 -s 0 -v 0 --device cpu")),
        args(bin("train_gpt2"), "-y 1 -x 3 --device cpu -o", folder + "/run"),
        with({BINARY_DIR "/train_gpt2", "-i", folder + "/x_train.bin", "-e", folder + "/run", "-o",
              folder + "/run"},
             words_of("-b 1 -t 16 -x 1 -n 1 -s 0 -v 0 --device cpu")),
        args(bin("train_gpt2"), "-e", folder + "/run/earlier_1", "-b 1 -t 16 --device cpu --dry-run"),
        {BINARY_DIR "/train_gpt2", "--config", folder + "/bad.toml"},
        {BINARY_DIR "/train_gpt2", "--config", folder + "/worse.toml"},
        {BINARY_DIR "/train_gpt2", "-i", folder + "/none*"},
        args(bin("eval"), "-e", folder + "/run", "-i", folder + "/x_train.bin", "-t 16 -m 1 --device cpu"),
        {BINARY_DIR "/eval", "-e", folder + "/run", "-i", folder + "/none", "--device", "cpu"},
        {BINARY_DIR "/train_gpt2", "-e", folder + "/run", "--export", "hf", folder + "/hf"},
        {BINARY_DIR "/train_gpt2", "-e", folder + "/run", "--export", "gguf", folder + "/model.gguf"},
        {BINARY_DIR "/train_gpt2", "--plot", folder + "/run"},
        {BINARY_DIR "/generate", "-e", folder + "/none", "x"},
    };
}

static std::vector<ProgramResult> run_all(const TemporaryFolder& top, const std::string& name) {
    const std::string folder = top / name;
    create_folders(folder);
    write_whole_file(folder + "/latin.txt", {"caf\xe9 au lait\n"});
    write_whole_file(folder + "/bad.toml", {"model=\"" + name.substr(0, 8) + "\"\n"});
    write_whole_file(folder + "/worse.toml", {name.substr(0, 8) + "=1\n"});
    std::vector<ProgramResult> results;
    for (Words command : commands(folder)) {
        command.insert(command.begin(), {"env", "-C", top.path});
        results.push_back(run_program(command));
    }
    return results;
}

using ForeignText = InFolder;

TEST_F(ForeignText, NamesDoNotActOnATerminal) {
    TemporaryFolder top;
    const std::string one_line =
        hostile.substr(0, hostile.find('\n')) + hostile.substr(hostile.rfind('\n') + 1);
    const std::vector<ProgramResult> plain = run_all(top, "plain");
    for (const std::string& name : {hostile, one_line}) {
        const std::vector<ProgramResult> results = run_all(top, name);
        for (size_t i = 0; i < results.size(); i++) {
            SCOPED_TRACE(commands("%")[i][0] + " " + std::to_string(i) + plain[i].err);
            EXPECT_EQ(interpreted(results[i].out), "") << results[i].out;
            EXPECT_EQ(interpreted(results[i].err), "") << results[i].err;
            if (name == hostile && i >= 6) continue;  // train_gpt2 refuses the end of a line: there is no run
            EXPECT_EQ(count_lines(results[i].err) > 1, count_lines(plain[i].err) > 1) << results[i].err;
            EXPECT_EQ(count_lines(results[i].out), count_lines(plain[i].out)) << results[i].out;
        }
    }
    EXPECT_FALSE(fs::exists(top / "touched"));
}

// Replaces every text of a report that is not a name inside it.
static void poison(nlohmann::json& value, const std::string& member = "") {
    static const std::set<std::string> names = {"name", "program", "table", "x", "y", "curves", "better"};
    if (value.is_string() && !names.count(member)) value = hostile + "<script>alert(1)</script>";
    if (!value.is_structured()) return;
    for (auto& [name, part] : value.items())
        poison(part, value.is_array() ? member == "rows" ? "rows" : "" : name);
}

TEST_F(ForeignText, ReportsAreEscapedInPagesPicturesAndComparisons) {
    const std::string report = BINARY_DIR "/report";
    if (!fs::exists(report)) GTEST_SKIP() << "built without the benchmarks";
    nlohmann::json json = nasty_report();
    poison(json);
    write_whole_file(folder / "it.json", {json.dump()});
    const ProgramResult page = run_program({"env", "-C", folder.path, report, "--page", "it.json"});
    ASSERT_EQ(page.status, 0) << page.err;
    for (const std::string& name : names_in(folder.path))
        if (name != "it.json") {
            const std::string text = read_whole_file(folder / name);
            EXPECT_FALSE(contains(text, "<script")) << name;
            EXPECT_EQ(text.find('\x1b'), std::string::npos) << name;
        }
    const std::string same =
        output_of(run_program({report, "--compare", folder / "it.json", folder / "it.json"}));
    EXPECT_EQ(interpreted(same + page.out + page.err), "") << same;
    EXPECT_FALSE(contains(same, "\nsecond line"));
    EXPECT_FALSE(fs::exists(folder / "touched"));
}

TEST_F(ForeignText, NamesOfRunsAreNoMarkup) {
    std::string hostile_line = hostile;  // options cannot hold the end of a line
    std::replace(hostile_line.begin(), hostile_line.end(), '\n', ' ');
    const std::string metrics =
        "step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag,seconds,tokens\n"
        "0,4,0.1,1,100,,,,1,1\n1,3,0.1,1,100,,,,1,1\n";
    for (const std::string& name : {hostile_line, std::string("b"), std::string("it's $(touch touched)")}) {
        create_folders(folder / name);
        write_whole_file(folder / (name + "/metrics.csv"), {metrics});
    }
    for (const std::string& name : {hostile_line, std::string("it's $(touch touched)")}) {
        const ProgramResult result =
            run_program({"env", "-C", folder.path, BINARY_DIR "/train_gpt2", "--plot", name, "b"});
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(interpreted(result.out + result.err), "");
        EXPECT_EQ(count_lines(result.out), 4) << result.out;  // with a table of two runs
        const std::string svg = read_whole_file(folder / "comparison.svg");
        EXPECT_FALSE(contains(svg, "<script"));
        EXPECT_EQ(interpreted(svg), "");
    }
    const ProgramResult missing = run_program("train_gpt2 --plot", folder / ("missing" + hostile_line));
    expect_refusal(missing);
    EXPECT_EQ(interpreted(missing.err), "");
    EXPECT_FALSE(fs::exists(folder / "touched"));
}

// The README.md of an export has options of the run, which may be somebody else's.
TEST_F(ForeignText, ModelCardsAreNoMarkup) {
    run_all(folder, "it");
    const std::string run = folder / "it/run", json_file = run + "/run_00000001.json";
    const std::string markup = hostile + "|<script>alert(1)</script>|\n# title\n[x](http://x) __bold__";
    nlohmann::json json = nlohmann::json::parse(read_whole_file(json_file));
    nlohmann::json& state = json["content"]["run"];
    ASSERT_TRUE(state["options"].is_array());
    for (nlohmann::json& line : state["options"]) {
        const std::string text = line;
        line = text.substr(0, text.find('=') + 1) + '"' + markup + '"';
    }
    state["shards"] = {"no shard", {{"tokens", -5}}, {{"tokens", 7}}};
    json["checksum"] = checksum_of(json_text(json["content"]));
    const std::string log = run + "/main.log";
    write_whole_file(log, {read_whole_file(log), "s:0 trl:nan lr:0 norm:0\ns:1 tel:inf\n"});
    write_whole_file(json_file, {json.dump()});
    const ProgramResult result =
        run_program("train_gpt2 -e", run + "/model_00000001.bin", "--export hf", folder / "hf");
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(interpreted(result.out + result.err), "");
    const std::string card = read_whole_file(folder / "hf/README.md");
    for (const char* text : {"<script", "\n# title", "[x]", " __bold", "nan", "inf"})
        EXPECT_FALSE(contains(card, text));
    EXPECT_EQ(interpreted(card), "") << card;
    EXPECT_TRUE(contains(card, "| tokens of the training data | 7 |"));
}
