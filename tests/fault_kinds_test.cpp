// Kinds of faults that must not pass for something else: an error that may pass is no damage and no end of a
// folder, errors that arrive at close() count, and what the program leaves behind. tests/file_fault.cpp makes
// the calls fail. A sample is tested; FILE_FAULT_ALL=1 tests all. Faults of texts: text_faults_test.cpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <random>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/process.h"
#include "llmc/files/checkpoint.h"
#include "tests/journeys.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// A command, what may fail, and what it makes: a file, or standard output where that is empty.
struct Journey {
    const char* name;
    Words command;
    std::string watched, result;
};

static std::vector<Journey> journeys(const Journeys& data) {
    const std::string copy = data / "copy", out = data / "out";
    return {
        {"eval", evaluation(data.run_folder, data.shards + "/*.bin"), data.path, ""},
        {"resume", args(program, "-y 1 -o", copy, "-x 5 -s 0"), copy, model_path(copy, 5)},
        {"export", {program, "-e", copy, "--export", "hf", out}, copy, out + "/model.safetensors"},
        {"prepare", preparation(data.texts, out), data.texts, out + "/x_train.bin"},
        {"answers", with(preparation(data.answers, out), {"--val-fraction", "0.2"}), data.answers,
         out + "/x_train.bin"},
        {"tokenizer", with(preparation(data.texts, out), words_of("--tokenizer bpe:260 --val-fraction 0.2")),
         data.texts + "/a.txt", out + "/x_train.bin"},
        {"new run",
         with({program, "-e", tiny, "-i", data.shards + "/*.bin", "-o", copy + "/new"},
              words_of("-x 1 -b 2 -t 16 -s 0 -v 0 --device cpu")),
         data.shards, model_path(copy + "/new", 1)}};
}

static std::string result_of(const Journey& journey, const ProgramResult& result) {
    return journey.result.empty()       ? result.out
           : fs::exists(journey.result) ? read_whole_file(journey.result)
                                        : "";
}

static const std::map<std::string, int> errors = {
    {"EIO", EIO}, {"EMFILE", EMFILE}, {"ESTALE", ESTALE}, {"EINTR", EINTR}};

// One error of a call that only looks: the program ends with the system's reason, or does all of its work. A
// call that was interrupted is repeated.
TEST(FaultKinds, AnErrorThatMayPassIsNoDamageAndNoEnd) {
    const Journeys data;
    const TemporaryFolder logs;  // outside of what is watched
    std::random_device random;
    int runs = 0;
    for (const Journey& journey : journeys(data)) {
        SCOPED_TRACE(journey.name);
        const auto attempt = [&](const Words& settings) {
            fs::remove_all(data / "copy");
            fs::remove_all(data / "out");
            fs::copy(data.run_folder, data / "copy", fs::copy_options::recursive);
            return run_faulty(journey.watched, settings, journey.command);
        };
        const std::string log = logs / "calls";
        fs::remove(log);
        const ProgramResult whole = attempt({"FILE_FAULT_LOG=" + log});
        ASSERT_EQ(whole.status, 0) << whole.err;
        const std::string expected = result_of(journey, whole);
        std::map<std::string, int> counts;
        std::istringstream lines(read_whole_file(log));
        for (std::string line; std::getline(lines, line);) counts[line.substr(0, line.find(' '))]++;
        const bool has_folder = fs::is_directory(journey.watched);  // of a file, all calls are tested
        ASSERT_EQ(counts["getdents"] > 0, has_folder);
        for (const char* call : {"getdents", "open", "read", "lseek", "stat", "fstat"})
            for (int n = 1; n <= counts[call]; n++) {
                if (has_folder && !getenv("FILE_FAULT_ALL") && random() % counts[call] >= 2) continue;
                const auto& [name, number] = *std::next(errors.begin(), long(random() % errors.size()));
                const std::string fault = format_string("FILE_FAULT=%s:%d:%s", call, n, name.c_str());
                SCOPED_TRACE(fault);
                const ProgramResult result = attempt({fault});
                runs++;
                EXPECT_LE(result.status, number == EINTR ? 0 : 1) << result.err;
                EXPECT_FALSE(contains(result.out + result.err, "broken"));
                const bool says_why = result.err.find(strerror(number)) != std::string::npos;
                EXPECT_TRUE(result.status == 0 ? result_of(journey, result) == expected : says_why)
                    << result.err;
            }
    }
    printf("%d faults in calls that look\n", runs);
}

// The same at the files of the newest checkpoint, where damage would lead to an older one.
TEST(FaultKinds, AnErrorAtTheNewestCheckpointIsNoDamage) {
    const Journeys data;
    const std::string copy = data / "copy", hf = data / "hf";
    const std::pair<Words, const char*> commands[] = {
        {{program, "-y", "1", "-o", copy, "-x", "5", "-s", "0"}, "step    5/5"},
        {{program, "-e", copy, "--export", "hf", hf}, "of step 4"},
        {evaluation(copy, data.val), "of step 4"}};
    int failed = 0;
    for (const std::string& file : {model_path(copy, 4), optimizer_path(copy, 4), run_path(copy, 4)})
        for (const char* call : {"open:1", "open:2", "read:1", "read:2", "fstat:1", "fstat:2", "stat:1"})
            for (const auto& [name, number] : errors)
                for (const auto& [command, done] : commands) {
                    const std::string fault = format_string("FILE_FAULT=%s:%s", call, name.c_str());
                    SCOPED_TRACE(file + " " + fault + " " + command[1]);
                    fs::remove_all(copy), fs::remove_all(hf);
                    fs::copy(data.run_folder, copy, fs::copy_options::recursive);
                    const ProgramResult result = run_faulty(file, {fault}, command);
                    const std::string& said = result.out + result.err;
                    failed += result.status != 0;
                    EXPECT_TRUE(result.status == 0 || number != EINTR) << said;
                    EXPECT_FALSE(contains(said, "broken"));
                    EXPECT_TRUE(contains(said, result.status ? strerror(number) : done));
                }
    EXPECT_GT(failed, 30);
}

// The same where options come from it, and at the tokenizer that it records: the options of an older one, or
// no tokenizer, would be taken.
TEST(FaultKinds, AnErrorAtWhatARunRecordsIsNoDamage) {
    const Journeys data;
    const std::string copy = data / "copy", shards = data / "shards_of_text", made = shards + "/x_train.bin";
    expect_ok(run_program(with(preparation(data.texts, shards), words_of("--tokenizer bpe:260"))));
    const auto attempt = [&](const std::string& file, const std::string& fault, const Words& command) {
        fs::remove_all(copy);
        fs::copy(data.run_folder, copy, fs::copy_options::recursive);
        fs::remove(copy + "/options.toml");
        const ProgramResult result = run_faulty(file, {"FILE_FAULT=" + fault + ":EIO"}, command);
        EXPECT_EQ(contains(result.err, strerror(EIO)), result.status == 1) << fault << result.err;
        return result;
    };
    int resumes_failed = 0, new_runs_failed = 0;
    for (const char* fault : {"open:1", "read:1", "fstat:1", "stat:1", "stat:2", "stat:3"}) {
        const ProgramResult resumed =
            attempt(run_path(copy, 4), fault, {program, "-y", "1", "-o", copy, "-x", "4", "--device", "cpu"});
        EXPECT_TRUE(resumed.status == 1 || !contains(resumed.out, run_path(copy, 2))) << resumed.out;
        const ProgramResult trained = attempt(
            shards + "/x.tokenizer", fault,
            with({program, "-i", made, "-o", copy + "/new"},
                 words_of("-e custom:layers=1,heads=1,channels=8,max_seq_len=16 -x 1 -b 2 -t 16 -s 0 -v 0 "
                          "--device cpu")));
        EXPECT_TRUE(trained.status == 1 || file_exists(copy + "/new/tokenizer.bin")) << fault;
        resumes_failed += resumed.status;
        new_runs_failed += trained.status;
    }
    EXPECT_TRUE(resumes_failed > 2 && new_runs_failed > 2) << resumes_failed << new_runs_failed;
}

// A run that trains meanwhile deletes the file of a checkpoint just before a program opens it.
TEST(FaultKinds, AModelThatIsDeletedMeanwhileIsFoundAgain) {
    const Journeys data;
    const std::string copy = data / "copy", last = copy + ":last", log = data / "calls";
    const Words tune = with({program, "-e", last, "-i", data.train}, words_of("-t 16 -s 0 --device cpu"));
    const Words commands[] = {with(tune, {"-x", "1", "-o", data / "tuned"}),
                              with(tune, {"--dry-run=memory"}),
                              evaluation(last, data.val),
                              {program, "-e", last, "--export", "hf", data / "hf"}};
    for (const Words& command : commands) {
        const auto attempt = [&](const std::string& setting) {
            for (const char* made : {"copy", "tuned", "hf"}) fs::remove_all(data / made);
            fs::copy(data.run_folder, copy, fs::copy_options::recursive);
            return run_faulty(copy, {setting}, command);
        };
        fs::remove(log);
        expect_ok(attempt("FILE_FAULT_LOG=" + log));
        std::istringstream calls(read_whole_file(log));
        int n = 0, others = 0;
        for (std::string line; std::getline(calls, line);) {
            if (!line.starts_with("open ")) continue;
            n++;
            if (!contains(line, "_0000")) continue;  // no file of a checkpoint
            SCOPED_TRACE(joined(command, " ") + ": " + line);
            const ProgramResult result = attempt(format_string("FILE_FAULT=open:%d:gone", n));
            expect_ok(result);
            const std::string said = result.out + result.err, taken = "the last checkpoint, of step ";
            const size_t at = said.rfind(taken);
            ASSERT_NE(at, said.npos) << said;
            const int step = atoi(said.c_str() + at + taken.size());
            EXPECT_TRUE(fs::exists(model_path(copy, step))) << said;
            others += step != 4;
        }
        EXPECT_GT(others, 1);
    }
}

// Somebody removes a run's folder: the last line names no checkpoint, for none is there.
TEST(FaultKinds, ARemovedRunIsNotSaidToResume) {
    const Data data;
    const std::string script =  // the run sees the folder before or after, not in between
        "\"$@\" & pid=$!; until [ -e \"$0/DONE_00000001\" ] || ! kill -0 $pid; do sleep 0.01; done; "
        "kill -STOP $pid; until grep -q 'State:.T' /proc/$pid/status || ! kill -0 $pid; do sleep 0.01; done; "
        "rm -r \"$0\"; kill -CONT $pid; wait $pid";
    const Words train = args(program, "-i", data.train, "-e", tiny, "-o", data / "run",
                             "-b 3 -t 17 -x 1000000 -n 1 -s 0 -v 0 --device cpu");
    const ProgramResult result = run_program(with({"bash", "-c", script, data / "run"}, train));
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(contains(result.err, "was removed meanwhile")) << result.err;
    EXPECT_FALSE(contains(result.err, "resumes from"));
}

// Each of these calls fails every time that the journey comes to it.
TEST(FaultKinds, AFolderThatCannotBeListedIsNotEmpty) {
    const Journeys data;
    const std::string pattern = data.shards + "/*.bin", val = data.val;
    fs::create_directories(data.shards + "/below");
    const Words train = with({program, "-e", tiny}, words_of("-x 1 -b 2 -t 16 -s 0 -v 0 --device cpu"));
    const std::pair<std::string, Words> cases[] = {
        {data.shards, with(train, {"-i", pattern})},
        {data.path, with(train, {"-i", val, "-j", data / "*/a.bin"})},
        {data.shards, evaluation(data.run_folder, pattern)},
        {data.texts, preparation(data.texts, data.path)},
        {data.texts + "/below", preparation(data.texts, data.path)},
        {data.run_folder, {program, "-y", "1", "-o", data.run_folder}},
        {data.run_folder, {BINARY_DIR "/generate", "-e", data.run_folder, "--tokenizer", "bytes", "text"}},
        {data.run_folder, {program, "-e", data.run_folder, "--export", "gguf", data / "x.gguf"}},
    };
    for (const auto& [folder, command] : cases)
        for (const char* fault : {"getdents:1:EIO", "getdents:4+:EIO"}) {
            if (folder != data.shards && fault[9] != '1') continue;
            expect_refusal(run_faulty(folder, {std::string("FILE_FAULT=") + fault}, command),
                           "Input/output error");
        }
    // glibc's readdir() takes this error for the end
    expect_refusal(run_faulty(data.shards, {"FILE_FAULT=getdents:3:ENOENT"}, cases[0].second),
                   "cannot read the folder " + data.shards + "/: Stale file handle");
}

// Quotas and NFS report at close() what they did not write.
TEST(FaultKinds, ErrorsThatArriveAtCloseCount) {
    const Journeys data;
    for (const char* fault : {"close:1:EDQUOT", "close:1:lost"}) {
        SCOPED_TRACE(fault);
        const std::string setting = std::string("FILE_FAULT=") + fault, file = data / "file";
        const std::string reason = strstr(fault, "lost") ? "Input/output error" : strerror(EDQUOT);
        write_whole_file(file, {});
        // standard output, of a program that prints a text and of one that exports to it
        for (const std::string& command :
             {BINARY_DIR "/generate -n 4 --device cpu --tokenizer bytes -e custom:"
                         "layers=1,heads=1,channels=8,max_seq_len=8,vocab=257 text >" +
                  file,
              BINARY_DIR "/train_gpt2 --version >" + file,
              BINARY_DIR "/make_corpus --stories 3 --out /dev/stdout >" + file}) {
            const ProgramResult result = run_faulty(file, {setting}, {"bash", "-c", "exec " + command});
            EXPECT_EQ(result.status, 1) << command;
            EXPECT_TRUE(contains(result.err, reason));
        }
        // a file that is written under another name: it does not get its own
        const std::string corpus = data / "corpus.txt";
        expect_refusal(
            run_faulty(corpus, {setting}, {BINARY_DIR "/make_corpus", "--stories", "3", "--out", corpus}),
            "corpus.txt: " + reason);
        EXPECT_FALSE(fs::exists(corpus) || fs::exists(temporary_of(corpus)));
    }
}

// Some file systems find room for what was written, or for its name, when it is flushed: neither an output
// nor its folder is forgotten.
TEST(FaultKinds, EveryOutputIsFlushedWithItsName) {
    const Journeys data;
    const std::string out = data / "out", run = data.run_folder,
                      shape = "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257";
    const std::vector<Words> writers = {
        {BINARY_DIR "/make_corpus", "--stories", "3", "--out", out + "/c.txt"},
        args(program, "-e", shape, "--tokenizer bytes --export gguf", out + "/m.gguf"),
        args(program, "-e", shape, "--tokenizer bytes --export hf", out + "/hf"),
        preparation(data.texts, out)};
    for (const Words& writer : writers) {
        SCOPED_TRACE(writer[1] + " " + writer.back());
        int flushes = 0;
        for (bool fails = true; fails; flushes += fails) {
            ASSERT_LT(flushes, 100);
            fs::remove_all(out);
            fs::create_directory(out);
            const std::string fault = format_string("FILE_FAULT=fsync:%d:EIO", flushes + 1);
            const ProgramResult result = run_faulty(out, {fault}, writer);
            fails = result.status != 0;
            EXPECT_EQ(fails, contains(result.err, "cannot flush to disk"));
            EXPECT_EQ(fails, contains(result.err, "Input/output error"));
        }
        int files = 0;
        for (const auto& entry : fs::recursive_directory_iterator(out)) files += entry.is_regular_file();
        EXPECT_GE(flushes, 2 * files);
    }
    const std::string log = run + "/main.log";
    const ProgramResult resumed =
        run_faulty(log, {"FILE_FAULT=fsync:2:EIO"}, {program, "-y", "1", "-o", run, "-x", "5"});
    EXPECT_TRUE(contains(resumed.err, "warning: " + log + " may lack its last lines"));
}

// A log that loses lines at close() gets them again, after a warning.
TEST(FaultKinds, ALogThatLosesLinesAtCloseSaysSo) {
    const Journeys data;
    const std::string folder = data / "logs", log = folder + "/main.log";
    for (const char* fault : {"close:4:EDQUOT", "close:4:lost"}) {
        fs::remove_all(folder);
        const Words command = with({program, "-i", data.train, "-j", data.val, "-e", tiny, "-o", folder},
                                   words_of("-x 4 -b 3 -t 17 -s 0 -v 2 --device cpu"));
        const ProgramResult result = run_faulty(log, {std::string("FILE_FAULT=") + fault}, command);
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_TRUE(contains(result.err, "warning: cannot write " + log));
        EXPECT_EQ(data.losses(folder).back(), data.losses(data.run_folder).back());
        if (strstr(fault, "lost")) continue;
        EXPECT_EQ(read_whole_file(log), read_whole_file(data.run_folder + "/main.log"));
    }
}

// Not even the folder is made: nothing could read the files of such a run.
TEST(FaultKinds, APathTooLongForARunsFilesIsRefused) {
    const Data data;
    std::string path = data.path;
    while (path.size() < 4080) path += "/" + std::string(std::min<size_t>(200, 4085 - path.size() - 1), 'x');
    expect_refusal(data.run({"-x", "1", "-o", path}), "the path is too long for a run's files");
    EXPECT_FALSE(fs::exists(data.path + "/" + std::string(200, 'x')));
}

// Another one's tokenizer, a cut one, a folder, or a link to nothing: the model's text is nothing without it.
TEST(FaultKinds, ATokenizerThatIsNoneOfTheModelIsNamed) {
    TemporaryFolder folder;
    write_text(folder / "a.txt", 400);
    expect_ok(run_program(with(preparation(folder / "a.txt", folder.path), words_of("--tokenizer bpe:260"))));
    expect_ok(run_program(args(program, "-i", folder / "x_train.bin", "-e custom:layers=1,heads=1,channels=8",
                               "-o", folder / "run", "-b 2 -t 16 -x 1 -s 0 -v 0 --device cpu")));
    const std::string file = folder / "run/tokenizer.bin", whole = read_whole_file(file);
    const Words generate = args(bin("generate"), "-e", folder / "run", "-n 3 --device cpu x");
    expect_ok(run_program(generate));
    const auto expect_named = [&] {
        const ProgramResult result = run_program(generate);
        EXPECT_EQ(result.status, 1);
        EXPECT_TRUE(contains(result.err, "the tokenizer that made the data of the model"));
        EXPECT_TRUE(contains(result.err, "name one with --tokenizer"));
    };
    for (const std::string& other : {whole.substr(0, whole.size() / 2), std::string(), whole + "x"}) {
        write_whole_file(file, {other});
        expect_named();
    }
    fs::remove(file);
    fs::create_symlink("nowhere", file);
    expect_named();
    fs::remove(file);
    fs::create_directory(file);
    expect_named();
}

// Nobody reads the output any more, while the program writes its files.
TEST(FaultKinds, ABrokenPipeLeavesNoTemporaryFile) {
    TemporaryFolder folder;
    write_text(folder / "text", 5000);
    for (const std::string& command :
         {"prepare_data --out " + folder.path + " --name x " + folder / "text",
          "make_corpus --stories 2000 --out " + folder / "corpus.txt",
          "train_gpt2 -e custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257 --tokenizer bytes "
          "--export hf " +
              folder / "hf"}) {
        run_program({"bash", "-c", BINARY_DIR "/" + command + " | true"});
        for (const auto& entry : fs::recursive_directory_iterator(folder.path)) {
            const std::string name = entry.path().filename().string();
            EXPECT_FALSE(name.find(".vulkan-gpt2.") != name.npos) << command << name;
        }
    }
}

// Runs a command whose output, or input, does not block: from its start on, or after its first output, since
// another program that shares it may change it at any time. The reader of the output is slow.
static ProgramResult run_without_blocking(Words command, bool is_late, const Words& input) {
    int in[2], out[2];
    if (pipe2(in, is_late ? O_CLOEXEC : O_CLOEXEC | O_NONBLOCK) || pipe2(out, O_CLOEXEC)) return {};
    fcntl(out[1], F_SETPIPE_SZ, 4096);
    const auto stop_blocking = [](int end) { fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK); };
    if (!is_late) stop_blocking(out[1]);
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0), dup2(out[1], 1), dup2(out[1], 2);
        execv(argv[0], argv.data());
        _exit(127);
    }
    ProgramResult result = {};
    char chunk[600];
    const auto read_more = [&] {
        const ssize_t count = read(out[0], chunk, sizeof chunk);
        result.out.append(chunk, size_t(std::max<ssize_t>(count, 0)));
        usleep(1000);
        return count > 0;
    };
    read_more();
    for (const int end : {in[0], out[1]}) stop_blocking(end), close(end);
    for (const std::string& line : input)
        usleep(100000), result.status |= write(in[1], line.data(), line.size()) < 0;
    close(in[1]);
    while (read_more()) {
    }
    close(out[0]);
    int status = 0;
    waitpid(child, &status, 0);
    result.status |= status;
    return result;
}

TEST(FaultKinds, StreamsThatDoNotBlockAreWaitedFor) {
    const Journeys data;
    std::signal(SIGPIPE, SIG_IGN);
    const std::string answer = BINARY_DIR
        "/generate --tokenizer bytes -n 2 -i --device cpu "
        "-e custom:layers=1,heads=1,channels=8,max_seq_len=16,vocab=257 ",
                      lines = "echo -e 'first\\nsecond\\nthird' | " + answer;
    for (const bool is_late : {false, true}) {
        SCOPED_TRACE(is_late);
        const std::string trains =
            output_of(run_without_blocking(with({program, "-i", data.train, "-e", tiny},
                                                words_of("-x 300 -b 1 -t 8 -s 0 -v 0 --device cpu")),
                                           is_late, {}));
        for (const char* line : {"step    1/300", "step  150/300", "step  300/300", "total average"})
            EXPECT_TRUE(contains(trains, line));
        const ProgramResult help = run_without_blocking({program, "--help"}, is_late, {});
        EXPECT_EQ(help.status, 0);
        EXPECT_EQ(help.out, output_of(run_program("train_gpt2 --help")));
        const std::string answers =
            output_of(run_without_blocking(words_of(answer), is_late, {"first\n", "second\n", "third\n"}));
        EXPECT_EQ(answers, output_of(run_program({"bash", "-c", lines + "2>&1 | cat"})));
    }
    std::signal(SIGPIPE, SIG_DFL);
}

// A folder, which the system refuses to read, in the place of the pipe that brings the job's output.
TEST(FaultKinds, APipeOfAJobThatCannotBeReadIsClosed) {
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit seconds = {5, 5};  // of each process that reads forever
        setrlimit(RLIMIT_CPU, &seconds);
        static const int in_its_place = open("/", O_RDONLY);
        static int numbers[5];  // of a pipe's ends, another's, and the one that is read
        static volatile sig_atomic_t was_replaced = 0;
        for (int& number : numbers) number = dup(in_its_place);
        for (const int number : numbers) close(number);
        std::signal(SIGWINCH, [](int) { was_replaced = dup2(in_its_place, numbers[4]) == numbers[4]; });
        const int status = run_instead({"sh", "-c", "kill -WINCH $PPID; exit 3"}, {});
        _exit(was_replaced ? status : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

// Locks and temporary files have names of their own: folders and files may stand where other programs would
// put theirs.
TEST(FaultKinds, HelperFilesHaveNamesOfTheirOwn) {
    const Journeys data;
    const std::string shape = "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257";
    const std::string wiki = data / "wiki", corpus = data / "corpus.txt", gguf = data / "m.gguf",
                      run_folder = data / "new";
    const std::vector<std::pair<Words, Words>> writers = {
        {{wiki, wiki + ".json", wiki + "_train.bin", wiki + "_train_000000.bin", wiki + ".tokenizer"},
         {BINARY_DIR "/prepare_data", "--out", data.path, "--name", "wiki", wiki}},
        {{corpus}, {BINARY_DIR "/make_corpus", "--stories", "3", "--out", corpus}},
        {{gguf}, args(program, "-e", shape, "--tokenizer bytes --export gguf", gguf)},
        {{run_folder, run_folder + "/main.log", model_path(run_folder, 1), run_folder + "/DONE_00000001"},
         with({program, "-i", data.train, "-e", tiny, "-o", run_folder},
              words_of("-x 1 -b 3 -t 17 -s 0 -v 0 --device cpu"))}};
    fs::create_directories(wiki);
    write_text(wiki + "/a.txt", 50);
    for (const bool are_folders : {true, false})
        for (const auto& [outputs, command] : writers) {
            SCOPED_TRACE(command[0] + (are_folders ? " folders" : " files"));
            Words others;
            for (const std::string& output : outputs)
                for (const char* suffix : {".tmp", ".new", ".lock", ".part", "~", ".bak"})
                    others.push_back(output + suffix);
            for (const std::string& other : others) {
                fs::remove_all(other);
                fs::create_directories(are_folders ? other : fs::path(other).parent_path().string());
                if (!are_folders) write_whole_file(other, {"mine"});
            }
            expect_ok(run_program(command));
            for (const std::string& other : others)
                EXPECT_TRUE(are_folders ? fs::is_directory(other) : read_whole_file(other) == "mine")
                    << other;
        }
    for (const auto& entry : fs::recursive_directory_iterator(data.path))
        EXPECT_FALSE(contains(entry.path().string(), ".vulkan-gpt2.")) << entry.path();
}

// The newest checkpoint lies on a disk that is not mounted now: no older one is taken in its place.
TEST(FaultKinds, ALinkThatLeadsNowhereIsNoDamage) {
    const Journeys data;
    int files = 0;
    for (const std::string& name : names_in(data.run_folder)) {
        if (!contains(name, "00000004") || contains(name, "DONE")) continue;
        SCOPED_TRACE(name);
        files++;
        const std::string path = data.run_folder + "/" + name, elsewhere = data / "elsewhere";
        fs::rename(path, elsewhere);
        fs::create_symlink("nowhere", path);
        for (const Words& command : {args(program, "-y 1 -x 5 -o", data.run_folder),
                                     args(program, "-e", data.run_folder, "--export hf", data / "hf")}) {
            if (contains(name, "state") && command[1] == "-e") continue;
            const ProgramResult result = run_program(command);
            EXPECT_EQ(result.status, 1);
            EXPECT_TRUE(contains(result.err, "a link that leads nowhere")) << result.err;
        }
        fs::rename(elsewhere, path);
    }
    EXPECT_EQ(files, 3);
}
