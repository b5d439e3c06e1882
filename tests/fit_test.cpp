// Whether runs fit in memory: what is chosen fits, and what is advised is accepted.
#include "llmc/run/fit.h"

#include <gtest/gtest.h>

#include <sstream>

#include "llmc/base/file.h"
#include "llmc/options/option_files.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static const uint64_t no_limit = ~uint64_t(0);

static Options parsed(const Words& arguments, int processes = 1) {
    Words all = {"train_gpt2", "--dry-run=memory"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    Options o = {.num_processes = processes};
    EXPECT_TRUE(parse_options(int(argv.size()), argv.data(), o));
    return o;
}

// Like that of a model: a part for parameters, and one for activations, which recomputation makes smaller.
static MemoryNeed model_need(const RunShape& s, bool is_fp32, bool master) {
    const uint64_t activations[] = {100, 80, 60, 10};
    const bool halves = s.in_bf16 || !is_fp32;
    const uint64_t per_token = activations[s.recompute], tokens = uint64_t(s.B) * uint64_t(s.T);
    const uint64_t state = 20000 * (halves && master && !s.no_master ? 12 : 8);
    const uint64_t parameters = 20000 * (halves ? 4 : 8);
    const uint64_t bytes = parameters + per_token * tokens * (halves ? 2 : 4);
    return {s.offload ? bytes : bytes + state, per_token * tokens, "", s.offload ? state : 0};
}

// host: bytes that can be offloaded to; 0: the device has no memory of its own.
static MemoryCheck check_of(const Options& o, uint64_t bytes, uint64_t largest = ~uint64_t(0),
                            uint64_t host = 0) {
    return {[is_fp32 = o.precision == StoredType::fp32, master = o.master_weights](const RunShape& shape) {
                return model_need(shape, is_fp32, master);
            },
            {bytes, largest, "the card", o.num_processes, host},
            nullptr,
            host > 0};
}

static std::string message(const Options& o, uint64_t bytes, uint64_t largest = ~uint64_t(0),
                           uint64_t host = 0) {
    return message_of([&] { check_memory(check_of(o, bytes, largest, host), o); });
}

// The options in a message: after "; use ", separated by ", or ".
static Words advices_in(const std::string& text) {
    const size_t start = text.find("; use ");
    if (start == std::string::npos) return {};
    Words advices;
    std::string rest = text.substr(start + 6);
    for (size_t end; (end = rest.find(", or ")) != std::string::npos; rest = rest.substr(end + 5))
        advices.push_back(rest.substr(0, end));
    advices.push_back(rest);
    return advices;
}

struct Case {
    Words arguments;
    int processes;
};
static const std::vector<Case> cases = {
    {{"-b", "512", "-t", "64"}, 1},
    {{"-b", "512", "-t", "64"}, 2},
    {{"-b", "513", "-t", "64", "-d", "98496"}, 3},
    {{"-b", "7", "-t", "96", "-r", "0"}, 1},
    {{"-b", "64", "-t", "64", "-d", "524288"}, 4},
    {{"-b", "64", "-t", "64", "-d", "524288", "--precision", "bf16"}, 1},
    {{"-b", "64", "-t", "64", "-r", "3", "--precision", "fp16"}, 1},
    {{"-b", "1", "-t", "1000", "-d", "3000", "-r", "2"}, 1},
    {{"-b", "1", "-t", "1024", "-w", "0", "--precision", "bf16"}, 2},
    {{"-b", "1048576", "-t", "1024"}, 1},
    {{"-b", "1048576", "-t", "1"}, 1},
    {{"-t", "64"}, 1},
    {{"-b", "16", "-t", "64", "--offload", "optimizer"}, 1},
    {{"-t", "64", "-b", "auto"}, 1},
    {{"-t", "64", "-b", "auto", "-d", "65536", "--precision", "fp16"}, 2},
    {{"-t", "64", "-b", "auto", "-r", "1"}, 1},
    {{"-t", "64", "-b", "auto", "--offload", "none"}, 1},
};
static const std::vector<uint64_t> rooms = {1000,   200000,  300000,  330000,   400000,    500000,
                                            700000, 1000000, 2000000, 10000000, 100000000, uint64_t(1) << 40};

TEST(Fit, WhatIsAdvisedIsAccepted) {
    int advised = 0, refused = 0;
    // Of a run as train_gpt2 plans it: with what it chooses itself.
    const auto problem_of = [](Options o, uint64_t room, uint64_t largest, uint64_t host) {
        if (o.may_choose_batch()) choose_fit(o, check_of(o, room, largest, host), ~uint64_t(0));
        return message(o, room, largest, host);
    };
    for (const Case& c : cases)
        for (const uint64_t room : rooms)
            for (const auto& [largest, host] : std::vector<std::pair<uint64_t, uint64_t>>{
                     {~uint64_t(0), 0}, {room / 4, 0}, {60000, 0}, {room, 170000}, {room, 1000000}}) {
                const std::string problem = problem_of(parsed(c.arguments, c.processes), room, largest, host);
                refused += !problem.empty();
                for (const std::string& advice : advices_in(problem)) {
                    SCOPED_TRACE(problem);
                    const Words again = with(c.arguments, words_of(advice));
                    Options o;
                    EXPECT_EQ(message_of([&] { o = parsed(again, c.processes); }), "");
                    EXPECT_EQ(problem_of(o, room, largest, host), "");
                    advised++;
                }
            }
    EXPECT_GT(advised, 100);
    EXPECT_GT(refused, 150);
}

// A tight room, in which each message advises something else.
TEST(Fit, AdviceKeepsTheStepsAndIsTheFastest) {
    const auto advice = [](const Words& arguments, uint64_t room) {
        const std::string text = message(parsed(arguments), room);
        const size_t start = text.find("; ");
        return start == std::string::npos ? text : text.substr(start + 2);
    };
    EXPECT_EQ(advice({"-b", "16", "-t", "64"}, 700000), "");
    EXPECT_EQ(advice({"-b", "16", "-t", "64"}, 600000), "use -r 2, or --precision bf16");
    EXPECT_EQ(advice({"-b", "64", "-t", "64"}, 600000), "use -r 3");
    EXPECT_EQ(advice({"-b", "64", "-t", "64"}, 400000), "use -b 16 -r 3 -d 4096");
    EXPECT_EQ(advice({"-b", "16", "-t", "64", "-d", "4096"}, 330000), "use -b 2 -r 3");
    EXPECT_EQ(advice({"-b", "64", "-t", "64"}, 321000), "use --precision bf16 -t 32 -b 1 -r 3 -d 4096");
    EXPECT_EQ(advice({"-b", "64", "-t", "64", "--precision", "bf16"}, 260000), "use -w 0 -b 8 -r 3 -d 4096");
    EXPECT_EQ(advice({"-b", "64", "-t", "64"}, 1000), "not even one sequence fits: use a smaller model (-e)");
    Options unlike = parsed({"-b", "64", "-t", "64", "-d", "8192"}, 2);
    unlike.is_divided = true;
    EXPECT_TRUE(contains(message(unlike, 1000), "leave this device out of the job, or use a smaller model"));
}

TEST(Fit, NamesWhatIsMissing) {
    const std::string bytes = message(parsed({"-b", "16", "-t", "64"}, 4), 4 * 500000);
    EXPECT_TRUE(
        contains(bytes, "-b 16 -r 1 needs 0.6 MiB in each of 4 processes, and the card has 1.9 MiB free"));
    const std::string piece = message(parsed({"-b", "16", "-t", "64"}), 1 << 30, 50000);
    EXPECT_TRUE(contains(piece, "needs one allocation of "));
}

TEST(Fit, ProcessesOfADeviceDivideItsMemory) {
    EXPECT_EQ(message(parsed({"-b", "16", "-t", "64"}, 1), 700000), "");
    EXPECT_NE(message(parsed({"-b", "16", "-t", "64"}, 2), 700000), "");
    EXPECT_EQ(message(parsed({"-b", "16", "-t", "64"}, 2), 1400000), "");
}

// As run_plan's, with a need of 10 per sequence.
static int largest(const Words& arguments, uint64_t bytes, uint64_t piece, int processes) {
    MemoryCheck memory;
    memory.need = [](const RunShape& s) {
        return MemoryNeed{100 + 10 * uint64_t(s.B), 10 * uint64_t(s.B), ""};
    };
    memory.room = {bytes, piece, "the card", 1};
    return largest_batch(memory, parsed(arguments, processes));
}

TEST(Fit, LargestBatch) {
    const Words free = {"-t", "16"}, divisor = {"-t", "16", "-b", "1", "-d", "1600"};
    EXPECT_EQ(largest(free, 109, no_limit, 1), 0);
    EXPECT_EQ(largest(free, 110, no_limit, 1), 1);
    EXPECT_EQ(largest(free, 120, no_limit, 1), 2);
    EXPECT_EQ(largest(free, 100 + 10 * 777 + 9, no_limit, 1), 777);
    EXPECT_EQ(largest(free, 100 + 10 * 777, 500, 1), 50);
    EXPECT_EQ(largest(free, no_limit, no_limit, 1), (1 << 30) / 16);
    EXPECT_EQ(largest(free, no_limit, no_limit, 3), (1 << 30) / 48);
    EXPECT_EQ(largest(divisor, 109, no_limit, 1), 0);
    EXPECT_EQ(largest(divisor, 499, no_limit, 1), 25);
    EXPECT_EQ(largest(divisor, no_limit, no_limit, 1), 100);
    EXPECT_EQ(largest(divisor, no_limit, no_limit, 4), 25);
}

// --- the choice ---

TEST(Fit, ChoosesTheFastestThatFits) {
    struct Chosen {
        int batch, recompute, total;
    };
    const auto choice = [](const Words& arguments, uint64_t room, uint64_t tokens = no_limit) {
        Options o = parsed(arguments);
        choose_fit(o, check_of(o, room), tokens);
        EXPECT_EQ(message(o, room), "");
        for (const auto& [name, value] :
             std::vector<std::pair<std::string, int>>{{"batch-size", o.batch}, {"recompute", o.recompute}})
            EXPECT_TRUE(contains(options_text(o), "\n" + name + "=" + std::to_string(value) + "\n"));
        return std::vector<int>{o.batch, o.recompute, o.total_batch};
    };
    using Values = std::vector<int>;
    const uint64_t much = uint64_t(1) << 40;
    EXPECT_EQ(choice({"-t", "64"}, much), (Values{4, 1, -1}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto"}, much), (Values{4, 0, 256}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "524288"}, much), (Values{1024, 0, 524288}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "524288", "-r", "2"}, much), (Values{1024, 2, 524288}));
    EXPECT_EQ(choice({"-t", "64"}, 350000), (Values{4, 3, 256}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "6400"}, 400000), (Values{25, 3, 6400}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "6400", "-r", "1"}, 400000), (Values{2, 1, 6400}));
    // a batch needs B*T tokens and one more
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "6400"}, much, 3201), (Values{50, 0, 6400}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "6400"}, much, 3200), (Values{25, 0, 6400}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "6400"}, much, 64), (Values{1, 0, 6400}));
    EXPECT_EQ(choice({"-t", "64", "-b", "auto", "-d", "6400"}, much, 0), (Values{1, 0, 6400}));
}

TEST(Fit, OffloadsIfNothingElseFitsOrStepsAreLong) {
    const auto choice = [](const Words& more, uint64_t room, uint64_t host, const char* step = "4096") {
        Words arguments = {"-t", "64", "--precision", "bf16", "-d", step, "-b", "auto"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        Options o = parsed(arguments);
        choose_fit(o, check_of(o, room, ~uint64_t(0), host), no_limit);
        const bool fits = message(o, room, ~uint64_t(0), host).empty();
        EXPECT_EQ(options_text(o).find("offload=\"optimizer\"") != std::string::npos, o.offloads_optimizer());
        return std::pair(fits, o.offload);
    };
    using Choice = std::pair<bool, Offload>;
    EXPECT_EQ(choice({}, 345000, 1000000), Choice(true, Offload::none));
    EXPECT_EQ(choice({}, 300000, 1000000), Choice(true, Offload::optimizer));
    EXPECT_EQ(choice({}, 300000, 200000), Choice(false, Offload::optimizer));
    EXPECT_EQ(choice({}, 300000, 0), Choice(false, Offload::none));
    EXPECT_EQ(choice({"--offload", "none"}, 300000, 1000000), Choice(false, Offload::none));
    EXPECT_EQ(choice({"--offload", "optimizer"}, 400000, 1000000), Choice(true, Offload::optimizer));
    // larger batches gain more than the update loses
    EXPECT_EQ(choice({}, 345000, 1000000, "524288"), Choice(true, Offload::optimizer));
    EXPECT_EQ(choice({}, 345000, 200000, "524288"), Choice(true, Offload::none));
    EXPECT_EQ(choice({}, 2000000, 1000000, "524288"), Choice(true, Offload::none));
}

TEST(Fit, LeavesWhatWasChosen) {
    for (const Words& given : {Words{"-b", "64"}, {"-r", "1"}, {"-b", "64", "-r", "1"}})
        EXPECT_FALSE(parsed(given).may_choose_batch());
    EXPECT_TRUE(parsed({}).may_choose_batch());
    EXPECT_TRUE(parsed({"-b", "auto", "-r", "1"}).may_choose_batch());
}

// If nothing fits, the error is about the least that was tried.
TEST(Fit, SaysWhatAutoLacks) {
    Options o = parsed({"-t", "64", "-b", "auto", "--precision", "bf16", "-w", "0"});
    choose_fit(o, check_of(o, 1000), no_limit);
    const std::string text = message(o, 1000);
    EXPECT_TRUE(contains(text, "-b 1 -r 3 needs"));
}

// The table of docs/devices.md is what its command prints.
TEST(Fit, TheTableOfWhatFits) {
    const std::string page = read_whole_file(SOURCE_DIR "/docs/devices.md");
    const std::string result =
        output_of(run_program({"env", "BUILD=" BINARY_DIR, SOURCE_DIR "/dev/what_fits.sh", "6", "8", "24"}));
    std::istringstream lines(result);
    int count = 0;
    for (std::string line; std::getline(lines, line); count++)
        EXPECT_TRUE(contains(page, "\n" + line + "\n")) << line;
    EXPECT_EQ(count, 5);
    for (const char* wrong : {"8x", "-8", "0", "--help", "1.5"}) {
        const ProgramResult refused =
            run_program({"env", "BUILD=" BINARY_DIR, SOURCE_DIR "/dev/what_fits.sh", "8", wrong});
        EXPECT_EQ(refused.status, 1) << wrong;
        EXPECT_EQ(refused.out, "") << wrong;
        EXPECT_EQ(count_lines(refused.err), 1) << refused.err;
    }
}

TEST(Fit, ADeviceThatIsNotThere) {
    const MemoryRoom room = room_of_device(uint64_t(8) << 30);
    EXPECT_LT(room.bytes, uint64_t(8) << 30);
    EXPECT_GT(room.bytes, uint64_t(7) << 30);
    EXPECT_EQ(parsed({"--device-memory", "7.5G"}).device_memory, uint64_t(7680) << 20);
    EXPECT_EQ(parsed({"--device-memory", "900MiB"}).device_memory, uint64_t(900) << 20);
    EXPECT_EQ(parsed({"--device-memory", "2048k"}).device_memory, uint64_t(2) << 20);
    EXPECT_EQ(parsed({"--device-memory", "all"}).device_memory, 0u);
    for (const char* wrong : {"8", "8X", "", "-1G", "1e3G", "G", "0.5K", "1023K", "2000T", "8 G", "0x8G"})
        EXPECT_NE(message_of([&] { parsed({"--device-memory", wrong}); }), "") << wrong;
}
