// train_gpt2 --text: from a text or a folder to a trained model, a sample and a plot.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/data/token_file.h"
#include "llmc/options/train_options.h"
#include "llmc/run/text_tokens.h"
#include "llmc/text/tokenizer.h"
#include "tests/compressed.h"
#include "tests/tiny_run.h"

// A folder with a text of 24 kB, in which the programs run.
struct TextRun : ::testing::Test {
    TemporaryFolder folder;
    const std::string shape = "custom:layers=1,heads=2,channels=16,max_seq_len=32";

    void SetUp() override { write_text("my.txt", 1000); }
    void write_text(const std::string& name, int lines) const {
        std::string text;
        for (int i = 0; i < lines; i++)
            text += "once upon a time, line " + std::to_string(i) + (i % 20 == 19 ? "\n\n" : "\n");
        write_whole_file(folder / name, {text});
    }
    // letters.bin: a tokenizer of bytes, of which this is the first.
    void write_letters(int first = 0) const {
        Tokenizer letters;
        for (int i = 0; i < 256; i++) letters.tokens.push_back(std::string(1, char(first + i)));
        letters.tokens.push_back("<|endoftext|>");
        letters.end_of_text = 256;
        write_tokenizer(letters, folder / "letters.bin");
    }
    Words command(const Words& options) const {
        return with({"env", "-C", folder.path, program, "--device", "cpu"}, options);
    }
    Words small(const std::string& text, const Words& options) const {
        return command(with(args("--text", text, "-e", shape, "-x 4 -g 20"), options));
    }
    ProgramResult train(const std::string& text, const Words& options = {}) const {
        const ProgramResult run = run_program(small(text, options));
        EXPECT_EQ(run.status, 0) << run.err << run.out;
        return run;
    }
    void expect_refused(const Words& options, const std::string& says) const {
        expect_refusal(run_program(command(options)), says);
    }
};

TEST_F(TextRun, EndsWithAModelASampleAndAPlot) {
    const ProgramResult run = train("my.txt");
    for (const char* part :
         {"chosen for this text, unless another is given: --tokenizer bytes --optimizer muon",
          "1 layer of 16 channels, 32 x 32 tokens; 4 steps read 0.0227 MB of text ", "generating:", "best ",
          "plot: runs/my-text/loss.svg\n", "generate -e runs/my-text"})
        EXPECT_TRUE(contains(run.out, part));
    EXPECT_EQ(run.err, "");
    EXPECT_TRUE(contains(read_whole_file(folder / "runs/my-text/loss.svg"), "best "));
    const std::string text = output_of(
        run_program(args("env -C", folder.path, bin("generate"), "--device cpu -n 5 -e runs/my-text once")));
    EXPECT_TRUE(text.starts_with("once")) << text;
}

TEST_F(TextRun, TokensAreMadeAgainWhenTheTextHasChanged) {
    const std::string tokens = folder / "runs/my-text/tokens/text_train.bin";
    train("my.txt");
    const std::string before = read_whole_file(tokens);
    const ProgramResult again = train("./my.txt");
    EXPECT_TRUE(contains(again.out, "the text has not changed"));
    EXPECT_TRUE(contains(again.out, "earlier_1"));
    write_text("my.txt", 1001);
    const ProgramResult changed = train("my.txt");
    EXPECT_FALSE(contains(changed.out, "the text has not changed"));
    EXPECT_NE(read_whole_file(tokens), before);
    // as many bytes, and as old: what is in the file counts
    std::string text = read_whole_file(folder / "my.txt");
    const auto written = std::filesystem::last_write_time(folder / "my.txt");
    std::ranges::replace(text, 'e', 'o');
    write_whole_file(folder / "my.txt", {text});
    std::filesystem::last_write_time(folder / "my.txt", written);
    EXPECT_FALSE(contains(train("my.txt").out, "the text has not changed"));
    std::filesystem::last_write_time(folder / "my.txt", written + std::chrono::hours(1));
    EXPECT_TRUE(contains(train("my.txt").out, "the text has not changed"));
    EXPECT_FALSE(contains(train("my.txt", {"-y", "1"}).out, "is not as it was"));
    std::filesystem::remove(tokens);
    EXPECT_FALSE(contains(train("my.txt").out, "the text has not changed"));
    // another tokenizer of the same name
    const Words with_letters = {"--tokenizer", "letters.bin", "-o", "of_letters"};
    write_letters('a');
    train("my.txt", with_letters);
    EXPECT_TRUE(contains(train("my.txt", with_letters).out, "the text has not changed"));
    write_letters('b');
    EXPECT_FALSE(contains(train("my.txt", with_letters).out, "the text has not changed"));
}

// The tokens are in the run's folder: a resumed run continues with them, and says that the text is another.
TEST_F(TextRun, AResumedRunSaysThatItsTextHasChanged) {
    const std::string stamp = folder / "runs/my-text/tokens/text.made_of",
                      text = read_whole_file(folder / "my.txt");
    const std::string size = std::to_string(text.size()), is_other = "is not as it was when its tokens were";
    train("my.txt");
    int steps = 4;
    const auto resume = [&](const Words& options) {
        return output_of(
            run_program(command(with(args("-o runs/my-text -y 1 -x", std::to_string(++steps)), options))));
    };
    EXPECT_FALSE(contains(resume({}), is_other));
    write_whole_file(folder / "my.txt", {text, "more"});
    for (const Words& options : {Words{}, Words{"--text", "my.txt"}}) {
        const std::string out = resume(options);
        EXPECT_TRUE(contains(out, is_other + " prepared: it has " + std::to_string(text.size() + 4) +
                                      " bytes in 1 file, and had " + size + " bytes in 1 file; the run "));
    }
    write_whole_file(folder / "my.txt", {std::string(text.size(), 'x')});
    EXPECT_TRUE(contains(resume({}), size + " bytes in 1 file, and had another date, or other names"));
    const std::string shard = folder / "runs/my-text/tokens/text_train.bin", bytes = read_whole_file(shard);
    for (const std::string& damaged : {bytes.substr(0, 3000), std::string(bytes).replace(3000, 1, "\xff")}) {
        write_whole_file(shard, {damaged});
        expect_refused(args("-o runs/my-text -y 1"), ": restore runs/my-text/tokens, or train the run's");
    }
    remove_file(shard);
    expect_refused({"-o", "runs/my-text", "-y", "1"}, "text_train*.bin': restore runs/my-text/tokens, or");
    write_whole_file(shard, {bytes});
    std::filesystem::remove(folder / "my.txt");
    EXPECT_TRUE(contains(resume({}), "my.txt cannot be read any more: "));
    write_text("my.txt", 1000);
    const std::string made_of = read_whole_file(stamp);
    for (const std::string& other :
         {made_of.substr(0, made_of.find('\n')), made_of.substr(0, 40), "\n{" + made_of}) {
        write_whole_file(stamp, {other});  // an earlier version's, and damaged ones
        const std::string out = resume({});
        EXPECT_FALSE(contains(out, is_other)) << other;
        EXPECT_EQ(bool(contains(out, "is damaged: whether the text has changed")),
                  bool(contains(other, "\n")));
    }
}

// What the model cannot have is refused before anything is written.
TEST_F(TextRun, ModelAndTextMustFit) {
    const std::string model = "custom:layers=1,heads=2,channels=24";
    expect_refused({"--text", "my.txt", "-e", model + ",vocab=100"}, "has a vocabulary of 100");
    expect_refused(args("--text my.txt -e", model + ",vocab=300", "--tokenizer bpe:400"),
                   "the tokenizer bpe:400 has 400 tokens");
    expect_refused(args("--text my.txt -e", model + ",max_seq_len=16", "-t 17"),
                   "more than the model's max_seq_len 16");
    EXPECT_FALSE(file_exists(folder / "runs"));
    // of a text that repeats one document, nothing can be validated; there is no option for the fraction
    std::string same;
    for (int i = 0; i < 3000; i++) same += "the same text\n\n";
    write_whole_file(folder / "same.txt", {same});
    expect_refusal(run_program(command({"--text", "same.txt"})), "are drawn for validation: give more text");
}

// A run keeps its tokens when the next one moves it aside, and finds them when its folder moves.
TEST_F(TextRun, TokensBelongToTheRun) {
    const Words into = {"-o", "run [1]"}, moved = {"-o", "moved"};
    const auto resume = [&](const std::string& run) {
        const std::string resumed = output_of(run_program(command(args("-o", run, "-y 1 -x 5"))));
        EXPECT_TRUE(contains(resumed, "resuming " + run + " at step 4"));
        EXPECT_FALSE(contains(resumed, "train-data is "));
    };
    const auto tokens = [&](const std::string& run) {
        return read_whole_file(folder / (run + "/tokens/text_train.bin"));
    };
    train("my.txt", into);
    const std::string first = tokens("run [1]");
    train("my.txt", into);  // on the same text
    write_text("other.txt", 1200);
    expect_refused({"--text", "other.txt", "-o", "run [1]", "-d", "1000"}, "-d 1000 is not a multiple");
    write_whole_file(folder / "bad.txt", {R"({"text": "one"})", std::string(30000, '\n'), "bad\n"});
    expect_refused({"--text", "bad.txt", "--field", "text", "-o", "run [1]"}, "is not a JSON object");
    EXPECT_EQ(tokens("run [1]"), first);
    EXPECT_FALSE(file_exists(folder / "run [1]/earlier_2"));
    train("other.txt", into);
    EXPECT_EQ(tokens("run [1]/earlier_1"), first);
    EXPECT_EQ(tokens("run [1]/earlier_2"), first);
    EXPECT_NE(tokens("run [1]"), first);
    std::filesystem::rename(folder / "run [1]/earlier_1", folder / "moved");
    for (const char* run : {"moved", "run [1]/earlier_2", "run [1]"}) resume(run);
    std::filesystem::remove_all(folder / "moved/tokens");
    expect_refused({"-o", "moved", "-y", "1", "-x", "6"}, "restore moved/tokens");
}

// A model without the optimizer's state, which makes most of a run's files, is used, but not resumed.
TEST_F(TextRun, AModelNeedsNoOptimizerState) {
    train("my.txt", {"-o", "run"});
    for (const auto& entry : std::filesystem::directory_iterator(folder / "run"))
        if (entry.path().filename().string().starts_with("state_")) std::filesystem::remove(entry.path());
    for (const Words& use :
         {args(bin("generate"), "-e run --device cpu -n 1 once"), args(program, "-e run --export hf hf"),
          args(bin("eval"), "-e run -i run/tokens/text_val.bin --device cpu -t 16")}) {
        expect_ok(run_program(with({"env", "-C", folder.path}, use)));
    }
    expect_refused(args("-o run -y 1"), "state_00000004_00000.bin");
}

// The model has the positions of -t, also more than those of the chosen one.
TEST_F(TextRun, LongSequencesAreTaken) {
    expect_ok(run_program(command(args("--text my.txt -t 512 --dry-run=memory"))), " x 512 = ");
}

// Documents end as in the run, with its own tokenizer.
TEST_F(TextRun, EvaluatesAnyText) {
    train("my.txt", {"-o", "run"});
    const auto eval = [&](const Words& options) {
        const ProgramResult result = run_program(
            with(args("env -C", folder.path, bin("eval"), "-e run --device cpu --text my.txt"), options));
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(contains(result.err, "latin is not UTF-8"), !options.empty() && options[1] == "latin");
        return result.out;
    };
    EXPECT_TRUE(contains(eval({}), " bits per byte"));
    write_whole_file(folder / "latin", {"caf\xe9"});
    eval({"--text", "latin"});
    EXPECT_EQ(eval({}), eval({"--split-documents", "blank-line"}));
    EXPECT_NE(eval({}), eval({"--split-documents", "none"}));
}

// A dry run writes nothing, and takes no longer for a longer text. It says what the run would read.
TEST_F(TextRun, ADryRunWritesNothing) {
    for (const char* dry : {"--dry-run", "--dry-run=memory"}) {
        const std::string run = output_of(run_program(command({"--text", "my.txt", "-e", shape, dry})));
        EXPECT_TRUE(contains(run, "data: about 22740 training tokens, 4200 validation tokens, of my.txt"));
        EXPECT_TRUE(contains(run, "32 x 32 = 1024 tokens per step, "));
        EXPECT_TRUE(contains(run, "vocabulary 257"));
        EXPECT_EQ(bool(contains(run, "ms per step")), dry == std::string("--dry-run")) << run;
    }
    expect_refused(args("--text my.txt -t 8192 --dry-run=memory"), "a batch of 1 x 8192 has 8192: use");
    const Words dry = {"--text", "my.txt", "-e", shape, "--dry-run=memory", "--epochs", "2"};
    const ProgramResult run = run_program(command(dry));
    EXPECT_TRUE(contains(run.out, "32 x 32 = 1024 tokens per step, 44 steps")) << run.err;
    EXPECT_FALSE(file_exists(folder / "runs"));
}

// What prepare_data reads, a run on a text reads, too.
TEST_F(TextRun, DocumentsOfJsonlOrBetweenMarks) {
    std::string lines, marked;
    for (int i = 0; i < 1000; i++) {
        lines += R"({"story": "once upon a time, )" + std::to_string(i) + "\"}\n";
        marked += "once upon a time, " + std::to_string(i) + "<|endoftext|>";
    }
    write_whole_file(folder / "lines.ndjson", {lines});
    write_whole_file(folder / "marked.txt", {marked});
    const ProgramResult run = train("lines.ndjson", {"--field", "story", "-o", "lines"});
    EXPECT_TRUE(contains(run.out, "20890 bytes, 21890 tokens"));
    train("marked.txt", {"--split-documents", "endoftext", "-o", "marked"});
    const auto tokens = [&](const std::string& name) {
        return read_whole_file(folder / (name + "/tokens/text_val.bin"));
    };
    EXPECT_EQ(tokens("lines"), tokens("marked"));
    const ProgramResult plain = train("marked.txt", {"-o", "plain"});
    EXPECT_TRUE(contains(plain.err, "--split-documents endoftext makes it the end of a document"));
}

// The files of a folder are one document each, or many. The number of threads does not matter.
TEST_F(TextRun, ValidationIsDrawnFromAllOfTheText) {
    for (const char* end : {"\n\n", "\n", " "}) {
        std::filesystem::create_directories(folder / "both");
        std::string german, english;
        for (int i = 0; i < 3000; i++) {
            german += "der Satz Nummer " + std::to_string(i) + " ist deutsch" + end;
            english += "this is the sentence with number " + std::to_string(i) + end;
        }
        write_whole_file(folder / "both/a_de.txt", {german});
        write_whole_file(folder / "both/z_en.txt", {english});
        const auto words = [&](const std::string& part) {
            std::string text;
            for (const uint16_t token : read_shard(folder / ("run/tokens/text_" + part + ".bin")))
                text += token == 256 ? '\n' : char(token);
            return text;
        };
        train("both", {"-o", "run"});
        const std::string val = words("val"), train_text = words("train");
        EXPECT_NEAR(count_of(val, " ist deutsch"), 300, 100);
        EXPECT_NEAR(count_of(val, "this is the sentence"), 300, 100);
        for (int i = 0; i < 3000; i++)
            EXPECT_FALSE(contains(val, "Nummer " + std::to_string(i) + " ist") &&
                         contains(train_text, "Nummer " + std::to_string(i) + " ist"));
        std::filesystem::remove_all(folder / "run");
        train("both", {"-o", "run", "--threads", "1"});
        EXPECT_EQ(words("val"), val);
        EXPECT_EQ(words("train"), train_text);
        std::filesystem::remove_all(folder / "run");
    }
}

// A run that does not fit takes another batch, since -b was not given.
TEST_F(TextRun, ABatchThatDoesNotFitIsHalved) {
    const Words little = args("--device-memory 6M -e custom:layers=2,heads=2,channels=64,max_seq_len=256");
    const ProgramResult run = train("my.txt", little);
    EXPECT_TRUE(contains(run.out, "note: -b 32 -r 1 do not fit in memory: the run uses -b "));
    EXPECT_TRUE(contains(run.out, " = 1024 tokens per step"));
    EXPECT_EQ(run_program(small("my.txt", with(little, {"-b", "64"}))).status, 1);
}

TEST_F(TextRun, GivenOptionsTakePrecedence) {
    const std::string run = output_of(run_program(command(args(
        "--text my.txt -e", shape, "--epochs 0.5 -b 16 -t 32 --optimizer adamw -o elsewhere -s 0 -v 0"))));
    EXPECT_TRUE(contains(run, "16 x 32 = 512 tokens per step, 2"));  // 0.5 * 25 kB / 512
    EXPECT_FALSE(contains(run, "--optimizer"));
    EXPECT_FALSE(contains(run, "--max-steps"));
    EXPECT_FALSE(contains(run, "generating:"));
    EXPECT_TRUE(file_exists(folder / "elsewhere/loss.svg"));
    EXPECT_FALSE(file_exists(folder / "runs"));
}

TEST_F(TextRun, UnusableTextsAreRefusedBeforeAnythingIsWritten) {
    write_whole_file(folder / "short.txt", {"too short"});
    write_whole_file(folder / "picture.png", {"\x89PNG" + std::string(30000, 'x')});
    write_whole_file(folder / "sound", {std::string("ID3") + '\0' + std::string(30000, 'x')});
    write_whole_file(folder / "lines.jsonl", {R"({"text": "a"})"});
    mkfifo((folder / "pipe").c_str(), 0600);
    write_whole_file(folder / "short.txt.gz", {gzip("too short")});
    expect_refused({"--text", "sound"}, "sound is not text: it has a byte of value 0");
    expect_refused({"--text", "lines.jsonl"}, "as in --field text");
    write_whole_file(folder / "lines.txt", {R"({"story": "a"})", std::string(30000, '\n')});
    expect_refused({"--text", "lines.txt"}, "as in --field story");
    std::filesystem::create_directories(folder / "hidden/.git");
    expect_refused({"--text", "hidden"}, "has no file that is read; hidden/.git is hidden");
    expect_refused({"--text", "pipe"}, "pipe is a pipe or a device");
    expect_refused({"--text", "short.txt.gz"}, "short.txt.gz has 9 bytes of text");
    std::filesystem::create_directories(folder / "empty");
    expect_refused({"--text", "missing.txt"}, "missing.txt");
    expect_refused({"--text", "short.txt"}, "short.txt has 9 bytes of text; training needs at least 20000");
    expect_refused({"--text", "picture.png"}, "picture.png is not text: it is a picture");
    expect_refused({"--text", "empty"}, "the folder empty has no file");
    expect_refused({"--text", "-"}, "standard input");
    expect_refused(args("--text my.txt --include *.txt"), "--include chooses among the files of a folder");
    expect_refused({"--text", "stories", "--include", "*"}, "--include '*' says how a text is read");
    expect_refused({"-i", "x.bin", "--field", "text"}, "--field text says how a text is read");
    write_whole_file(folder / "my.jsonl", {std::string(30000, '\n'), R"({"text": "a"})"});
    for (const Words& plan : {Words{"--dry-run"}, Words{"--dry-run=memory", "--skip-bad-lines"}})
        expect_refused(with(plan, args("--text my.jsonl --field text --field nowhere")),
                       "my.jsonl: line 30001 has no string in a field 'nowhere'");
    expect_refused({"--text", "my.txt", "-d", "1000"}, "-d 1000 is not a multiple");
    expect_refused({"--text", "my.txt", "-i", "x.bin"}, "leave out -i and -j");
    expect_refused({"--text", "my.txt", "-x", "3", "--epochs", "2"}, "leave one out");
    expect_refused({"--text", "my.txt", "-o", ""}, "-o is empty: a run on a text needs a folder");
    EXPECT_FALSE(file_exists(folder / "runs"));
}

TEST_F(TextRun, AFolderIsAText) {
    std::filesystem::create_directories(folder / "notes/old");
    for (const char* name : {"notes/a.md", "notes/old/b.md", "notes/c.txt"}) write_text(name, 500);
    write_whole_file(folder / "notes/picture.png", {"\x89PNG and more"});
    write_whole_file(folder / "notes/sound", {std::string("ID3") + '\0' + std::string(9000, 'x')});
    const ProgramResult all = train("notes/");
    EXPECT_TRUE(contains(all.err, "note: 2 entries were left out of folders; the first: notes/picture.png"));
    EXPECT_TRUE(file_exists(folder / "runs/notes-text/loss.svg")) << all.out;
    const ProgramResult some = train("notes", {"--include", "*.md", "-o", "some"});
    EXPECT_EQ(some.err, "");
    const auto size = [&](const std::string& run) {
        return std::filesystem::file_size(folder / (run + "/tokens/text_train.bin"));
    };
    EXPECT_LT(size("some"), size("runs/notes-text"));
    EXPECT_TRUE(contains(train("notes", {"--include", "*.md", "-o", "some"}).out, "has not changed"));
    expect_refused({"--text", "notes", "--include", "*.tex"}, "no text file whose name --include matches");
    expect_refused({"--text", "notes", "--include", "*.{tex,rst}"}, "no {...}; give several");
    train("notes", {"-o", "notes/run"});  // a run below its own text is no text
    EXPECT_TRUE(contains(train("notes", {"-o", "notes/run"}).out, "has not changed"));
    write_whole_file(folder / "notes/lease.json", {"a contract that somebody wrote down\n"});
    EXPECT_FALSE(contains(train("notes", {"-o", "notes/run"}).out, "has not changed"));
}

TEST_F(TextRun, SeveralTextsAreOneInTheirOrder) {
    std::filesystem::create_directories(folder / "both");
    for (const char* name : {"b.txt", "both/1.txt"}) write_text(name, 900);
    for (const char* name : {"a.txt", "both/2.txt"}) write_text(name, 500);
    const auto tokens = [&](const std::string& run) {
        return read_whole_file(folder / (run + "/tokens/text_train.bin"));
    };
    const auto train_on = [&](const Words& texts) {
        return output_of(run_program(command(with(args("-e", shape, "-x 4 -g 20"), texts))));
    };
    EXPECT_TRUE(contains(train_on({"--text", "b.txt", "--text", "a.txt"}), "read 0.033"));
    train("both");
    EXPECT_EQ(tokens("runs/b-a-text"), tokens("runs/both-text"));
    write_text("c.txt", 1200);
    train_on({"--text", "my.txt:0.7", "--text", "c.txt:0.3", "-o", "mixture"});
    const Words again = {"-o", "mixture", "-y", "1", "-x", "5"};
    expect_refused(with({"--text", "my.txt:0.6", "--text", "c.txt:0.3"}, again),
                   "the run in mixture trains on ");
    expect_ok(run_program(command(with({"--text", "my.txt:0.70", "--text", "./c.txt:.3"}, again))));
    train_on({"--text", "a.txt", "--text", "b.txt"});
    EXPECT_NE(tokens("runs/a-b-text"), tokens("runs/b-a-text"));
    const Words resumed = {"-o", "runs/a-b-text", "-y", "1", "-x", "5"};
    expect_ok(run_program(command(with({"--text", "a.txt", "--text", "./b.txt"}, resumed))));
    expect_refused(with(args("--text b.txt --text a.txt"), resumed),
                   "--text b.txt --text a.txt: the run in runs/a-b-text trains on ");
    expect_refused(with({"--text", "a.txt"}, resumed), "--text a.txt: the run in runs/a-b-text trains on ");
    expect_refused({"--text", "stories", "--text", "a.txt"}, "--text stories is a generated corpus");
}

TEST_F(TextRun, AStoppedRunIsPlottedAndSaysHowToGoOn) {
    const ProgramResult stopped =
        run_program(small("my.txt", args("-x 100000 -v 10 --patience 0")), {SIGINT, "at step 20 |"});
    EXPECT_EQ(stopped.status, 128 + SIGINT) << stopped.err;
    EXPECT_TRUE(contains(stopped.out, "plot: runs/my-text/loss.svg\n"));
    const std::string resumes = "; train_gpt2 -o runs/my-text -y 1 resumes from here";
    EXPECT_TRUE(contains(stopped.out, "stopped by SIGINT" + resumes) ||
                contains(stopped.out, "stopped by Ctrl-C" + resumes) ||
                contains(stopped.out, "stopped by Ctrl-Break" + resumes))  // the last two on Windows
        << stopped.out;
    const std::string before = read_whole_file(folder / "runs/my-text/loss.svg");
    std::filesystem::remove(folder / "my.txt");  // its tokens are there
    expect_ok(run_program(command(args("-o runs/my-text -y 1 --patience 1 -l 0"))),
              "plot: runs/my-text/loss.svg\n");
    EXPECT_NE(read_whole_file(folder / "runs/my-text/loss.svg"), before);
}

// The tokens of a run are those of its own text.
TEST_F(TextRun, AResumedRunRefusesAnotherText) {
    for (const char* name : {"notes", "plain"}) std::filesystem::create_directories(folder / name);
    for (const char* name : {"other.txt", "notes/a.md", "notes/b.txt"}) write_text(name, 1200);
    train("my.txt", {"-o", "a"});
    train("notes", {"-o", "b", "--include", "*.md"});
    write_whole_file(folder / "plain/options.toml", {"train-data=\"x.bin\"\n"});
    const std::string before = read_whole_file(folder / "a/options.toml");
    const Words a = {"-o", "a", "-y", "1"}, b = {"-o", "b", "-y", "1"}, plain = {"-o", "plain", "-y", "1"};
    expect_refused(with(a, {"--text", "other.txt"}), "--text other.txt: the run in a trains on ");
    expect_refused(with(a, {"--text", "stories"}), "--text stories: the run in a trains on ");
    expect_refused(with(a, {"--text", "other.txt", "--start-over"}), "--text other.txt: the run in a trains");
    expect_refused(with(a, {"--include", "*.txt"}),
                   "--include " + shell_word("*.txt") + ": the tokens of the run in a were prepared with no");
    expect_refused(with(b, {"--include", "*.txt"}),
                   "in b were prepared with --include " + shell_word("*.md"));
    expect_refused(with(b, args("--include *.md --include *.txt")),
                   "--include " + shell_word("*.md") + " --include " + shell_word("*.txt"));
    expect_refused(with(a, {"--field", "text"}), "in a were prepared with no --field");
    expect_refused(with(a, {"--as-text"}), "in a were prepared with no --as-text");
    expect_refused(with(a, {"--tokenizer", "bpe:500"}), "in a were prepared with --tokenizer bytes");
    expect_refused(with(a, {"-e", "b"}),
                   "-e b: the run in a began with -e " + shape + " and continues its own");
    expect_refused(with(plain, {"--text", "my.txt"}), "--text my.txt: the run in plain trains on no text");
    EXPECT_EQ(read_whole_file(folder / "a/options.toml"), before);
    std::filesystem::create_hard_link(folder / "my.txt", folder / "link.txt");
    for (const char* same : {"my.txt", "./notes/../my.txt", "link.txt"})
        expect_ok(run_program(command(with(a, {"--text", same, "-x", "5"}))));
    for (const char* same : {"notes", "./notes/"})
        expect_ok(run_program(command(with(b, args("--text", same, "--include *.md -x 5")))));
}

TEST_F(TextRun, StoriesShowTheirEntropy) {
    const ProgramResult run = train("stories", {"-x", "1"});
    EXPECT_TRUE(contains(run.out, ", corpus entropy 0.1443: "));
    EXPECT_TRUE(contains(read_whole_file(folder / "runs/stories/loss.svg"), "corpus entropy"));
}

// A model that is trained already keeps its tokenizer and gets a low learning rate.
TEST_F(TextRun, FinetunesATrainedModel) {
    train("my.txt");
    write_text("other.txt", 1200);
    expect_ok(run_program(command(args("--text other.txt -e runs/my-text -x 2"))),
              "--optimizer adamw --batch-size 4 --sequence-length 32 ", "--learning-rate 3e-05");
    const ProgramResult by_muon =
        run_program(command(args("--text other.txt -e runs/my-text -x 2 --optimizer muon")));
    EXPECT_TRUE(contains(by_muon.out, "--learning-rate 0.0004")) << by_muon.err;
}

// The batch that fits in memory is not larger than the validation data.
TEST_F(TextRun, AutoTakesABatchThatTheDataHolds) {
    expect_ok(run_program(command(args("--text my.txt -e", shape, "-b auto -d 65536 -x 1 -s 0"))),
              "note: -b auto is -b 64 -r ");  // 4200 / 32 or less, divides 2048
    expect_ok(run_program(command(args("--text my.txt -e", shape, "-b auto -x 1 -s 0"))),
              "note: -b auto is -b 32 -r ", "; -d stays 1024");
}

// Its sequences and batches are longer than the validation tokens of a short text.
TEST_F(TextRun, FinetunesAModelOfLongSequences) {
    write_letters();
    expect_ok(
        run_program(command(words_of("--text my.txt -e custom:layers=1,heads=2,channels=16,max_seq_len=1024 "
                                     "-x 1 -b 1 -t 1024 -s 0 --tokenizer letters.bin -o long"))));
    expect_ok(run_program(command(args("--text my.txt -e long -x 1 -s 0"))),
              " --batch-size 4 --sequence-length 1024 ");
}

// What is chosen for a text of so many tokens, on a device of 10 ms a step.
static Options chosen(Options o, uint64_t train, uint64_t val) {
    const TextTokens tokens = {{"train.bin"}, {"val.bin"}, train, val, train, val, true};
    take_recipe(o, tokens, choose_recipe(o, tokens, nullptr, [](const TextRecipe&) { return 0.01; }));
    return o;
}
static Options chosen(const Options& o, uint64_t tokens) { return chosen(o, tokens, tokens / 10); }

template <class T>
static Options with_given(T Options::*member, T value, Options o = {}) {
    o.*member = value;
    o.sources.set(&(o.*member), Source::command_line);
    return o;
}

TEST(Recipe, RegularizationFallsWithTheTextsSize) {
    const Options small = chosen({}, 16000), large = chosen({}, 100000000);
    EXPECT_GT(small.dropout, 0.1f);
    EXPECT_GT(small.weight_decay, 1.5 * large.weight_decay);
    EXPECT_LT(large.dropout, small.dropout);
}

TEST(Recipe, StepsFollowFromTheTime) {
    const uint64_t tokens = 100000000;
    EXPECT_NEAR(chosen(with_given(&Options::minutes, 10.0), tokens).max_steps, 60000, 6000);
    EXPECT_NEAR(chosen(with_given(&Options::minutes, 1.0), tokens).max_steps, 6000, 600);
    EXPECT_EQ(chosen(with_given(&Options::epochs, 2.0), tokens).max_steps, -1);  // --epochs says it
    EXPECT_EQ(chosen(with_given(&Options::max_steps, 7), tokens).max_steps, 7);
}

TEST(Recipe, TheRateFollowsTheOptimizer) {
    const Options muon = chosen({}, 100000000),
                  adamw = chosen(with_given(&Options::optimizer, OptimizerKind::adamw), 100000000);
    EXPECT_EQ(muon.optimizer, OptimizerKind::muon);
    EXPECT_EQ(adamw.optimizer, OptimizerKind::adamw);
    EXPECT_LT(adamw.learning_rate, muon.learning_rate / 2);
    const Options narrow = chosen(
        with_given(
            &Options::optimizer, OptimizerKind::adamw,
            with_given(&Options::model, std::string("custom:layers=4,heads=3,channels=192,max_seq_len=64"))),
        100000000);
    EXPECT_FLOAT_EQ(narrow.learning_rate, 1.5e-3f);
}

// make train on a CPU is the same on every machine.
TEST(Recipe, StoriesOnACpuHaveOneRecipe) {
    const Options stories = chosen(with_given(&Options::text, Words{"stories"}), 8000000, 32768);
    EXPECT_EQ(stories.max_steps, 3000);
    EXPECT_EQ(stories.batch, 8);
    EXPECT_EQ(stories.sequence, 256);
}

TEST_F(TextRun, MinutesAreThoseOfANewRunOnAText) {
    expect_refused(args("-i tokens.bin --minutes 2"), "no --text: --minutes chooses a run on a text");
    train("my.txt");
    // One command serves for the start and for every restart.
    const std::string again = output_of(run_program(command(args("-o runs/my-text -y 1 --minutes 2 -s 0"))));
    EXPECT_TRUE(contains(again, "--minutes has no effect: "));
    EXPECT_FALSE(contains(again, "minutes is 2"));
}

// -b auto keeps the tokens of a step, and so does a job that is resumed with another number of processes.
TEST(Recipe, AutoKeepsTheTokensOfAStep) {
    const Options automatic = with_given(&Options::batch, 0, {.num_processes = 2});
    const Options given = with_given(&Options::batch, 4, {.num_processes = 2});
    EXPECT_EQ(chosen(automatic, 1000000).batch, 0);
    EXPECT_GT(chosen(automatic, 1000000).total_batch, 0);
    EXPECT_EQ(chosen(automatic, 1000000).total_batch % chosen(automatic, 1000000).sequence, 0);
    EXPECT_EQ(chosen(given, 1000000).total_batch, 2 * 4 * chosen(given, 1000000).sequence);
    EXPECT_EQ(chosen(with_given(&Options::batch, 4), 1000000).total_batch, -1);
    EXPECT_EQ(chosen(with_given(&Options::total_batch, 1024, automatic), 1000000).total_batch, 1024);
}

// What is chosen is weaker than everything else, and chosen again it changes.
TEST(Recipe, LeavesWhatIsGiven) {
    for (const Source source : {Source::run, Source::config, Source::command_line}) {
        Options o = {.val_every = 3};
        o.sources.set(&o.val_every, source);
        EXPECT_EQ(chosen(o, 100000).val_every, 3);
    }
    const Options once = chosen({}, 100000), twice = chosen(once, 16000);
    EXPECT_EQ(twice.max_steps, chosen({}, 16000).max_steps);
    EXPECT_NE(twice.max_steps, once.max_steps);
}
