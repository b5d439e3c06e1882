// Shared by the tests of the trainer: data for a tiny model, the devices to test, and runs of the program.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

// Idle threads block instead of spinning: on a busy machine these small models would lose most of their time.
inline const int patient_threads = setenv("OMP_WAIT_POLICY", "passive", 1);

inline const std::string program = BINARY_DIR "/train_gpt2";
inline const std::string tiny = "custom:layers=2,heads=2,channels=24,max_seq_len=32,vocab=67";

inline void write_tokens(const std::string& path, size_t count, int vocab) {
    std::vector<uint16_t> tokens(count);
    for (size_t i = 0; i < count; i++)
        tokens[i] = uint16_t((i * 5 + i / 9 % 3) % size_t(vocab));  // learnable
    write_token_shard(path, tokens.data(), count);
}

// The files that do not hold times or the folder's name.
inline std::set<std::string> files_of(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name != "metrics.csv" && name != "options.toml") names.insert(name);
    }
    return names;
}

inline std::string device() {  // chosen as in the layer tests
    const char* name = getenv("LLMC_TEST_DEVICE");
    return name && *name ? name : "0";
}

struct Data : TemporaryFolder {
    std::string train = *this / "train.bin", val = *this / "val.bin";
    Data() {
        write_tokens(train, 4000, 67);
        write_tokens(val, 700, 67);
    }
    ProgramResult run(const Words& options, const SendSignal& signal = {}) const {
        return run_program(
            with({program, "-i", train, "-j", val, "-e", tiny, "-b", "3", "-t", "17"}, options), signal);
    }
    std::vector<double> losses(const std::string& output) const {  // from main.log's training lines
        std::ifstream log(output + "/main.log");
        std::vector<double> found;
        for (std::string line; std::getline(log, line);) {
            int step;
            double loss;
            if (sscanf(line.c_str(), "s:%d trl:%lf", &step, &loss) == 2) found.push_back(loss);
        }
        return found;
    }
};

// The checkpoints of two runs at a step.
inline void expect_bit_identical(const std::string& a, const std::string& b, int step) {
    for (const auto path : {model_path, optimizer_path})
        EXPECT_TRUE(read_whole_file(path(a, step)) == read_whole_file(path(b, step))) << path(b, step);
}

struct WithData : testing::Test {
    Data data;
};

inline ProgramResult resume(const std::string& folder, const Words& options = {}) {
    return run_program(with({program, "-y", "1", "-o", folder}, options));
}

// A command whose calls for files below `watched` fail as the settings say, such as "FILE_FAULT=any:3:EIO":
// tests/file_fault.cpp.
inline Words faulty(const std::string& watched, const Words& settings, const Words& command) {
    const Words env = {"env", "LD_PRELOAD=" BINARY_DIR "/libfile_fault.so",
                       "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0",
                       "FILE_FAULT_FOLDER=" + watched};
    return with(with(env, settings), command);
}

inline Words devices() { return device() == "none" ? Words{"cpu"} : Words{"cpu", device()}; }
