// Memory that runs out in a reader: malloc() fails at each call in turn, once, or until operator new has
// failed. The reader throws std::bad_alloc or an Error, or does without the memory; it leaves no file open
// and works afterwards. Readers of JSON and options get small pieces from the reserve
// (reserve_memory()). About 100 calls of each reader are tested; MEMORY_FAULT_ALL=1 tests all.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <new>

#include "fuzz/seeds.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/data/dataloader.h"
#include "llmc/data/hellaswag.h"
#include "llmc/files/hugging_face.h"
#include "llmc/files/model_file.h"
#include "llmc/options/start_program.h"
#include "llmc/options/train_options.h"
#include "llmc/text/tokenizer.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

// Calls of malloc() and its relatives since arm(), which fail from number `first` to `last`.
static std::atomic<long> calls = 0, first_failing = 0, last_failing = 0;

static void arm(long first, long last) {
    calls = 0;
    first_failing = first;
    last_failing = last;
}

// Lets calls pass without counting anew.
static void disarm() { first_failing = last_failing = 0; }

// Requests of up to so many bytes are served when they are tried again, and larger ones are not.
static size_t served_bytes = 0, failed_bytes = 0;

// Called by operator new after a failure, as the reserve's handler: then there is memory for the way out.
static void make_room() {
    disarm();
    if (failed_bytes > served_bytes) throw std::bad_alloc();
}

#if defined(__GLIBC__) && !defined(SANITIZED)
#define HAS_FAILING_MALLOC
static bool fails(size_t bytes) {
    const long n = ++calls;
    if (n < first_failing || n > last_failing) return false;
    failed_bytes = bytes;
    errno = ENOMEM;
    return true;
}

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* malloc(size_t size) { return fails(size) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails(count * size) ? nullptr : __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) { return fails(size) ? nullptr : __libc_realloc(memory, size); }
}
#endif

static size_t open_files() {
    const std::filesystem::directory_iterator list("/proc/self/fd");
    return size_t(std::distance(begin(list), end(list)));
}

// A thread that reads ahead closes its file soon.
static bool closes_files(size_t before) {
    for (int wait = 0; wait < 1000; wait++) {
        if (open_files() <= before) return true;
        usleep(1000);
    }
    return false;
}

struct Outcomes {
    long calls = 0, runs = 0, refused = 0;
};

// Runs the reader with each of its calls failing, alone and with later ones. `read` returns what it read.
static Outcomes fail_each_call(const std::function<std::string()>& read) {
    const size_t files = open_files();
    const std::string expected = read();  // fills what is allocated once
    Outcomes outcomes;
    arm(0, 0);
    read();
    outcomes.calls = calls;
    const long every = getenv("MEMORY_FAULT_ALL") ? 1 : std::max(1l, outcomes.calls / 100);
    const long first = 1 + every / 2;
    std::set_new_handler(make_room);
    for (const bool and_later : {false, true})
        for (long n = first; n <= outcomes.calls; n += every) {
            std::string found = expected;
            bool refused = false;
            arm(n, and_later ? outcomes.calls + 1000 : n);
            try {
                found = read();
            } catch (const std::exception& error) {  // also errors of std::filesystem
                disarm();
                refused = true;
                EXPECT_EQ(count_lines(message_for(error)), 1) << message_for(error);
            }
            disarm();
            outcomes.runs++;
            outcomes.refused += refused;
            EXPECT_TRUE(found == expected) << "call " << n;
            EXPECT_TRUE(closes_files(files)) << "call " << n;
            if (testing::Test::HasFailure()) return outcomes;
        }
    EXPECT_EQ(read(), expected);
    return outcomes;
}

// The reader's name is printed with the counts. `served`: as served_bytes.
static void expect_errors(const char* name, const std::function<std::string()>& read, size_t served = 0) {
    SCOPED_TRACE(name);
    served_bytes = served;
    const Outcomes outcomes = fail_each_call(read);
    printf("%s: %ld calls of malloc, %ld of %ld runs refused\n", name, outcomes.calls, outcomes.refused,
           outcomes.runs);
    EXPECT_TRUE(served || outcomes.refused > 0);
}

struct MemoryFault : testing::Test {
    TemporaryFolder folder;
    void SetUp() override {
        omp_set_num_threads(1);
#ifndef HAS_FAILING_MALLOC
        GTEST_SKIP() << "malloc() cannot be replaced: not glibc, or a sanitizer's own";
#endif
    }
};

// Destructors of the JSON library allocate less where no exception may leave them.
static const size_t library_pieces = 1024;

static std::string text_of(const ModelConfig& config) {
    return format_string("%d %d %d", config.channels, config.num_layers, config.vocab_size);
}

TEST_F(MemoryFault, Models) {
    const std::string fp32 = folder / "fp32.bin", bf16 = folder / "bf16.bin";
    write_model(fp32, seed_config, fill_seed);
    write_model(bf16, seed_config, fill_seed, true);
    write_hugging_face(folder / "hf", seed_config, fill_seed);
    for (const std::string& path : {fp32, bf16, folder / "hf/model.safetensors"})
        expect_errors(
            path.c_str() + path.rfind('/') + 1,
            [&] {
                double sum = 0;
                read_model_file(path, [&](int, size_t, const float* values, size_t count) {
                    for (size_t i = 0; i < count; i++) sum += double(values[i]);
                });
                return text_of(read_model_file_header(path)) + format_string(" %f", sum);
            },
            path.ends_with(".bin") ? 0 : library_pieces);
}

TEST_F(MemoryFault, Checkpoints) {
    write_seed_checkpoint(folder / "run");
    expect_errors(
        "check_checkpoint", [&] { return check_checkpoint(folder / "run", seed_step); }, library_pieces);
    expect_errors("read_moments", [&] {
        double sum = 0;
        const std::string path = optimizer_path(folder / "run", seed_step);
        read_moments(path, seed_config, [&](Moment, int, size_t, const float* values, size_t count) {
            for (size_t i = 0; i < count; i++) sum += double(values[i]);
        });
        return format_string("%d %f", read_optimizer_state(path, seed_config).step, sum);
    });
    const std::string run = read_run(folder / "run", seed_step);
    expect_errors(
        "run_state_from_json", [&] { return run_state_to_json(run_state_from_json(run, "run.json")); },
        library_pieces);
}

// A checkpoint that cannot be written leaves no file.
TEST_F(MemoryFault, WritingACheckpoint) {
    const std::string run = folder / "run";
    create_folders(run);
    expect_errors(
        "write_checkpoint",
        [&] {
            struct Cleaner {
                const std::string& folder;
                ~Cleaner() {
                    disarm();
                    std::filesystem::remove_all(folder);
                    std::filesystem::create_directory(folder);
                }
            } cleaner = {run};
            try {
                write_seed_checkpoint(run);
            } catch (...) {
                disarm();
                const bool whole =
                    find_latest_checkpoint(run).step == seed_step;  // the error came after DONE
                EXPECT_TRUE(whole || std::filesystem::is_empty(run)) << names_in(run)[0];
                throw;
            }
            disarm();
            return read_run(run, seed_step);
        },
        library_pieces);
}

TEST_F(MemoryFault, Data) {
    std::vector<uint16_t> tokens;
    for (int i = 0; i < 90; i++) tokens.push_back(uint16_t(i * 7 % 257));
    write_token_shard(folder / "a.bin", tokens.data(), 40);
    write_token_shard(folder / "b.bin", tokens.data(), 90);
    expect_errors("open_token_shard", [&] { return open_token_shard(folder / "a.bin").checksum; });
    // made once: glob() of glibc 2.36 frees memory twice when memory runs out
    DataLoader loader(folder / "[ab].bin", 2, 5, 257, false, 1);
    expect_errors("next_batch", [&] {
        int inputs[10], targets[10];
        std::string text;
        loader.reset();
        for (int batch = 0; batch < 15; batch++) {
            loader.next_batch(inputs, targets);
            for (int token : targets) text += format_string("%d ", token);
        }
        return text;
    });
    write_hellaswag(folder / "hellaswag.bin",
                    {{3, {1, 2}, {{{3}, {4, 5}, {6}, {7, 8, 9}}}}, {0, {9}, {{{1}, {2}, {3}, {4}}}}});
    expect_errors("read_hellaswag",
                  [&] { return std::to_string(read_hellaswag(folder / "hellaswag.bin", 257).size()); });
}

TEST_F(MemoryFault, Tokenizers) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    for (const char* token : {"th", "the", " the", "in", "ing"}) tokenizer.tokens.push_back(token);
    write_tokenizer(tokenizer, folder / "tokenizer.bin");
    expect_errors("tokenizer", [&] {
        Tokenizer opened = open_tokenizer(folder / "tokenizer.bin");
        std::vector<uint16_t> tokens;
        opened.encode("the thing\xff in the ring", tokens);
        return std::to_string(tokens.size()) + opened.decode(tokens[0]);
    });
}

TEST_F(MemoryFault, Texts) {
    const std::string json =
        R"({"a": [1, 2.5, {"b": "text that is longer than a short string"}], "c": null})";
    expect_errors(
        "parse_json_object", [&] { return json_text(parse_json_object(json, "a.json")); }, library_pieces);
    write_whole_file(folder / "options.toml", {"train-data=\"a.bin\"\nmodel=\"d12\"\nbatch=3\n"});
    const std::string file = folder / "options.toml";
    expect_errors(
        "parse_options",
        [&] {
            std::string arguments[] = {"train_gpt2", "-i", "a.bin", "-e", "d12", "-x", "5"};
            std::vector<char*> argv;
            for (std::string& argument : arguments) argv.push_back(argument.data());
            argv.push_back(nullptr);
            Options options;
            parse_options(int(argv.size()) - 1, argv.data(), options);
            return options.train_data.at(0) + options.model + std::to_string(options.max_steps);
        },
        library_pieces);
}

TEST_F(MemoryFault, TheReserveServesTheFirstFailure) {
    const std::new_handler before = std::set_new_handler(nullptr);
    reserve_memory();
    const size_t large = 100;  // longer than a std::string stores in itself
    arm(1, 1);
    EXPECT_EQ(std::string(large, 'x').size(), large);
    arm(1, 1);
    EXPECT_THROW(std::string(large, 'x'), std::bad_alloc);
    disarm();
    std::set_new_handler(before);
}
