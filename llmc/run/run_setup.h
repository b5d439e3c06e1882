// Setting up a run: what it reads, checked before any device is opened, and its folder.
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "llmc/data/hellaswag.h"
#include "llmc/data/mixture.h"
#include "llmc/distributed/communicator.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_source.h"
#include "llmc/model/model_config.h"
#include "llmc/options/train_options.h"
#include "llmc/run/log.h"
#include "llmc/run/run_folder.h"
#include "llmc/run/run_state.h"
#include "llmc/text/tokenizer.h"

struct OptimizerOptions;

// Where a run starts: at a checkpoint, or at step 0.
struct Start {
    std::string folder = {};  // of the run; empty: nothing is written
    int step = 0;
    bool continues = false;  // -y 1, also if there is no checkpoint yet
    bool resumed = false;
    OptimizerState optimizer = {};
    RunState state = {};
    ExtraCheckpoints extra = {};  // in the folder of the resumed run
};

struct RunLength {
    int micro_steps = 1;  // micro-batches that a step accumulates
    int tokens_per_step = 0;
    int first_step = 0, max_steps = 0;
    int steps_left() const { return max_steps - first_step; }
};

// Of the shards that a run reads.
struct DataPatterns {
    std::vector<std::string> train = {}, val = {};
    std::vector<double> shares = {};  // of the sources of a mixture; empty: one source
};

struct RunInputs {
    ModelSource model;                            // of -e, or the checkpoint that is resumed
    std::optional<Tokenizer> tokenizer;           // none: samples are printed as token numbers
    std::optional<TokenizerInfo> made_with = {};  // the tokenizer of the training data; none: unknown
    bool data_names_tokenizer = false;
    Start start;
    ModelConfig config;
    DataPatterns data = {};
    std::vector<DataLoader> val = {};        // of each source of a mixture, else at most one
    std::string hellaswag_file;              // empty: HellaSwag is not evaluated
    std::vector<HellaSwagExample> examples;  // in that file
    std::optional<Mixture> loader = {};      // at the position where the run starts; none: --dry-run only
    RunLength length = {};
    Division division = {};  // of a step

    // The tokens that the run has trained on before `step`, which it has reached or will reach.
    uint64_t tokens_before(int step) const {
        const uint64_t per_step = uint64_t(length.tokens_per_step);
        return start.state.tokens.value_or(uint64_t(start.step) * per_step) +
               uint64_t(step - start.step) * per_step;
    }
};

// Locks the output folder, unless this is a dry run, and opens everything that the options name. Prints notes
// about the checkpoint. Throws Error if anything is missing, broken or does not fit the rest. All processes
// of the job call it. Leaves the data closed if -b is still to be chosen: then call open_data() after that.
RunInputs open_inputs(const Options& o, RunFolder& folder, Communicator& job, Verify verify = Verify::now);

// Tokens in the training or the validation data, whichever has fewer, of the data that is named. Reads the
// headers only. Error if a pattern matches no shard.
uint64_t fewest_tokens(const DataPatterns& data);

// Opens the training and validation data for batches of -b, and computes the length of the run.
void open_data(const Options& o, RunInputs& inputs, bool is_first_process);

// The tokens that a validation reads, whose last batch may be filled up with the first ones.
uint64_t validation_tokens(const Options& o, const std::vector<DataLoader>& val);

// Bits per byte of a validation of each source whose loss is 1 nat per token; NaN: no tokenizer tells the
// bytes of its tokens. Reads the tokens.
std::vector<double> bits_per_nat(const Options& o, RunInputs& inputs);

// The mean of a value of each source of validation data, by their shares of the mixture.
double mean_over_sources(const RunInputs& inputs, const std::function<double(size_t)>& value);

// The hyperparameters of the optimizer.
OptimizerOptions optimizer_options(const Options& o);

// The run begins, once model, tokenizer, memory, device and kernels work. Unless it continues, it checks that
// the disk has room, an earlier run in the folder -o moves aside, and staged tokens take their place, from
// which the data are opened again.
// `share` is the part of the optimizer's state that each process writes. Collective.
void take_folder(Options& o, RunInputs& inputs, const OptimizerShare& share, const Lease& lease,
                 Communicator& job);

// Prepares the folder -o, if there is one: opens the logs, which a resumed run continues at its first step if
// there is room, and writes the options.
void begin_output(const Options& o, const RunInputs& inputs, const OptimizerShare& share, MainLog& log);

// Copies the tokenizer to the run's folder. Returns what a checkpoint records of it; "" if it is unknown.
std::string recorded_tokenizer(const RunInputs& inputs);
