// Errors of the Vulkan driver at many calls of many functions, made by the layer in tests/vulkan_fault_layer.
// After each, the program ends with one line and status 1, or is not concerned; the run resumes, and ends
// with the files of an undisturbed one. VULKAN_FAULTS=all tries every call, of smaller runs, instead of a few
// of each function; VULKAN_FAULTS=Memory only calls of functions with such a name; VULKAN_FAULTS_SEED chooses
// other calls.
#include <gtest/gtest.h>
#include <vulkan/vulkan.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "tests/distributed_run.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static const std::string wanted = getenv("VULKAN_FAULTS") ? getenv("VULKAN_FAULTS") : "";
static const bool all_calls = !wanted.empty();

static bool is_wanted(const std::string& function) {
    return wanted == "all" || function.find(wanted) != std::string::npos;
}

static const std::string one_layer = "custom:layers=1,heads=2,channels=24,max_seq_len=32,vocab=67";

// What the layer wrote about a run.
struct Calls {
    std::map<std::string, long> of;  // by function
    bool fired = false;
    long longest_ms = 0;  // submission, with a watchdog
};

// Sets a variable for the length of the object.
struct Variable {
    const char* const name;
    Variable(const char* variable, const std::string& value) : name(variable) {
        setenv(name, value.c_str(), 1);
    }
    Variable(const Variable&) = delete;
    ~Variable() { unsetenv(name); }
};

struct FaultyDriver : Data {
    FaultyDriver() {
        setenv("XDG_CACHE_HOME", (*this / "cache").c_str(), 1);
        setenv("VK_ADD_LAYER_PATH", BINARY_DIR "/vulkan_fault_layer", 1);
        setenv("VK_INSTANCE_LAYERS", "VK_LAYER_LLMC_fault", 1);
        setenv("VULKAN_FAULT_LOG", (*this / "calls").c_str(), 1);
        setenv("LAUNCHPAD_SUBMISSION_MS", "1000000", 1);  // the number of calls depends on no clock
        setenv("NODEVICE_SELECT", "1", 1);  // Mesa's layer of that name crashes if enumerating fails
    }
    ~FaultyDriver() {
        for (const char* name : {"VK_ADD_LAYER_PATH", "VK_INSTANCE_LAYERS", "VULKAN_FAULT_LOG",
                                 "VULKAN_FAULT", "LAUNCHPAD_SUBMISSION_MS", "NODEVICE_SELECT"})
            unsetenv(name);
    }
    // Runs a program whose call number `call` of `function` returns `result`.
    ProgramResult run_with(const std::string& function, long call, VkResult result, const Words& command) {
        const std::string fault = function + ":" + std::to_string(call) + ":" + std::to_string(result);
        const Variable setting("VULKAN_FAULT", fault);
        return run_program(command);
    }
    Calls calls() const {
        Calls found;
        std::ifstream file(*this / "calls");
        for (std::string line; std::getline(file, line);) {
            const size_t space = line.find(' ');
            if (space == std::string::npos)
                found.fired = line == "fired";
            else
                found.of[line.substr(0, space)] = std::stol(line.substr(space));
            if (line.starts_with("longest ")) found.longest_ms = found.of.extract("longest").mapped();
        }
        return found;
    }
};

struct VulkanFaults : testing::Test {
    FaultyDriver driver;
    void SetUp() override {
        if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    }
};

static bool can_lose_device(const std::string& function) {
    return std::set<std::string>{"vkQueueSubmit2",   "vkWaitSemaphores",      "vkGetSemaphoreCounterValue",
                                 "vkDeviceWaitIdle", "vkGetQueryPoolResults", "vkCreateDevice"}
        .count(function);
}

struct Case {
    std::string function;
    long call;
    VkResult result;
};

// A few calls of each function, or all, with one of the errors that it may return. The program does not
// distinguish the two kinds of memory.
static std::vector<Case> choose_cases(const Calls& calls) {
    std::mt19937 random(printed_seed("VULKAN_FAULTS_SEED", 1));
    std::vector<Case> cases;
    for (const auto& [function, count] : calls.of) {
        if (!is_wanted(function)) continue;
        std::vector<VkResult> results = {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY};
        if (can_lose_device(function)) results = {VK_ERROR_DEVICE_LOST, VK_ERROR_OUT_OF_HOST_MEMORY};
        if (function == "vkWaitSemaphores") results.push_back(VK_TIMEOUT);
        if (function == "vkCreateInstance" || function == "vkEnumeratePhysicalDevices")
            results.push_back(VK_ERROR_INITIALIZATION_FAILED);
        std::set<long> chosen = {1, count};
        while (chosen.size() < 3 && long(chosen.size()) < count) chosen.insert(1 + long(random() % count));
        if (all_calls)
            for (long call = 1; call <= count; call++) chosen.insert(call);
        size_t next = 0;
        for (const long call : chosen) {
            if (call < 1 || call > count) continue;
            // in turns, and shifted: calls of two places may alternate
            const size_t turn = all_calls ? size_t(call) + size_t(call) / results.size() : next++;
            cases.push_back({function, call, results[turn % results.size()]});
        }
    }
    return cases;
}

template <class... Parts>
static void expect_one_line(const ProgramResult& result, const Parts&... parts) {
    expect_refusal(result, parts...);
    EXPECT_TRUE(result.err.starts_with("train_gpt2: ")) << result.err;
}

static void expect_same_files(const std::string& a, const std::string& b, int step) {
    for (auto path : {model_path, optimizer_path, run_path}) {
        ASSERT_TRUE(std::filesystem::exists(path(b, step))) << path(b, step);
        EXPECT_TRUE(read_whole_file(path(a, step)) == read_whole_file(path(b, step))) << path(b, step);
    }
}

TEST_F(VulkanFaults, ATrainingRunEndsWithOneLineAndResumes) {
    const std::string whole = driver / "whole", half = driver / "half", run = driver / "run";
    const Words work =
        all_calls ? args("-x 4 -v 0 -s 0 -e", one_layer, "-b 1 -t 8") : args("-x 7 -v 4 -m 2 -s 4 -g 3");
    const int last = all_calls ? 4 : 7;
    expect_ok(driver.run(with(work, {"-n", "2", "-l", "0.01", "--device", device(), "-o", whole})));
    copy_folder(whole, half);
    for (const int step : list_checkpoints(half))
        if (step > 2) delete_checkpoint(half, step);
    const Words resume = {program, "-y", "1", "-o", run};
    copy_folder(half, run);
    expect_ok(run_program(resume));
    int fired = 0, failed = 0;
    std::set<std::string> resumed_from;  // most faults leave what another one has left
    for (const Case& c : choose_cases(driver.calls())) {
        SCOPED_TRACE(c.function + ", call " + std::to_string(c.call) + ", result " +
                     std::to_string(c.result));
        copy_folder(half, run);
        const ProgramResult result = driver.run_with(c.function, c.call, c.result, resume);
        if (!driver.calls().fired) continue;  // the run has fewer calls than the one that counted
        fired++;
        if (result.status != 0) {
            failed++;
            expect_one_line(result);
            EXPECT_NO_THROW(check_checkpoint(run, 2));
            std::string left;
            for (const std::string& name : files_of(run)) left += name + read_whole_file(run + "/" + name);
            if (!HasFailure() && !resumed_from.insert(left).second) continue;
            expect_ok(run_program(resume));
        }
        expect_same_files(whole, run, last);
        if (HasFailure()) break;
    }
    printf("%d faults, %d of which ended the run, leaving %zu states of its files\n", fired, failed,
           resumed_from.size());
    copy_folder(half, run);
    EXPECT_EQ(run_program(resume).status, 0);  // no fault spoiled the stored pipelines
    expect_same_files(whole, run, last);
    if (!all_calls) {
        EXPECT_GE(fired, 40);
        EXPECT_GE(failed, 35);
    }
}

TEST_F(VulkanFaults, ALostDeviceIsReportedWithTheCheckpointToResume) {
    const Words options = args("-x 6 -v 0 -s 0 -l 0.01 --device", device(), "-e", one_layer);
    expect_ok(driver.run(options));  // counts
    const long late = driver.calls().of["vkQueueSubmit2"] - 2;
    auto lose = [&](const Words& more) {
        Words command = args(program, "-i", driver.train, "-e", one_layer, "-b 3 -t 17");
        const ProgramResult result =
            driver.run_with("vkQueueSubmit2", late, VK_ERROR_DEVICE_LOST, with(with(command, options), more));
        expect_one_line(result, "the GPU was lost in vkQueueSubmit2");
        return result.err;
    };
    EXPECT_TRUE(contains(lose({}), "there is no -o"));
    EXPECT_TRUE(contains(lose({"-o", driver / "a"}), "there is no checkpoint yet"));
    const std::string message = lose({"-o", driver / "b", "-n", "2"});
    EXPECT_TRUE(contains(message, "-y 1 resumes from there"));
    const int saved = find_latest_checkpoint(driver / "b").step;
    EXPECT_GE(saved, 2);
    EXPECT_TRUE(contains(message, "the steps after " + std::to_string(saved) + " are lost"));
}

// The program opens it again, and ends with the files of a run that was not disturbed.
TEST_F(VulkanFaults, ALostDeviceIsRetried) {
    const Words work = args("-x 7 -v 4 -m 2 -s 4 -l 0.01 --device", device(), "-n 2");
    const auto train = [&](const std::string& output) { return with(work, {"-o", driver / output}); };
    for (int run = 0; run < 2; run++)  // the first one measures the device, too
        expect_ok(driver.run(train("whole")));
    const long submissions = driver.calls().of["vkQueueSubmit2"];
    Words command =
        args(program, "-i", driver.train, "-j", driver.val, "-e", tiny, "-b 3 -t 17 --retry-lost-device 1");
    for (const long call : {1L, submissions / 2, submissions - 2}) {  // also before the first checkpoint
        SCOPED_TRACE(format_string("submission %ld of %ld", call, submissions));
        std::filesystem::remove_all(driver / "lost");
        const ProgramResult result =
            driver.run_with("vkQueueSubmit2", call, VK_ERROR_DEVICE_LOST, with(command, train("lost")));
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_TRUE(contains(result.err, "warning: the GPU was lost in vkQueueSubmit2"));
        EXPECT_TRUE(contains(result.err, "retry 1 of 1"));
        EXPECT_TRUE(driver.calls().fired);
        expect_same_files(driver / "whole", driver / "lost", 7);
    }
    const ProgramResult refused = run_program(with(command, {"-n", "0", "-o", driver / "refused"}));
    expect_one_line(refused, "--retry-lost-device resumes from a checkpoint");
    // one that is lost each time
    const Variable watchdog("VULKAN_WATCHDOG", "100");
    const ProgramResult lost = run_program(with(
        command, args("-e custom:layers=1,heads=2,channels=128,max_seq_len=32,vocab=50257 -x 2 -v 0 -s 0",
                      "-o", driver / "again", "--device", device())));
    EXPECT_EQ(lost.status, 1) << lost.out;
    EXPECT_EQ(count_of(lost.err, "retry 1 of 1"), 1) << lost.err;
    EXPECT_EQ(count_of(lost.err, "the GPU was lost in vkQueueSubmit2"), 2) << lost.err;
}

// What a driver's watchdog does to a submission of a minute.
TEST_F(VulkanFaults, AWatchdogEndsWhatIsNotDivided) {
    const Variable watchdog("VULKAN_WATCHDOG", "2000");
    const ProgramResult undivided =
        run_program("train_gpt2 -i", driver.train, "-e d6 -b 4 -t 64 -x 1 -v 0 -s 0 --device", device());
    EXPECT_EQ(undivided.status, 1) << undivided.out;
    EXPECT_TRUE(contains(undivided.err, "the GPU was lost in vkQueueSubmit2"));
    EXPECT_TRUE(driver.calls().fired);
}

// The programs as they are, under the same watchdog. `shows`: what only a run that came to its end prints.
struct Watched {
    const char *name, *command, *shows;
};
struct SlowDevice : VulkanFaults, testing::WithParamInterface<Watched> {};

TEST_P(SlowDevice, IsNotLost) {
    unsetenv("LAUNCHPAD_SUBMISSION_MS");
    setenv("VULKAN_WATCHDOG", "1000000", 1);
    Words command = words_of(GetParam().command);
    command[0] = BINARY_DIR "/" + command[0];
    for (std::string& word : command) {
        if (word == "TOKENS") word = driver.train;
        if (word == "FOLDER") word = driver / "report";
        if (word == "PROMPT") word = std::string(900, 'e');
    }
    command.insert(command.end(), {"--device", device()});
    const ProgramResult alone = run_program(command);  // Mesa compiles at the first dispatch
    const Variable watchdog("VULKAN_WATCHDOG", "2000");
    const ProgramResult watched = run_program(command);
    for (const ProgramResult& result : {alone, watched}) {
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_TRUE(contains(result.out + result.err, GetParam().shows));
    }
    EXPECT_FALSE(driver.calls().fired);
    EXPECT_GT(driver.calls().longest_ms, 0);
    EXPECT_EQ(printed_losses(watched.out), printed_losses(alone.out));
    EXPECT_FALSE(contains(alone.out + watched.out, "is not used")) << "the self-test lost the device";
    printf("the longest submission took %ld ms\n", driver.calls().longest_ms);
}

static const Watched watched_programs[] = {
    {"training", "train_gpt2 -i TOKENS -e d6 -b 4 -t 64 -x 1 -v 0 -s 0", "step    1/1 "},
    {"muon", "train_gpt2 -i TOKENS -e d6 -b 4 -t 64 -x 1 -v 0 -s 0 --optimizer muon", "step    1/1 "},
    {"validation_and_eval", "eval -i TOKENS -e d6 -b 4 -t 64 -m 2", "tokens 512 | loss "},
    {"long_prompt", "generate -n 4 -e custom:layers=6,heads=6,channels=384,max_seq_len=1024,vocab=257 PROMPT",
     " tokens read in "},
    {"report_and_peaks", "report --quick --seconds 60 --out FOLDER", "train_benchmark"},
    {"benchmarks", "bench --filter attention_.*ward.*fp32|matmul_forward/matmul4/fp32", "TFLOP/s"},
};
INSTANTIATE_TEST_SUITE_P(all, SlowDevice, testing::ValuesIn(watched_programs),
                         [](const auto& test) { return std::string(test.param.name); });

// A device that cannot import the processes' buffers leaves the sums to the CPU; a lost one ends the run.
TEST_F(Distributed, ALostDeviceIsNoneThatCannotImport) {
    if (device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const FaultyDriver driver;
    const char* const import = "vkGetMemoryHostPointerPropertiesEXT";
    const Words options = {"--device", device(), "-x", "3", "-v", "0", "-e", one_layer};
    const auto train_with = [&](VkResult result, const std::string& output) {
        const Variable setting("VULKAN_FAULT", format_string("%s:1:%d", import, result));
        return start(2, options, output);
    };
    const ProgramResult undisturbed = start(2, options, "undisturbed");
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    if (driver.calls().of[import] == 0) GTEST_SKIP() << "this device imports no memory";
    const ProgramResult without = train_with(VK_ERROR_INVALID_EXTERNAL_HANDLE, "without");
    EXPECT_EQ(without.status, 0) << without.err;
    EXPECT_TRUE(driver.calls().fired);
    EXPECT_TRUE(model_after("without", 3) == model_after("undisturbed", 3));
    const ProgramResult lost = train_with(VK_ERROR_DEVICE_LOST, "lost");
    EXPECT_EQ(lost.status, 1) << lost.out;
    EXPECT_TRUE(contains(lost.err, format_string("the GPU was lost in %s", import)));
}

// A device of so many MiB, of which the host sees a part.
struct SmallDevice : Variable {
    SmallDevice(int mib, int visible_mib, const char* kind = "")
        : Variable("VULKAN_MEMORY", format_string("%d:%d%s", mib, visible_mib, kind)) {}
};

// What the host sees is too small for the model, and at last too small for the usual staging buffer: the rest
// lies in memory of the device alone, and everything else is as without a limit.
TEST_F(VulkanFaults, TrainsWithLittleMemoryThatTheHostSees) {
    const std::string model = "custom:layers=2,heads=2,channels=256,max_seq_len=32,vocab=67";
    const Words options = {"-x", "3", "-v", "2", "-m", "1", "-s", "0", "-e", model, "-b", "3", "-t", "17"};
    const auto train = [&](const std::string& output) {
        Words command = {program, "-i", driver.train, "-j", driver.val};
        expect_ok(run_program(with(with(command, options), {"--device", device(), "-o", driver / output})));
    };
    const Variable staged("LAUNCHPAD_STAGED", "1");
    train("unlimited");
    for (const int visible : {32, 4}) {
        const SmallDevice small(256, visible);
        train("limited");
        EXPECT_EQ(driver.calls().fired, visible == 4);
        expect_same_files(driver / "unlimited", driver / "limited", 3);
        if (HasFailure()) break;
    }
}

// Neither heap holds the run alone; the last two not even together.
TEST_F(VulkanFaults, TwoHeapsOfTheDeviceAreUsedTogether) {
    const std::string model = "custom:layers=2,heads=2,channels=256,max_seq_len=32,vocab=67";
    const Variable staged("LAUNCHPAD_STAGED", "1");
    for (const char* heaps : {"", "64+64", "40+40"}) {
        *heaps ? setenv("VULKAN_MEMORY", heaps, 1) : unsetenv("VULKAN_MEMORY");
        const std::string result = output_of(
            run_program("train_gpt2 -i", driver.train, "-j", driver.val, "-x 3 -s 0 -e", model,
                        "-b 3 -t 17 --device", device(), "-o", driver / ("heaps" + std::string(heaps))));
        EXPECT_EQ(count_of(result, "they lie in the host's memory"), heaps == std::string("40+40")) << result;
        expect_same_files(driver / "heaps", driver / ("heaps" + std::string(heaps)), 3);
    }
    unsetenv("VULKAN_MEMORY");
}

// As an APU has them: the plan of 1.7 GiB of parameters, gradients and moments fits, and a step runs.
TEST_F(VulkanFaults, HeapsOfHalfAndOneAndAHalfGibHoldWhatNeitherHolds) {
    const Variable staged("LAUNCHPAD_STAGED", "1");
    const auto train = [&](const char* heaps, const std::string& option) {
        const Variable memory("VULKAN_MEMORY", heaps);
        return run_program("train_gpt2 -e custom:layers=5,heads=16,channels=1024,max_seq_len=16", option,
                           "-i", driver.train, "-b 1 -t 16 -x 1 -v 0 -s 0 --device", device());
    };
    const ProgramResult refused = train("512+1024", "--dry-run=memory");
    EXPECT_EQ(refused.status, 1);
    EXPECT_TRUE(contains(refused.err, "has 1.5 GiB free"));
    const ProgramResult result = train("512+1536", "--dropout=0");
    expect_ok(result, "step    1/1 ");
    EXPECT_EQ(result.out.find("they lie in the host's memory"), std::string::npos) << result.out;
}

// Other programs take half of the memory in the middle of a run, which has little room, or no more than half.
// What it allocates for samples then is the host's.
TEST_F(VulkanFaults, ABudgetThatHalvesIsOneLine) {
    const Variable staged("LAUNCHPAD_STAGED", "1");
    const auto train = [&](const std::string& output, long submission) {
        const Variable halves("VULKAN_BUDGET_HALVES", std::to_string(submission));
        return output_of(
            driver.run(args("-x 5 -n 1 -v 1 -m 1 -s 2 --device", device(),
                            "-e custom:layers=2,heads=2,channels=256,max_seq_len=32,vocab=67 -o", output)));
    };
    for (const char* heaps : {"70+70", "64+30"}) {
        const Variable memory("VULKAN_MEMORY", heaps);
        std::filesystem::remove_all(driver / "halved");
        const std::string all = train(driver / heaps, 1 << 30);
        const std::string half = train(driver / "halved", driver.calls().of["vkQueueSubmit2"] / 2);
        EXPECT_EQ(count_of(all, "other programs took memory"), 0) << all;
        EXPECT_EQ(count_of(half, "other programs took memory"), 1) << half;
        expect_same_files(driver / heaps, driver / "halved", 5);
    }
}

// A driver finds at a submission that it cannot provide the host's memory that it has granted. Of an update
// of several submissions, some may be executed then, and its parameters are not saved.
TEST_F(VulkanFaults, MemoryThatIsMissingAtASubmissionIsOneLine) {
    const SmallDevice small(256, 90, ":host");
    const Variable staged("LAUNCHPAD_STAGED", "1");
    setenv("LAUNCHPAD_SUBMISSION_MS", "0.01", 1);
    const Words command =
        args(program, "-i", driver.train, "-j", driver.val, "-e", one_layer,
             "-b 1 -t 8 -x 4 -n 2 --offload optimizer -v 0 -s 0 --device", device(), "-l 0.01");
    const auto train = [&](long call, const std::string& output) {
        return driver.run_with("vkQueueSubmit2", call, VK_ERROR_OUT_OF_HOST_MEMORY,
                               with(command, {"-o", driver / output}));
    };
    for (int run = 0; run < 2; run++)  // the second one with what the first one has stored
        expect_ok(train(0, "whole"));
    const long calls = driver.calls().of["vkQueueSubmit2"];
    int lost = 0;
    for (long call = calls - 120; call < calls - 4; call += 11) {
        SCOPED_TRACE(format_string("submission %ld of %ld", call, calls));
        std::filesystem::remove_all(driver / "run");
        const ProgramResult result = train(call, "run");
        if (result.status == 0) continue;  // it has fewer
        expect_one_line(result, "out of memory in vkQueueSubmit2: ", "--offload none");
        lost += result.err.find("are lost, and") != std::string::npos;
        if (list_checkpoints(driver / "run").empty()) continue;
        expect_ok(run_program("train_gpt2 -y 1 -o", driver / "run"));
        expect_same_files(driver / "whole", driver / "run", 4);
    }
    EXPECT_GT(lost, 0);
}

// One line each, whether the plan or an allocation finds that memory is short, in either mode.
TEST_F(VulkanFaults, TooLittleMemoryOfTheDeviceIsOneLine) {
    const std::string model = "custom:layers=2,heads=2,channels=256,max_seq_len=32,vocab=67";
    for (const bool staged : {false, true}) {
        const Variable setting("LAUNCHPAD_STAGED", staged ? "1" : "0");
        for (const int mib : {1, 4, 12, 20}) {  // at the start; parameters; gradients; the optimizer's state
            SCOPED_TRACE(format_string("%d MiB, staged %d", mib, staged));
            const SmallDevice small(mib, 64);
            const ProgramResult result = driver.run(args("-x 2 -v 0 -s 0 -e", model, "--device", device()));
            expect_one_line(result, "out of device memory on ");
            EXPECT_TRUE(driver.calls().fired);
        }
        const ProgramResult planned =
            driver.run(args("-x 2 -e custom:layers=12,heads=12,channels=768,max_seq_len=32,vocab=67 "
                            "--device-memory 900M -b 2 -t 32 --device",
                            device()));
        expect_one_line(planned, "out of memory: -b 2 ");
    }
}

// The plan knows how much of the host's memory the driver grants: the state of 18 MiB fits
// in 90, not in 16.
TEST_F(VulkanFaults, OffloadsNoMoreThanTheDriverGrants) {
    const Variable staged("LAUNCHPAD_STAGED", "1");
    const auto train = [&](int host_mib) {
        const SmallDevice small(256, host_mib, ":host");
        return driver.run(args("-x 2 -v 0 -s 0 --offload optimizer --device", device(),
                               "-e custom:layers=3,heads=2,channels=256,max_seq_len=32,vocab=67"));
    };
    expect_ok(train(90));
    expect_one_line(train(16), "of the host's memory in each process", "--offload none");
}

// The calls to fail in eval and generate: three of some functions, or all.
static std::set<long> some_calls(const std::string& function, long count) {
    std::set<long> calls;
    const std::set<std::string> tried = {"vkQueueSubmit2", "vkWaitSemaphores", "vkAllocateMemory"};
    for (long call = 1; all_calls && is_wanted(function) && call <= count; call++) calls.insert(call);
    if (!all_calls && tried.count(function)) calls = {1, count / 2, count};
    return calls;
}

TEST_F(VulkanFaults, EvalAndGenerateEndWithOneLine) {
    const std::string model = "custom:layers=1,heads=2,channels=24,max_seq_len=32,vocab=257";
    const std::vector<Words> commands = {
        args(bin("eval"), "-e", model, "-i", driver.val, "-b 2 -m 2 --device", device()),
        args(bin("generate"), "-e", model, "-n 4 text --device", device())};
    for (const Words& command : commands) {
        const std::string name = std::filesystem::path(command[0]).filename().string();
        const std::string undisturbed = output_of(run_program(command));
        int fired = 0;
        for (const auto& [function, count] : driver.calls().of)
            for (const long call : some_calls(function, count)) {
                SCOPED_TRACE(name + ", " + function + ", call " + std::to_string(call));
                const VkResult fault =
                    can_lose_device(function) ? VK_ERROR_DEVICE_LOST : VK_ERROR_OUT_OF_DEVICE_MEMORY;
                const ProgramResult result = driver.run_with(function, call, fault, command);
                ASSERT_TRUE(driver.calls().fired || all_calls);
                fired += driver.calls().fired;
                // 0: the fault came while memory was freed at the end
                EXPECT_TRUE(result.status == 1 || result.out == undisturbed) << result.out;
                // after the line that names the device
                EXPECT_EQ(
                    count_lines(result.err.substr(std::min(result.err.size(), result.err.find(name + ": ")))),
                    result.status)
                    << result.err;
            }
        printf("%s: %d faults\n", name.c_str(), fired);
        EXPECT_TRUE(fired >= 6 || all_calls);
    }
}
