// llm.c's optimizer state, state_%08d_%05d.bin: a header of 256 int32, then the moments and master weights,
// then the order of the data. A run with ZeRO stage 1 writes one file per process. Field 40 of the header,
// which llm.c ignores, says whether the file has all moments (1) or a part of them (2); if it is 0, the
// file's length decides.
#pragma once
#include "llmc/data/data_position.h"
#include "llmc/files/sealed_file.h"
#include "llmc/model/model_config.h"

// llm.c's optimizer state without the moments.
struct OptimizerState {
    bool use_master_weights = false;  // fp32 weights follow the moments in the file
    int step = 0;
    // State of llm.c's generator for stochastic rounding, now and before the last update. Its seed, unless
    // read from a file; never 0, where the generator would get stuck.
    uint64_t rng_state = 13371337, rng_state_last_update = 13371337;
    DataPosition data;
    // Whose moments are in the file (ZeRO stage 1): those of what this process owns.
    OptimizerShare share;
};

// The optimizer state has one value of each moment per parameter, stored in model order.
using WriteMoment =
    std::function<void(Moment moment, int tensor, size_t offset, const float* values, size_t count)>;
using ReadMoment = std::function<void(Moment moment, int tensor, size_t offset, float* values, size_t count)>;

// Reads everything but the moments. Error if the file does not belong to this model or is damaged.
OptimizerState read_optimizer_state(const std::string& path, const ModelConfig& config);

// The same without the order of the data, which is not read.
OptimizerState read_optimizer_header(const std::string& path, const ModelConfig& config);

// Checks the file as above, then passes the file's part of m, v and, if it has them, master weights to
// `write`. Error, naming the tensor, if a value is NaN or infinite. Returns everything else.
OptimizerState read_moments(const std::string& path, const ModelConfig& config, const WriteMoment& write);

// The same for the moments that one process owns. It reads nothing else, and only the header of a file that
// has none of them. A file that it reads as a whole is compared with the seal, unless that is null.
OptimizerState read_own_moments(const std::string& path, const ModelConfig& config,
                                const OptimizerShare& reader, const WriteMoment& write, const FileSeal* seal);

FileSeal write_optimizer_state(const std::string& path, const ModelConfig& config,
                               const OptimizerState& state, const ReadMoment& read);

// Bytes that a part of the moments takes in its file.
uint64_t moment_bytes(const ModelConfig& config, bool use_master_weights, const OptimizerShare& share = {});
