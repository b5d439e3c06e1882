// llm.c's checkpoint files, exact to the byte: model_%08d.bin (versions 3 = fp32 and 5 = bf16), the optimizer
// state state_%08d_%05d.bin, and the empty DONE_%08d that says both are complete. Layout: 256 int32 of
// header, then tensors, little-endian. Beside them run_%08d.json, which llm.c does not look at: what else a
// run must know to go on exactly, and the lengths and checksums (XXH3, 64 bits) of the other two files and of
// itself. Every file is written under a temporary name, flushed to disk and renamed; every file is checked
// whole (magic, version, shape, exact length) before anything is allocated from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/dataloader.h"
#include "llmc/model_config.h"

// The shape of the model in the file. Error if it is no llm.c checkpoint or its length is not exactly right.
ModelConfig read_model_header(const std::string& path);

// Hands all tensors to `write`, as floats; the file is checked first as read_model_header does.
void read_model(const std::string& path, const WriteTensor& write);

// in_bf16 rounds to nearest even and writes version 5; else version 3 is written.
void write_model(const std::string& path, const ModelConfig& config, const ReadTensor& read,
                 bool in_bf16 = false);

// All of llm.c's optimizer state but the moments themselves.
struct OptimizerState {
    bool use_master_weights = false;  // fp32 weights follow the moments in the file
    int step = 0;
    // llm.c's generator for stochastic rounding, now and before the last update: its seed, unless read from a
    // file (never 0, which that generator cannot leave).
    uint64_t rng_state = 13371337, rng_state_last_update = 13371337;
    DataPosition data;
};

// The parts of the optimizer state that have one value per parameter; each lies in the file in model order.
enum Moment { MOMENT_M, MOMENT_V, MASTER_WEIGHTS };
using WriteMoment =
    std::function<void(Moment moment, int tensor, size_t offset, const float* values, size_t count)>;
using ReadMoment = std::function<void(Moment moment, int tensor, size_t offset, float* values, size_t count)>;

// Everything but the moments. Error if the file does not belong to this model, was written by a run of
// several processes, or is damaged.
OptimizerState read_optimizer_state(const std::string& path, const ModelConfig& config);

// Hands m, v and, where the file has them, master weights to `write`; checked first as above.
void read_moments(const std::string& path, const ModelConfig& config, const WriteMoment& write);

void write_optimizer_state(const std::string& path, const ModelConfig& config, const OptimizerState& state,
                           const ReadMoment& read);

// File names of a checkpoint in directory dir.
std::string model_path(const std::string& dir, int step);
std::string optimizer_path(const std::string& dir, int step);
std::string done_path(const std::string& dir, int step);
std::string run_path(const std::string& dir, int step);

// A whole checkpoint of state.step: creates dir, withdraws an older DONE of the same step, writes the model,
// the state, the run (a JSON object, given as text), and last DONE.
void write_checkpoint(const std::string& dir, const ModelConfig& config, const OptimizerState& state,
                      const ReadTensor& read_tensor, const ReadMoment& read_moment, bool in_bf16 = false,
                      const std::string& run = "{}");

// Steps of the checkpoints in dir that have DONE, newest first; empty if dir does not exist.
std::vector<int> list_checkpoints(const std::string& dir);

// Error, naming the file and what is wrong with it, unless all files of the checkpoint are what was written.
// Without run_%08d.json (llm.c writes none) there are no checksums, and headers and lengths alone are
// checked. Returns the run's JSON text, empty where there is none.
std::string check_checkpoint(const std::string& dir, int step);

// The newest good checkpoint.
struct FoundCheckpoint {
    int step = -1;                    // -1: there is none
    std::string run;                  // as check_checkpoint() returns it
    std::vector<std::string> broken;  // a line for each newer one, which names it and what is wrong
};
FoundCheckpoint find_latest_checkpoint(const std::string& dir);

// Removes DONE first, so that no DONE ever stands without its files. Missing files are no error.
void delete_checkpoint(const std::string& dir, int step);
