// Shared by the tests of training in several processes.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/distributed/communicator.h"
#include "llmc/files/checkpoint.h"
#include "tests/tiny_run.h"

// Of 6 sequences, so that 1, 2 and 3 processes divide it.
inline const int SEQUENCES = 6, STEPS = 20;

// Enough layers for gradients that are summed during the backward pass, and after it, and updated late.
inline const std::string five_layers = "custom:layers=5,heads=2,channels=24,max_seq_len=32,vocab=67";

struct Distributed : testing::Test {
    Data data;
    void SetUp() override {
        if (run_program({"env", "mpirun", "--version"}).status != 0)
            GTEST_SKIP() << "mpirun is not installed";
        if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
    }
    std::string folder(const std::string& name) { return data / name; }
    // Few targets count, and none in many sequences.
    void mask_data() {
        for (const std::string& path : {data.train, data.val}) {
            const std::vector<uint16_t> tokens = read_shard(path);
            std::vector<bool> targets;
            for (size_t i = 0; i < tokens.size(); i++) targets.push_back(i % 51 < 17 && i % 4 == 0);
            TokenShardWriter writer(path);
            writer.add(tokens.data(), tokens.size(), targets);
            writer.finish();
        }
    }
    // The program, unless `options` say otherwise on the CPU with one thread.
    Words trainer(int batch, const std::string& output, const Words& options) {
        const Words files = {program, "-i", data.train, "-j", data.val, "-o", folder(output)};
        const std::string usual = "-t 17 -v 10 -s 0 --threads 1 --device cpu -e " + five_layers;
        const Words sizes = {"-b", std::to_string(batch), "-x", std::to_string(STEPS)};
        return with(with(with(files, words_of(usual)), sizes), options);
    }
    inline static const Words launcher = words_of("env TERM=xterm " + std::string(WITHOUT_LEAK_CHECK) +
                                                  " OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
                                                  " mpirun --oversubscribe --bind-to none");
    // Trains with so many processes. `wrapper` is a command that runs the one behind it.
    ProgramResult start(int processes, const Words& options, const std::string& output,
                        const Words& wrapper = {}) {
        const Words command = with(launcher, {"-np", std::to_string(processes)});
        return run_program(with(wrapper, with(command, trainer(SEQUENCES / processes, output, options))));
    }
    // A command that runs the one behind it as $job, and `script` beside it.
    Words with_script(const std::string& script, const std::string& output,
                 const std::string& job = "timeout -k 5 100 \"$@\"") {
        return {"env",
                "OUTPUT=" + folder(output),
                "PROGRAM=" + program,
                "bash",
                "-uc",
                "after_step_9() { until grep -qs '^s:9 ' $OUTPUT/main.log; do sleep 0.1; done; }\n" + job +
                    " & job=$!\n" + script + "\nwait $job",
                "job"};
    }
    // A process of a job, with options of its own, and a command that runs the one behind it, or options of
    // mpirun for it.
    struct Member {
        Words options, wrapper = {};
    };
    ProgramResult start_each(const std::vector<Member>& members, const Words& options,
                             const std::string& output, const Words& wrapper = {}) {
        Words command = launcher;
        for (const Member& member : members) {
            if (&member != &members[0]) command.push_back(":");
            command.insert(command.end(), {"-np", "1"});
            command.insert(command.end(), member.wrapper.begin(), member.wrapper.end());
            const auto last = trainer(4, output, with(options, member.options));
            command.insert(command.end(), last.begin(), last.end());
        }
        return run_program(with(wrapper, command));
    }
    std::vector<double> train(int processes, const Words& options, const std::string& output) {
        const ProgramResult result = start(processes, options, output);
        EXPECT_EQ(result.status, 0) << result.err << result.out;
        return printed_losses(result.out);
    }
    // m and v of all parameters, from all files of the optimizer's state.
    std::vector<float> moments_after(const std::string& output, int step) {
        const ModelConfig config = read_model_header(model_path(folder(output), step));
        std::map<std::tuple<int, int, size_t>, float> found;
        read_all_moments(folder(output), step, config,
                         [&](Moment moment, int tensor, size_t offset, const float* values, size_t count) {
                             for (size_t i = 0; i < count; i++)
                                 found[{moment, tensor, offset + i}] = values[i];
                         });
        EXPECT_GE(found.size(), 2 * num_parameters(config));
        std::vector<float> all;
        for (const auto& [place, value] : found) all.push_back(value);
        return all;
    }
    std::string model_after(const std::string& output, int step) {
        return read_whole_file(folder(output) + format_string("/model_%08d.bin", step));
    }
};
