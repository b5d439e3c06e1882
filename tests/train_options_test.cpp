// The trainer's options: every flag of llm.c's train_gpt2.cu, files of options, precedence, and errors.
#include "llmc/options/train_options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/cpu/simd.h"
#include "llmc/options/option_files.h"
#include "llmc/options/recipe.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static Options parse(Words arguments) {
    arguments.insert(arguments.begin(), "train_gpt2");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    Options options;
    EXPECT_TRUE(parse_options(int(argv.size()), argv.data(), options));
    return options;
}

static std::string refusal(const Words& arguments) {
    return message_of([&] { parse(arguments); });
}

using TrainOptions = InFolder;

TEST_F(TrainOptions, ARunOnATextMayHaveNoValidationData) {
    const std::string options = folder / "options.toml";
    write_whole_file(options, {"train-data=\"a.bin\"\nval-data=\"\"\ntext=\"b.txt\"\n"});
    EXPECT_EQ(parse({"-o", folder / "run", "--config", options}).val_data, Words());
}

TEST_F(TrainOptions, LlmcsFlagsHaveTheSameMeaning) {
    const Words flags = words_of(
        "i train-data train*.bin  j val-data val.bin  e model d24  o output runs/a  n checkpoint-every 500 "
        "nk keep-checkpoints 5  nm major-checkpoint-every 1000  b batch-size 8  t sequence-length 512 "
        "d total-batch-size 8192  x max-steps 7700  k lr-scheduler wsd  l learning-rate 0.001 "
        "u warmup-steps 7  q final-lr-fraction 0.5  c weight-decay 0.1  sl skip-loss-outliers 3.5 "
        "sg skip-gradient-outliers 4.5  v val-every 9  m val-batches 11  s sample-every 13 "
        "g sample-tokens 15  a overfit-one-batch false  w master-weights false  r recompute 2");
    Words all = {"-y", "1"};
    for (size_t i = 0; i < flags.size(); i += 3)
        all = with(all, {"-" + flags[i], flags[i + 2] == "false" ? "0" : flags[i + 2]});
    Options o = parse(with(all, {"--precision", "bf16"}));
    for (size_t i = 0; i < flags.size(); i += 3)
        EXPECT_EQ(option_table(o).find(flags[i + 1])->texts(), Words{flags[i + 2]});
    EXPECT_TRUE(o.resume);
    EXPECT_TRUE(o.notes.empty());
    EXPECT_TRUE(parse({"-a", "1", "-j", "val.bin"}).overfit);
}

// Where -o is missing: of at most 100 bytes of the text's name, and no part of a character.
TEST_F(TrainOptions, TheFolderOfATextHasWholeCharacters) {
    std::string name;
    for (int i = 0; i < 33; i++) name += "\xe5\xa4\xa9";
    EXPECT_EQ(parse({"--text", name + "\xe5\xa4\xa9.txt"}).output, "runs/" + name + "text");
}

TEST_F(TrainOptions, TheScheduleIsWhatItsNameSays) {
    const auto decay = [](const Words& options) {
        const Options o = parse(with({"-i", "a"}, options));
        return std::pair(o.scheduler, o.final_fraction);
    };
    EXPECT_EQ(decay({}), std::pair(Schedule::constant, 1.0f));
    EXPECT_EQ(decay({"-q", "0.2"}), std::pair(Schedule::cosine, 0.2f));
    EXPECT_EQ(decay({"-k", "cosine"}), std::pair(Schedule::cosine, 0.1f));
    EXPECT_EQ(decay({"-k", "linear"}), std::pair(Schedule::linear, 0.1f));
    EXPECT_EQ(decay({"-k", "constant"}), std::pair(Schedule::constant, 1.0f));
    EXPECT_EQ(decay({"-k", "linear", "-q", "1"}), std::pair(Schedule::linear, 1.0f));
    EXPECT_EQ(decay({"--optimizer", "muon"}), std::pair(Schedule::linear, 0.0f));
    EXPECT_EQ(decay({"--optimizer", "muon", "-k", "cosine"}), std::pair(Schedule::cosine, 0.0f));
    const TemporaryFolder run;  // of a version without -q: it continues as it began
    std::ofstream(options_path(run.path)) << "lr-scheduler = \"linear\"\n";
    EXPECT_EQ(decay({"-y", "1", "-o", run.path}), std::pair(Schedule::linear, 1.0f));
    EXPECT_EQ(decay({"--optimizer", "muon", "-q", "0.1"}), std::pair(Schedule::linear, 0.1f));
    EXPECT_EQ(parse({"-i", "a", "--optimizer", "muon", "-t", "64"}).total_batch, 512);
    EXPECT_EQ(parse({"-i", "a", "--optimizer", "muon", "-b", "16"}).total_batch, -1);
    EXPECT_EQ(parse({"-i", "a", "--optimizer", "muon", "-d", "4096"}).total_batch, 4096);
}

// Flags that llm.c's scripts pass and that have no effect here are accepted, each with a note.
TEST_F(TrainOptions, FlagsWithoutEffectGiveANote) {
    for (const std::string& flag : args("-f -ge -lg -pi -ps -pf -pg -pn -pr -z")) {
        const Options o = parse({"-i", "train.bin", flag, "1"});
        ASSERT_EQ(o.notes.size(), 1u) << flag;
        EXPECT_EQ(o.notes[0].rfind(flag + " has no effect", 0), 0u) << o.notes[0];
    }
    const auto note = [](const Words& words) { return joined(parse(words).notes, "; "); };
    for (const auto& [option, of] :
         std::vector<std::pair<Words, std::string>>{{{"--share", "3"}, "a job of several"},
                                                    {{"--timeout", "3"}, "a job of several"},
                                                    {{"--start-over"}, "-y 1"},
                                                    {{"--momentum", "0.9"}, "--optimizer muon"},
                                                    {{"--plot-over", "tokens"}, "--plot"}}) {
        Words words = {"-i", "train.bin"};
        words.insert(words.end(), option.begin(), option.end());
        EXPECT_TRUE(note(words).starts_with(option[0] + " has no effect: it is for " + of)) << note(words);
    }
    EXPECT_EQ(note({"--devices", "0,cpu", "--list-devices"}), "--devices has no effect with --list-devices");
    EXPECT_EQ(note({"--plot", "a", "--threads", "1", "-x", "3"}), "--max-steps has no effect with --plot");
    EXPECT_EQ(note(args("-e d1 -x 3 --export hf a")), "--max-steps has no effect with --export");
    EXPECT_EQ(note({"--text", "a", "--muon-lr", "0.1"}), "");  // Muon is chosen
    const std::pair<const char*, const char*> in_vain[] = {
        {"-v 20", "--val-every has no effect: there is no -j"},
        {"-j b -v 0 -m 2", "--val-batches has no effect: -v is 0"},
        {"-v 0 -h 1", "--hellaswag has no effect: -v is 0"},
        {"-s 0 -g 9 --temperature 0",
         "--sample-tokens has no effect: -s is 0; --temperature has no effect: -s is 0"},
        {"--temperature 0 --top-k 3", "--top-k has no effect: --temperature is 0"},
        {"-nk 2", "--keep-checkpoints has no effect: there is no -o"},
        {"-o r -n 0 -nm 2", "--major-checkpoint-every has no effect: -n is 0"},
        {"-o r -n 20 -nk 2 -nm 10", "--keep-checkpoints has no effect: -nm keeps all of -n"},
        {"-o r -x 50 -n 20 -nk 2 -nm 30",
         "--major-checkpoint-every has no effect: no checkpoint of the run is at such a step"},
        {"-o r -x 50 -nk 2 -nm 20",
         "--major-checkpoint-every has no effect: no checkpoint of the run is at such a step"},
        {"-o r -x 60 -n 20 -nk 2 -nm 30 --device cpu", ""},
        {"-w 1", "--master-weights has no effect: the weights are fp32"},
        {"-w 0", "--master-weights has no effect: the weights are fp32"},
        {"--ranks-per-node 1", "--ranks-per-node has no effect: it is for a job of several processes"},
        {"-n 5", "--checkpoint-every has no effect: there is no -o"},
        {"-o r -nm 2", "--major-checkpoint-every has no effect: -nk is 0, which keeps all"},
        {"--top-k 1 --temperature 2 --top-p 0.5",
         "--temperature has no effect: --top-k is 1; --top-p has no effect: --top-k is 1"},
        {"--top-k 1 --temperature 0", "--top-k has no effect: --temperature is 0"},
        {"--device cpu --no-tensor-cores", "--no-tensor-cores has no effect: it is for GPUs"},
        {"--device cpu --tensor-cores", "--tensor-cores has no effect: it is for GPUs"},
        {"--device cpu -o r --retry-lost-device 1",
         "--retry-lost-device has no effect: the CPU is never lost"},
        {"-o r --retry-lost-device 1 --device 0 --tensor-cores --top-k 1 -n 5 -nk 2 -nm 10", ""},
        {"-j b -a 1", "--train-data has no effect: -a 1 trains on a batch of -j"},
        {"-j b -v 2 -m 2 -h 1 -s 2 -g 9 --top-k 3 -o r -nk 2 -nm 2 -w 1 --precision bf16", ""},
        {"-v 0 -h 0 -s 0", ""}};
    for (const auto& [options, says] : in_vain)
        EXPECT_EQ(note(with({"-i", "a"}, words_of(options))), says) << options;
    EXPECT_EQ(note({"--text", "a", "-w", "1"}), "");  // a GPU may have bf16
    for (const std::string& option : args("--profile --log-every=3 --tensorboard --retry-lost-device=1"))
        EXPECT_EQ(note(args("-i a -o r --dry-run", option)),
                  option.substr(0, option.find('=')) + " has no effect: it is for a training");
    for (const auto& [length, name] : {std::pair{"-x 4", "-x"}, {"--epochs 2", "--epochs"}}) {
        const Words text = with(args("--text a --minutes 1"), words_of(length));
        const std::string says = name + std::string(" says how long the run is");
        EXPECT_EQ(note(text), says + ": --minutes chooses the rest");
        EXPECT_EQ(note(with(text, {"-e", "d2"})), "--minutes has no effect: " + says);
        EXPECT_EQ(note(with({"--text", "a"}, words_of(length))), "");
    }
    EXPECT_EQ(note(args("-i a -k constant -q 0.1 -m 3")),
              "--val-batches has no effect: it is for -j; --final-lr-fraction has no effect: -k is constant");
    EXPECT_TRUE(parse({"-i", "train.bin", "-h", "0"}).notes.empty());
    EXPECT_EQ(parse({"-i", "train.bin", "--ranks-per-node", "1"}).ranks_per_node, 1);
    // a run that was saved when it was an option
    std::ofstream(options_path(folder.path)) << "train-data=['a']\nzero-stage=0\nbatch-size=3\n";
    const Options resumed = parse({"-y", "1", "-o", folder.path});
    EXPECT_EQ(resumed.batch, 3);
    EXPECT_EQ(resumed.notes.size(), 1u);  // where the options come from
}

TEST_F(TrainOptions, AStepThatIsLongerThanTheTimeIsSaid) {
    Options o = parse({"--text", "a", "--minutes", "0.5", "-d", "65536"});
    TextRecipe recipe = {.shape = {3, 2, 96, 128, 65536}, .batch = 512, .steps = 1, .step_seconds = 29};
    const TextTokens tokens = {.train_tokens = 1000, .bytes = 1000};
    const std::string says = "; a step of this -d takes longer than --minutes";
    EXPECT_FALSE(contains(describe(o, tokens, recipe), says));
    recipe.step_seconds = 31;
    EXPECT_TRUE(contains(describe(o, tokens, recipe), says));
    o = parse({"--text", "a", "-x", "1", "-d", "65536"});
    recipe.step_seconds = 300;
    EXPECT_FALSE(contains(describe(o, tokens, recipe), says));
}

static std::string lowest_simd_name() { return simd_option_names(SIMD_BASE).substr(strlen("auto, ")); }

// The names of levels that the CPU has are accepted; unknown names and other levels are refused.
TEST_F(TrainOptions, InstructionSetOfTheCpu) {
    parse({"-i", "a", "--simd", lowest_simd_name()});
    EXPECT_EQ(simd_level(), SIMD_BASE);
    parse({"-i", "a", "--simd", "auto"});
    EXPECT_EQ(simd_level(), best_simd_level());
    EXPECT_THROW(parse({"-i", "a", "--simd", "avx9"}), Error);
    EXPECT_THROW(parse({"-i", "a", "--simd", ""}), Error);
    EXPECT_EQ(simd_level(), best_simd_level());
    unsetenv("LLMC_SIMD");
#if defined(__x86_64__)
    if (best_simd_level() >= SIMD_AMX) return;
    const std::string message = refusal({"-i", "a", "--simd", "amx"});
    EXPECT_TRUE(contains(message, "--simd: amx is not available here; there are auto, sse2"));
#endif
}

TEST_F(TrainOptions, InstructionSetFromTheEnvironment) {
    setenv("LLMC_SIMD", lowest_simd_name().c_str(), 1);
    parse({"-i", "a"});
    EXPECT_EQ(simd_level(), SIMD_BASE);
    parse({"-i", "a", "--simd", "auto"});
    EXPECT_EQ(simd_level(), best_simd_level());
    EXPECT_STREQ(getenv("LLMC_SIMD"), "auto");  // for programs that this one starts
    setenv("LLMC_SIMD", "avx9", 1);
    EXPECT_TRUE(contains(refusal({"-i", "a"}), "avx9 is none of auto"));
    unsetenv("LLMC_SIMD");
}

TEST_F(TrainOptions, TheEffectiveOptionsReadBackAreTheSame) {
    const Options o = parse({"-i", "a b/[x-z]*\"q\".bin", "-j", "it's.bin", "-l", "1e-4", "-sl", "3", "-x",
                             "9", "--seed", "18446744073709551615"});
    std::ofstream(folder / "run.toml") << options_text(o);
    const Options again = parse({"--config", folder / "run.toml"});
    EXPECT_EQ(options_text(again), options_text(o));
    EXPECT_EQ(again.train_data.at(0), std::filesystem::absolute(o.train_data.at(0)));
    EXPECT_EQ(again.val_data.at(0), std::filesystem::absolute(o.val_data.at(0)));
    EXPECT_EQ(again.learning_rate, o.learning_rate);
    EXPECT_EQ(again.seed, o.seed);
    const Options defaults = parse({"-i", "x"});
    std::ofstream(folder / "defaults.toml") << options_text(defaults);
    const Options same = parse({"--config", folder / "defaults.toml"});
    EXPECT_EQ(options_text(same), options_text(defaults));
    EXPECT_TRUE(changed_options(options_text(same), defaults).empty());
    EXPECT_TRUE(same.of_text.include.empty());
    EXPECT_TRUE(same.val_data.empty() && same.output.empty() && same.tokenizer.empty());
    EXPECT_FALSE(same.overfit || same.hellaswag);
    EXPECT_TRUE(same.master_weights);
    for (const char* line :
         {"batch-size=4\n", "weight-decay=0\n", "max-steps=9\n", "scheduler=\"constant\"\n"})
        EXPECT_TRUE(contains(options_text(o), line));
    for (const char* line : {"resume", "config", "tf32"}) EXPECT_FALSE(contains(options_text(o), line));
}

TEST_F(TrainOptions, TheCommandLineWinsOverTheFileAndTheFileOverTheRunsOptions) {
    std::ofstream(folder / "run.toml") << "train-data = \"file\"\nmax-steps = 2\nbatch-size = 2\n";
    std::ofstream(options_path(folder.path))
        << "train-data = \"saved\"\nmax-steps = 3\nbatch-size = 3\nwarmup-steps = 3\n";
    const Options o = parse({"--config", folder / "run.toml", "-x", "1", "-y", "1", "-o", folder.path});
    EXPECT_EQ(o.max_steps, 1);
    EXPECT_EQ(o.batch, 2);
    EXPECT_EQ(o.train_data, Words{"file"});
    EXPECT_EQ(o.warmup, 3);
    ASSERT_EQ(o.notes.size(), 1u);
    EXPECT_TRUE(contains(o.notes[0], options_path(folder.path)));
    EXPECT_EQ(parse({"-i", "x", "-o", folder.path}).warmup,
              0);  // the run's options count only if it is resumed
}

// -x and --epochs exclude each other: the one that takes precedence deletes the other.
TEST_F(TrainOptions, TheLengthOfAFileWinsOverTheRuns) {
    const Words resumed = {"-y", "1", "-o", folder.path, "--config", folder / "run.toml"};
    const auto length = [&](const char* saved, const char* file, Words more = {}) {
        std::ofstream(options_path(folder.path)) << "train-data = \"saved\"\n" << saved;
        std::ofstream(folder / "run.toml") << file;
        more.insert(more.end(), resumed.begin(), resumed.end());
        const Options o = parse(more);
        std::ofstream(options_path(folder.path)) << options_text(o);
        const Options again = parse({"-y", "1", "-o", folder.path});
        EXPECT_EQ(std::pair(again.max_steps, again.epochs), std::pair(o.max_steps, o.epochs));
        return std::pair(o.max_steps, o.epochs);
    };
    EXPECT_EQ(length("max-steps = 6\n", "epochs = 2\n"), std::pair(-1, 2.0));
    EXPECT_EQ(length("epochs = 2\n", "max-steps = 6\n"), std::pair(6, 0.0));
    EXPECT_EQ(length("max-steps = 6\n", "max-steps = -1\nepochs = 0\n"), std::pair(-1, 0.0));
    EXPECT_EQ(length("max-steps = 6\n", ""), std::pair(6, 0.0));
    EXPECT_EQ(length("max-steps = 6\n", "max-steps = 7\n", {"--epochs", "2"}), std::pair(-1, 2.0));
}

TEST_F(TrainOptions, Refusals) {
    std::ofstream(folder / "unknown.toml") << "max-stepz = 2\n";
    std::ofstream(folder / "range.toml") << "batch-size = 0\n";
    std::ofstream(folder / "text.toml") << "batch-size = \"many\"\n";
    std::ofstream(folder / "train.toml") << "train-data = \"x.bin\"\n";
    std::ofstream(folder / "val.toml") << "val-data = \"x.bin\"\n";
    std::ofstream(options_path(folder.path)) << "no such = option\n";
    const struct {
        Words arguments;
        const char* says;
    } cases[] = {
        {{}, "-i"},
        {{"-i"}, "train-data"},
        {{"-a", "1"}, "-j"},
        {args("-i x -y 1"), "-o"},
        {{"-i", "x", "--tensorboard"}, "-o"},
        {args("-i x -m 0"), "-m 0"},
        {args("-i x --grad-clip 1e-46"), "1e-46 is too small a number: it would be 0"},
        {args("-i x --muon-lr 1e-320"), "1e-320 is too small a number"},
        {args("-i x --epochs .1e-400"), ".1e-400 is too small a number"},
        {args("-i x -d 0"), "-d 0"},
        {args("-i x -b 1048576 -t 2048"), "2^30"},
        {args("-i x --ranks-per-node 2"), "does not divide the 1 process of"},
        {{"-i", "x", "--dry-run=foo"}, "--dry-run takes no value but memory: leave out '=foo'"},
        {{"--config", folder / "missing.toml"}, "missing.toml"},
        {{"-i", "x", "--config", folder / "unknown.toml"}, "max-stepz"},
        {{"-i", "x", "--config", folder / "range.toml"}, "range.toml, line 1: --batch-size: 0 is not at"},
        {{"-i", "x", "--config", folder / "text.toml"}, "batch-size"},
        {args("-i x -y 1 -o", folder.path), "options.toml"},
        {args("-i x --text y"), "leave out -i and -j"},
        {{"--text", "y", "--config", folder / "train.toml"}, "train.toml gives"},
        {{"--text", "y", "--config", folder / "val.toml"}, "leave out -i and -j, which"},
    };
    for (const auto& c : cases) {
        const std::string message = refusal(c.arguments);
        SCOPED_TRACE(c.arguments.empty() ? "" : c.arguments.back());
        EXPECT_TRUE(contains(message, c.says));
        EXPECT_EQ(count_lines(message), 1) << message;
    }
}

// What TOML may be, as long as its lines are NAME = VALUE.
TEST_F(TrainOptions, ValuesInAFile) {
    std::ofstream(folder / "run.toml", std::ios::binary)
        << "# comment\n\n \t train-data = ['a # b, [c]', \"}\\\"{\"] # {\r\nval-data='it\"s {a}'\n"
           "text='t'\nmodel='d24' # d12\nbatch-size=8\nseed = 7\t\n"
           "include=[ # two\n  '*.md', \"\\u0041\",\n]\n\"warmup-steps\" = 3\n"
           "learning-rate=1e-4\ntensorboard=false\ndevice='a' 'b'";
    const Options o = parse({"--config", folder / "run.toml"});
    EXPECT_EQ(o.train_data, (Words{"a # b, [c]", "}\"{"}));
    EXPECT_EQ(o.val_data, Words{"it\"s {a}"});
    EXPECT_EQ(o.model, "d24");
    EXPECT_EQ(o.batch, 8);
    EXPECT_EQ(o.seed, 7u);
    EXPECT_EQ(o.learning_rate, 1e-4f);
    EXPECT_EQ(o.of_text.include, (Words{"*.md", "A"}));
    EXPECT_EQ(o.warmup, 3);
    EXPECT_FALSE(o.tensorboard);
    EXPECT_EQ(o.device, "a' 'b");  // as the program writes a name with quotes
}

// Files of options that nobody would write: one line, which names the file and the line, and soon.
TEST_F(TrainOptions, HostileFilesGiveOneLine) {
    const std::string deep(20000, 'a'), quotes(16000, '"');
    std::string sections = "[a", many;
    for (int i = 0; i < 20000; i++) sections += ".a";
    for (int i = 0; i < 100000; i++) many += "x" + std::to_string(i) + "=1\n";
    Words texts = words_of(
        "tokenizer=[] batch-size=[] tensorboard=[] tokenizer= tokenizer = [ [] [[]] [a] [default] [[a]] a.++ "
        "a.++=1 ++=1 --=1 a.-- ++ -- train-data.x=1 tokenizer=[\"a\" tokenizer={a=1} include=[[\"a\"]] "
        "include=[1] tokenizer=[\"a\",\"b\"] tokenizer=\"a tokenizer='a tokenizer=\" tokenizer=[\"] "
        "batch-size=4,8 seed=18446744073709551616 tensorboard=maybe tensorboard=7 batch_size=4 Batch-Size=4 "
        "b=4 -b=4 --batch-size=4 \u00efbatch-size=4 имя=1 a.имя=1 \u3001=1 \ufeff=1 tokenizer=[\u00ef] "
        "\x1b[31mbatch-size=4 model=custom:layers=1");
    for (const std::string& text :
         {std::string("tokenizer=[ ]"), std::string("= 4"), sections + "]", sections, deep, deep + "=1",
          "tokenizer=" + deep, many, std::string("tokenizer=[\"a\",\n\"b\"]"), "tokenizer=" + quotes + "x",
          std::string("tokenizer=[\"a\"] b"), std::string("batch-size=4 8"), std::string("batch-size=[4, 8]"),
          std::string("batch-size=4\nbatch-size=8"), std::string("tokenizer=\"a\0b\"", 15),
          std::string("model=\"d12\"\nmodel=\"d12\"")})
        texts.push_back(text);
    Options defaults;
    for (const Option& row : option_table(defaults).rows)  // those of one start only
        if (!row.is_saved && !row.without_effect) texts.push_back(row.name + "=1");
    const std::string config = folder / "hostile.toml", saved = options_path(folder.path);
    for (const std::string& text : texts)
        for (const std::string& path : {config, saved}) {
            SCOPED_TRACE(text.substr(0, 60));
            std::filesystem::remove(saved);
            std::ofstream(path, std::ios::binary) << "max-steps=3\n" + text;
            const double start = now();
            const std::string message = path == config ? refusal({"-i", "x", "--config", config})
                                                       : refusal({"-i", "x", "-y", "1", "-o", folder.path});
            EXPECT_LT(now() - start, 60);  // under sanitizers, while others use the cores
            EXPECT_TRUE(message.starts_with(path + ", line ") ||
                        (message.empty() && text.starts_with("model=custom")))
                << message;
            if (text.starts_with('[') && text.size() < 1000) {
                EXPECT_TRUE(contains(message, "a section: options have none"));
            }
            EXPECT_LT(message.size(), path.size() + 400) << message;
            EXPECT_EQ(message, printable(message));
        }
}

// A byte order mark, and UTF-16.
TEST_F(TrainOptions, AFileOfOptionsIsReadAsText) {
    using namespace std::string_view_literals;
    for (const std::string_view bytes : {"\xef\xbb\xbfseed = 7\r\n"sv, "\xff\xfes\0e\0e\0d\0=\0007\0"sv}) {
        write_whole_file(folder / "options.toml", {bytes});
        EXPECT_EQ(parse({"-i", "x", "--config", folder / "options.toml"}).seed, 7u);
    }
}

// TOML that other programs read: the message says what is wrong.
TEST_F(TrainOptions, TomlOfOthersIsExplained) {
    const std::pair<const char*, const char*> cases[] = {
        {"batch-size = 1_000", "--batch-size: 1_000 is not a number: leave out the marks between its digits"},
        {"seed = 1_0", "1_0 is not a number: leave out the marks between its digits"},
        {"learning-rate = 0.000_3", "0.000_3 is not a number"},
        {"[train]", "a section: options have none, only lines NAME = VALUE"},
        {"learning_rate = 3e-4", "unknown option 'learning_rate' (did you mean --learning-rate?)"},
        {"train.steps = 4", "unknown option 'train.steps'"},
        {"train-data = [}", "a table: options have none"},
        {"train-data = [ # of all\n  'a', }", "line 2: a table: options have none"},
        {"train-data = [\"\"\"\n\"\"\", [ } ", "a text of several lines: options have none"},
        {"tokenizer = '''\na'''", "a text of several lines: options have none"},
        {"Batch-Size = 4", "unknown option 'Batch-Size' (did you mean --batch-size?)"}};
    for (const auto& [line, says] : cases) {
        write_whole_file(folder / "options.toml", {line});
        const std::string message = refusal({"-i", "x", "--config", folder / "options.toml"});
        EXPECT_TRUE(contains(message, says));
    }
}

TEST_F(TrainOptions, ARunThatIsNotThereIsNotResumed) {
    EXPECT_EQ(refusal({"-y", "1", "-o", folder / "typo"}),
              "no run in '" + folder / "typo" + "' to resume, and no training data for a new one");
    // the run that was to start over has moved, and the next one did not begin
    const std::string earlier = folder / "r/earlier_1/options.toml";
    std::filesystem::create_directories(folder / "r/earlier_1");
    write_whole_file(earlier, {"train-data = \"x.bin\"\n"});
    for (const Words& start : {Words{"-y", "1"}, {"-y", "1", "--start-over"}})
        EXPECT_TRUE(contains(refusal(with(start, {"-o", folder / "r"})),
                             "; --config " + shell_word(earlier) + " has the options of an earlier run"));
}

TEST_F(TrainOptions, AnArgumentCannotAddLinesToTheFile) {
    const std::string message = refusal({"-i", "x", "--tokenizer", "a\"\nbatch-size=\"8", "-o", folder.path});
    EXPECT_TRUE(contains(message, "the end of a line"));
    EXPECT_EQ(count_lines(message), 1);
}

TEST_F(TrainOptions, OtherTrainersNamesAreUnderstood) {
    const std::pair<const char*, const char*> names[] = {
        {"--lr", "--learning-rate"},     {"--lr-schedule", "--lr-scheduler"},
        {"--steps", "--max-steps"},      {"--batch", "--batch-size"},
        {"--max_iters", "--max-steps"},  {"--batch_size", "--batch-size"},
        {"--n_layer", "--model"},        {"--num_train_epochs", "--epochs"},
        {"--output_dir", "--output"},    {"--bf16", "--precision"},
        {"--eval_steps", "--val-every"}, {"--save_steps", "--checkpoint-every"}};
    for (const auto& [theirs, ours] : names) {
        const std::string message = refusal({theirs, "1"});
        EXPECT_TRUE(contains(message, std::string("did you mean ") + ours + "?"));
    }
    // not -l with the value r
    for (const Words& rate : {Words{"-lr", "3"}, Words{"-lr=3"}})
        EXPECT_TRUE(contains(refusal(rate), "unknown option -lr (did you mean -l 3?)"));
    EXPECT_TRUE(contains(refusal({"-wd", "0.1"}), "unknown option -wd (did you mean -c 0.1?)"));
    EXPECT_TRUE(contains(refusal({"-bs"}), "unknown option -bs (did you mean -b?)"));
    EXPECT_TRUE(contains(refusal({"-bs", "-x", "3"}), "unknown option -bs (did you mean -b?)"));
    EXPECT_TRUE(contains(refusal({"-lfast"}), "unknown option -lfast"));
    EXPECT_TRUE(contains(refusal({"-l3x"}), "3x is not a number"));
}
