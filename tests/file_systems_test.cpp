// File systems that rename, number, spell, list and size files in their own way: no file is lost, none is
// taken for another. tests/file_fault.cpp plays them.
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <tuple>

#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "tests/journeys.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// As in a container whose image holds the run's folder: files can be renamed there, folders cannot.
TEST(FileSystems, AnEarlierRunMovesWhereFoldersCannotBeRenamed) {
    const Journeys data;
    const std::string folder = data / "again", setting = "FILE_FAULT=rename:1+:EXDEV";
    const Words command = with({program, "-i", data.train, "-e", tiny, "-o", folder},
                               words_of("-x 2 -b 3 -t 17 -s 0 -v 0 --device cpu --tensorboard"));
    expect_ok(run_program(command));
    const std::string events = names_in(folder + "/tensorboard").at(0);
    const std::string before = read_whole_file(folder + "/tensorboard/" + events);
    expect_ok(run_faulty(folder, {setting}, command));
    EXPECT_EQ(read_whole_file(folder + "/earlier_1/tensorboard/" + events), before);
    EXPECT_TRUE(fs::exists(model_path(folder + "/earlier_1", 2)));
    EXPECT_EQ(names_in(folder + "/tensorboard").size(), 1u);
    // a program that was killed between the entries: the next start moves the rest
    fs::create_directories(folder + "/earlier_2/tensorboard");
    write_whole_file(folder + "/earlier_2/tensorboard/moved", {"before"});
    write_whole_file(folder + "/moving_earlier_run", {"earlier_2"});
    expect_ok(run_faulty(folder, {setting}, command));
    EXPECT_EQ(names_in(folder + "/earlier_2/tensorboard").size(), 2u);
}

// A mount, a file that is immutable, another user's: the run stays whole, and can be resumed.
TEST(FileSystems, AnEarlierRunStaysWholeWhereAFileCannotMove) {
    const Journeys data;
    const std::string folder = data / "again";
    const Words command = with({program, "-i", data.train, "-e", tiny, "-o", folder},
                               words_of("-x 2 -b 3 -t 17 -s 0 -v 0 --device cpu --tensorboard"));
    expect_ok(run_program(command));
    const Words before = names_in(folder);
    int refused = 0;
    for (int n = 2; !fs::exists(folder + "/earlier_1"); n++) {  // the first names the new folder
        SCOPED_TRACE(n);
        ASSERT_LT(n, 20);
        const ProgramResult result =
            run_faulty(folder, {format_string("FILE_FAULT=rename:%d:EPERM", n)}, command);
        if (result.status == 0) continue;
        refused += contains(result.err, "the earlier run stays in " + folder);
        if (!contains(result.err, "the earlier run")) break;  // all of it has moved, and the new one fails
        EXPECT_EQ(names_in(folder), before);
        EXPECT_EQ(names_in(folder + "/tensorboard").size(), size_t(refused));
        expect_ok(run_program({program, "-y", "1", "-o", folder}));  // another file of events
    }
    EXPECT_EQ(refused, int(before.size()));
}

TEST(FileSystems, AnEarlierRunStaysWholeWhereItsTokensCannotBeLinked) {
    const Journeys data;
    const std::string folder = data / "again", link = folder + "/earlier_1/tokens/text_train.bin";
    write_text(data / "text", 1000);
    Words command = with({program, "--text", data / "text", "-o", folder, "--tokenizer", "bytes", "-e"},
                         words_of("custom:layers=1,heads=1,channels=8,max_seq_len=16 -b 2 -t 16 -x 1 -s 0"));
    command.insert(command.end(), {"--device", "cpu"});
    expect_ok(run_program(command));
    const Words before = names_in(folder);
    command.insert(command.end(), {"-l", "0.002"});
    expect_refusal(run_faulty(link, {"FILE_FAULT=stat:1:EIO"}, command),
                   "the earlier run stays in " + folder);
    EXPECT_EQ(names_in(folder), before);
}

// The same of each file that several others are replaced with: all of them stay.
TEST(FileSystems, FilesThatBelongTogetherStayWhereOneCannotBeReplaced) {
    const Journeys data;
    const std::string run = data / "of_text", text = data / "text", more = data / "more", hf = data / "hf";
    for (const std::string& path : {text, more}) write_text(path, 1000);
    const Words
        small = words_of(
            "-e custom:layers=1,heads=1,channels=8,max_seq_len=16 --tokenizer bytes -x 1 -b 2 -t 16 -s 0 "
            "--device cpu"),
        start = with({program, "--text", text + ":1", "--text", more + ":1", "-o", run}, small),
        prepare = {BINARY_DIR "/prepare_data", "--out", data.shards, "--name", "x", text},
        export_hf = {program, "-e", data.run_folder, "--export", "hf", hf},
        corpus = {BINARY_DIR "/make_corpus", "--out", data.shards + "/c.txt", "--stories", "9"},
        resume = {program, "-y", "1", "-o", data.run_folder, "-x", "6", "-nk", "1", "--no-keep-best"};
    write_whole_file(data.run_folder + "/tokenizer.bin", {"of an earlier run"});
    for (const Words& command : {start, prepare, export_hf, corpus}) expect_ok(run_program(command));
    write_text(text, 1001);
    for (const auto& [command, folder, file] : {std::tuple(start, run, "tokens/text2_val.bin"),
                                                {start, run, "tokens/text1.json"},
                                                {prepare, data.shards, "x_train.bin"},
                                                {prepare, data.shards, "x.json"},
                                                {export_hf, hf, "model.safetensors"},
                                                {corpus, data.shards, "c.json"},
                                                {resume, data.run_folder, "main.log"},
                                                {resume, data.run_folder, "metrics.csv"},
                                                {resume, data.run_folder, "options.toml"},
                                                {resume, data.run_folder, "tokenizer.bin"}}) {
        SCOPED_TRACE(file);
        const auto contents = [&, &in = folder] {
            std::map<std::string, std::string> all;
            for (const auto& entry : fs::recursive_directory_iterator(in))
                if (entry.is_regular_file() && entry.path().filename() != "lease.json")
                    all[entry.path().string()] = read_whole_file(entry.path().string());
            return all;
        };
        const auto before = contents();
        for (const char* kind : {"immutable", "mount"}) {
            SCOPED_TRACE(kind);
            const ProgramResult result =
                run_faulty(folder + "/" + file, {format_string("FILE_FAULT_FIXED=%s", kind)}, command);
            EXPECT_EQ(result.status, 1);
            EXPECT_TRUE(contains(result.err, "cannot replace ")) << result.err;
            EXPECT_TRUE(contents() == before);
        }
    }
    for (const Words& command : {start, prepare, export_hf, resume}) expect_ok(run_program(command));
}

// The same of a report's two files, before anything is measured.
TEST(FileSystems, AReportThatCannotBeReplacedIsNotMeasured) {
    const std::string report = BINARY_DIR "/report";
    if (!fs::exists(report)) GTEST_SKIP() << "built without the benchmarks";
    const TemporaryFolder folder;
    const std::string json = folder / "report.json", before = R"({"date": "2026-01-02", "programs": []})";
    write_whole_file(json, {before});
    expect_ok(run_program({report, "--page", json}));
    const Words again = {report, "--device", "cpu", "--only", "peak", "--seconds", "1", "--out", folder.path};
    for (const char* file : {"report.json", "report.html"})
        for (const char* kind : {"immutable", "mount"}) {
            SCOPED_TRACE(std::string(file) + " " + kind);
            const ProgramResult result =
                run_faulty(folder / file, {std::string("FILE_FAULT_FIXED=") + kind}, again);
            expect_refusal(result, "cannot replace " + folder / file);
            EXPECT_EQ(result.out, "");
            EXPECT_EQ(read_whole_file(json), before);
        }
}

// A file system that numbers a file anew at each look, or once for each spelling: every output is written,
// inputs and files of others stay. The same on one without case, where another spelling is the same file.
TEST(FileSystems, IdentityIsNeitherNameNorNumberAlone) {
    for (const Words& system : {Words{"FILE_FAULT_INODES=1"}, Words{"FILE_FAULT_INODES=one"},
                                Words{"FILE_FAULT_CASE=1"}, Words{"FILE_FAULT_CASE=1", "FILE_FAULT_INODES=1"},
                                Words{"FILE_FAULT_CASE=1", "FILE_FAULT_INODES=spelling"}}) {
        SCOPED_TRACE(system.back() + std::to_string(system.size()));
        const bool has_case = system[0] != "FILE_FAULT_CASE=1";
        TemporaryFolder folder;
        write_text(folder / "text", 50);
        const auto prepare = [&](const std::string& input, const std::string& name,
                                 const Words& options = {}) {
            return run_faulty(
                folder.path, system,
                with(args(BINARY_DIR "/prepare_data", "--out", folder.path, "--name", name, folder / input),
                     options));
        };
        EXPECT_EQ(prepare("text", "x").status, 0) << prepare("text", "x").err;
        expect_ok(prepare("text", "x"));  // again, over its own shards
        EXPECT_EQ(names_in(folder.path), (Words{"text", "x.json", "x_train.bin"}));
        // an input under another spelling
        write_text(folder / "Q_train.bin", 40);
        const std::string input = read_whole_file(folder / "Q_train.bin");
        EXPECT_EQ(prepare("Q_train.bin", "q").status, has_case ? 0 : 1);
        EXPECT_EQ(read_whole_file(folder / "Q_train.bin"), input);
        // a spelling that only the file system knows: é in two normal forms
        const std::string composed = "caf\u00e9", decomposed = "cafe\u0301", own = composed + "_train.bin";
        write_text(folder / own, 40);
        const ProgramResult early = prepare(own, decomposed, {"--tokenizer", "missing"});
        EXPECT_EQ(contains(early.err, "is an input, too"), !has_case) << early.err;
        fs::remove(folder / own);
        expect_ok(prepare("text", decomposed));
        fs::remove(folder / decomposed + "_train.bin");
        write_text(folder / own, 40);  // under the name of a shard that is listed
        EXPECT_EQ(prepare("text", decomposed).status, has_case ? 0 : 1);
        EXPECT_EQ(read_whole_file(folder / own), input);
        fs::rename(folder / own, folder / composed + "_train_000001.bin");
        EXPECT_EQ(prepare("text", decomposed, {"--shard-tokens", "100"}).status, has_case ? 0 : 1);
        EXPECT_EQ(read_whole_file(folder / composed + "_train_000001.bin"), input);
        // somebody else's file
        write_whole_file(folder / "K_train_000001.bin", {"mine"});
        EXPECT_EQ(prepare("text", "k").status, has_case ? 0 : 1);
        EXPECT_EQ(read_whole_file(folder / "K_train_000001.bin"), "mine");
    }
}

// File systems whose files all have one number; that neither rename nor remove an open file; whose folders
// cannot be flushed: runs start, resume and start anew, and leave no helper file.
TEST(FileSystems, ARunNeedsNoNumbersAndNoOpenFiles) {
    for (const char* system : {"FILE_FAULT_INODES=one", "FILE_FAULT_BUSY=1", "FILE_FAULT=fsync:1+:EBADF"}) {
        SCOPED_TRACE(system);
        const Data data;
        const std::string folder = data / "run", hf = data / "hf", text = data / "text",
                          corpus = data / "corpus", said = data / "said";
        const Words start = with({program, "-i", data.train, "-j", data.val, "-e", tiny, "-o", folder},
                                 words_of("-x 4 -n 2 -b 3 -t 17 -s 0 -v 2 --device cpu")),
                    export_hf = {program, "-e", folder, "--export", "hf", hf};
        write_text(text, 20);
        const Words make = {BINARY_DIR "/make_corpus", "--stories", "3", "--out", corpus};
        EXPECT_EQ(run_faulty(data.path, {"FILE_FAULT=rename:1:kill"}, make).status, 128 + SIGKILL);
        for (const Words& command : {start,
                                     {program, "-y", "1", "-o", folder, "-x", "6"},
                                     start,
                                     export_hf,
                                     export_hf,
                                     {BINARY_DIR "/prepare_data", text, "--out", data.path, "--name", "x"},
                                     make})
            expect_ok(run_faulty(data.path, {system}, command));
        EXPECT_TRUE(fs::exists(model_path(folder + "/earlier_1", 6)));
        // standard output is a file of its own, although it has the number of the corpus
        const std::string command = BINARY_DIR "/make_corpus --stories 9 --out " + corpus + " >" + said;
        const ProgramResult result = run_faulty(data.path, {system}, {"bash", "-c", "exec " + command});
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_FALSE(contains(read_whole_file(said), read_whole_file(corpus)));
        for (const auto& entry : fs::recursive_directory_iterator(data.path))
            EXPECT_FALSE(contains(entry.path().string(), ".vulkan-gpt2.")) << entry.path();
    }
}

// A file system that remembers a size from before a log grew: a resumed run keeps all lines.
TEST(FileSystems, AnOutdatedSizeLosesNoLines) {
    const Journeys data;
    const std::string log = data.run_folder + "/main.log", before = read_whole_file(log);
    const Words resumed = {program, "-y", "1", "-o", data.run_folder, "-x", "6"};
    expect_ok(run_faulty(log, {"FILE_FAULT_SIZES=1"}, resumed));
    EXPECT_TRUE(read_whole_file(log).starts_with(before));
}

// A listing may be older than the files: neither a new run nor a resumed one replaces what it lacks.
TEST(FileSystems, ARunThatIsNotListedStays) {
    const Journeys data;
    const std::string folder = data.run_folder, options = read_whole_file(folder + "/options.toml");
    for (const char* resume : {"0", "1"}) {
        const ProgramResult result =
            run_faulty(folder, {"FILE_FAULT_UNLISTED=1"},
                       {program, "-i", data.train, "-e", tiny, "-y", resume, "-o", folder, "-x", "2"});
        EXPECT_EQ(result.status, 1) << result.out;
        EXPECT_TRUE(contains(result.err, "/options.toml is there, and the listing of its folder lacks it"));
        EXPECT_EQ(read_whole_file(folder + "/options.toml"), options);
    }
    expect_ok(run_program({program, "-y", "1", "-o", folder, "-x", "6"}));
}

// Where a file system has no links, the tokens of an earlier run are copied: never in part, also if the
// program is killed meanwhile.
TEST(FileSystems, TokensOfAnEarlierRunAreCopiedWhole) {
    const TemporaryFolder folder;
    const std::string run = folder / "run", base = folder / "base", log = folder / "calls";
    write_text(folder / "text", 1000);
    const Words start = with({program, "--text", folder / "text", "-o", run},
                             words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16 --tokenizer "
                                      "bytes -x 1 -b 2 -t 16 -s 0 --device cpu"));
    expect_ok(run_program(start));
    fs::copy(run, base, fs::copy_options::recursive);
    const Words names = names_in(base + "/tokens");
    for (int n = 1, is_killed = 1; is_killed; n++) {
        SCOPED_TRACE(n);
        fs::remove_all(run);
        fs::copy(base, run, fs::copy_options::recursive);
        const std::string fault = format_string("FILE_FAULT=write:%d:kill", n);
        is_killed = run_faulty(run + "/earlier_1/tokens", {"FILE_FAULT_LINKS=0", fault}, start).status != 0;
        EXPECT_TRUE(is_killed || n > 3);
        for (const std::string& name : names) {
            const std::string copy = run + "/earlier_1/tokens/" + name, from = base + "/tokens/" + name;
            EXPECT_TRUE(!fs::exists(copy) || read_whole_file(copy) == read_whole_file(from)) << name;
        }
        expect_ok(run_faulty(run, {"FILE_FAULT_LINKS=0"}, start));
        for (const std::string& name : names)
            EXPECT_EQ(read_whole_file(run + "/earlier_1/tokens/" + name),
                      read_whole_file(base + "/tokens/" + name));
    }
}

// A run in a folder without case: what is there under another spelling moves, and models are found.
TEST(FileSystems, ARunKnowsItsFilesUnderAnySpelling) {
    const Journeys data;
    const std::string folder = data / "other";
    const Words no_case = {"FILE_FAULT_CASE=1"};
    fs::create_directories(folder);
    fs::copy_file(model_path(data.run_folder, 4), folder + "/Model_00000002.bin");
    const std::string model = read_whole_file(folder + "/Model_00000002.bin");
    for (const char* name : {"/Main.log", "/Metrics.csv", "/OPTIONS.toml"})
        write_whole_file(folder + name, {"mine"});
    expect_ok(run_faulty(data.path, no_case,
                         with({program, "-i", data.train, "-e", folder + "/Model_00000002.bin", "-o", folder},
                              words_of("-x 2 -b 3 -t 17 -s 0 -v 0 --device cpu"))));
    EXPECT_EQ(read_whole_file(folder + "/earlier_1/main.log"), "mine");
    EXPECT_EQ(read_whole_file(folder + "/earlier_1/options.toml"), "mine");
    EXPECT_TRUE(read_whole_file(model_path(folder + "/earlier_1", 2)) == model);
    expect_ok(run_faulty(data.path, no_case, evaluation(data.run_folder + "/MODEL_00000004.BIN", data.val)));
}

// Some file systems list each name in small letters, or in capitals, however it was spelled; some repeat
// names, or read less than is asked for.
TEST(FileSystems, AFileSystemMayListAndReadInItsOwnWay) {
    for (const Words& system : {Words{"FILE_FAULT_CASE=lower"}, Words{"FILE_FAULT_CASE=upper"},
                                Words{"FILE_FAULT_CASE=1", "FILE_FAULT_TWICE=1"},
                                Words{"FILE_FAULT_CASE=1", "FILE_FAULT=read:1+:short"}}) {
        SCOPED_TRACE(system.back());
        const Journeys data;
        const std::string work = data / "case", run = work + "/run", hf = work + "/hf";
        fs::create_directories(work + "/texts");
        write_text(work + "/texts/A.txt", 100);
        const auto attempt = [&](const Words& command) { expect_ok(run_faulty(work, system, command)); };
        const Words train = with({program, "-i", work + "/Q_train.bin", "-o", run, "--tensorboard"},
                                 words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16,vocab=257 "
                                          "-x 4 -n 2 -b 3 -t 16 -s 0 -v 0 --device cpu"));
        const bool small = system[0] == "FILE_FAULT_CASE=lower", large = system[0] == "FILE_FAULT_CASE=upper";
        const auto eval = [&](const std::string& model) {
            return run_faulty(work, system, evaluation(run + model, work + "/q_train.bin")).status;
        };
        for (int again = 0; again < 2; again++) {
            attempt({BINARY_DIR "/prepare_data", "--out", work, "--name", "Q", work + "/texts"});
            attempt(train);
            EXPECT_EQ(fs::exists(run + "/earlier_1"), again == 1);
            // of a clock that has been set back: the next file of events sorts after it
            const std::string events = large ? "EVENTS.OUT.TFEVENTS" : "events.out.tfevents";
            write_whole_file(run + "/tensorboard/" + events + ".9999999999.vm", {});
            attempt({program, "-y", "1", "-o", run, "-x", "6"});
            EXPECT_TRUE(contains(names_in(run + "/tensorboard").back(), "99999999990."));
            attempt({program, "-e", run, "--export", "hf", hf});
            for (const char* model : {"", "/model_00000006.bin", "/MODEL_00000006.BIN"})
                EXPECT_EQ(eval(model), 0) << model;
        }
        const Words names = names_in(run);
        EXPECT_TRUE(std::count(names.begin(), names.end(), small ? "done_00000006" : "DONE_00000006"));
        EXPECT_TRUE(std::count(names.begin(), names.end(), large ? "MAIN.LOG" : "main.log"));
        // the checkpoint's checksums are those of the model, under any spelling
        const std::string model = run + (large ? "/MODEL_00000006.BIN" : "/model_00000006.bin");
        std::string bytes = read_whole_file(model);
        bytes[bytes.size() - 4] ^= 1;
        write_whole_file(model, {bytes});
        EXPECT_EQ(eval("/model_00000006.bin"), 1);
        EXPECT_EQ(eval("/MODEL_00000006.BIN"), 1);
    }
}

// NAME.json lists shards, under whatever spelling they are read.
TEST(FileSystems, ShardsAreKnownUnderAnySpelling) {
    const Journeys data;
    const auto train = [&](const std::string& shard, const std::string& out) {
        return run_faulty(data.path, {"FILE_FAULT_CASE=1"},
                          with({program, "-i", data / shard, "-o", data / out},
                               words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16,vocab=257 -x 1 "
                                        "-b 2 -t 16 -s 0 -v 0 --device cpu")));
    };
    expect_ok(run_program(preparation(data.texts, data.path)));
    for (const char* name : {"x_train.bin", "X_train.bin", "x_TRAIN.bin", "X_TRAIN.BIN"}) {
        const ProgramResult result = train(name, std::string("of_") + name);
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_FALSE(contains(result.err, "warning"));  // its tokenizer is known
    }
    fs::copy_file(data.shards + "/a.bin", data / "x_train.bin", fs::copy_options::overwrite_existing);
    for (const char* name : {"x_train.bin", "X_train.bin", "x_TRAIN.bin", "X_TRAIN.BIN"})
        expect_refusal(train(name, "refused"), "is not one of the shards that");
}

// Where numbers do not tell it, names do.
TEST(FileSystems, ATextGivenTwiceIsKnownUnderAnyName) {
    TemporaryFolder folder;
    for (const char* name : {"one.txt", "two.txt"})
        write_whole_file(folder / name, {std::string(30000, name[0]), "\n"});
    for (const char* numbers : {"LC_ALL=C", "FILE_FAULT_INODES=1", "FILE_FAULT_INODES=spelling"})
        for (const auto& [other, is_one] :
             std::map<std::string, bool>{{"two.txt", false}, {"ONE.txt", true}}) {
            const Words command = args(program, "--device cpu --dry-run=memory -x 1 -o", folder / "r",
                                       "--text", folder / "one.txt", "--text", folder / other);
            const ProgramResult result = run_faulty(folder.path, {"FILE_FAULT_CASE=1", numbers}, command);
            EXPECT_EQ(contains(result.err, "given twice"), is_one) << numbers << result.err << result.out;
            EXPECT_EQ(result.status, is_one);
        }
}
