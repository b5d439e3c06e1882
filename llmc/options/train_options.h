// The options of train_gpt2: values, and the table of their names, meaning and limits. They come from the
// command line, from a file (--config) and, for a resumed run, from the file that the run wrote; what none of
// them says may be chosen (recipe.cpp, fit.h). The strongest source wins.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/files/stored_type.h"
#include "llmc/layers/sampler.h"
#include "llmc/model/ownership.h"
#include "llmc/model/schedulers.h"
#include "llmc/options/shared_options.h"
#include "llmc/text/text_reader.h"

enum class Offload { none, optimizer };  // optimizer: its state lies in the host's memory
enum class DryRun { no, yes, memory };   // memory: measures no time
// The horizontal axis of plots: steps, or the tokens or the seconds that a run had trained for.
enum class PlotOver { steps, tokens, seconds };

struct Options {
    Sources sources = {};                                     // of the values below
    std::vector<std::string> train_data = {}, val_data = {};  // patterns of shards
    std::string model = "", output = "", tokenizer = "", config = "";
    std::vector<std::string> text = {};  // files or folders to train on, or "stories"; empty: -i and -j
    TextOptions of_text = {};
    std::string device = "auto";
    std::vector<std::string> devices = {};  // for each, mpirun starts a process; empty: none are started
    uint64_t device_memory = 0;             // most bytes of the device's memory; 0: all
    MachineOptions machine = {};
    Schedule scheduler = Schedule::constant;
    StoredType precision = StoredType::fp32;
    OptimizerKind optimizer = OptimizerKind::adamw;
    int batch = 4;                   // 0: auto
    std::vector<double> share = {};  // of a step, relative to other processes; 0 or none: as speeds are
    int sequence = 1024, total_batch = -1, max_steps = -1, warmup = 0;
    double epochs = 0;   // length of the run if max_steps is -1; 0: one
    double minutes = 3;  // of training on a text, which decides what is not given
    float learning_rate = 3e-4f, final_fraction = 1.0f, weight_decay = 0.0f;
    float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;  // of AdamW
    float momentum = 0.9f;                               // of Muon
    float muon_learning_rate = 0;                        // peak; 0: learning_rate
    float gradient_clip = 1.0f;                          // largest norm; 0: not clipped
    float dropout = 0;                                   // rate; 0: none
    float skip_loss = 0, skip_gradient = 0;              // z-scores; 0: never
    int max_not_finite = 25;                             // updates in a row; then the run stops; 0: never
    int val_every = 20, val_batches = 20, sample_every = 20, sample_tokens = 64;
    int patience = 0;           // validations without a better one after which the run ends; 0: it does not
    int checkpoint_every = -1;  // steps; -1: at the end only; 0: never
    int keep_checkpoints = 0, major_checkpoint_every = 0;
    bool keep_best = true;
    int log_every = 1;  // steps between lines in a pipe or a file
    int recompute = 1;  // RECOMPUTE_GELU
    Offload offload = Offload::none;
    double timeout = 20;     // minutes that processes wait for one that makes no progress
    int ranks_per_node = 0;  // processes that share memory; 0: all of a machine
    SamplerOptions sampler = {};
    std::string hellaswag_file = "dev/data/hellaswag/hellaswag_val.bin";  // llm.c's
    std::vector<std::string> export_to = {};                              // a format and a path; empty: train
    std::vector<std::string> plotted = {};  // folders of runs to plot; empty: train
    PlotOver plot_over = PlotOver::steps;
    DryRun dry_run = DryRun::no;
    bool hellaswag = false, overfit = false, list_devices = false, self_test = false, profile = false,
         master_weights = true;
    bool resume = false, start_over = false, tensorboard = false;
    int retry_lost_device = 0;  // times
    uint64_t seed = 42;

    // Set before parsing: the processes that train together, and this one's number; whether a run that lost
    // its device resumes.
    int num_processes = 1, process_rank = 0;
    bool retries = false;
    // Set after parsing: the machines; whether the processes have unlike devices, and divide a step by their
    // speeds (division.h); how many of this machine use this one's device.
    int num_nodes = 1;
    bool knows_devices = num_processes == 1, is_divided = false;
    int batch_of_all = 0;  // sum of the -b of unlike processes; 0: not all of them give one
    int processes_on_device = 1;
    std::string expected_data = "";              // a dry run of --text: the tokens that the run would have
    std::vector<uint64_t> expected_tokens = {};  // and those of each source of a mixture
    std::vector<std::string> notes = {};  // lines to print: options without effect, from a file or chosen

    bool is_given(const auto& value) const { return sources.is_given(value); }
    // Sequences that the processes draw together: a micro-batch of each, or a step.
    int global_batch() const { return is_divided ? total_batch / sequence : batch * num_processes; }
    // Muon's learning rate, as a multiple of AdamW's.
    float muon_rate_over_adamw_rate() const {
        return muon_learning_rate > 0 && learning_rate > 0 ? muon_learning_rate / learning_rate : 1;
    }
    // Most batches of each source in a validation; -1: all.
    int val_batches_each(size_t num_sources) const {
        return val_batches < 0 ? -1 : std::max(1, val_batches / int(num_sources));
    }
    bool plans_only() const { return dry_run != DryRun::no; }
    bool plans_memory_only() const { return dry_run == DryRun::memory; }
    // For a device that need not be there.
    bool plans_device() const { return plans_memory_only() && device_memory; }
    bool exports() const { return !export_to.empty(); }
    bool offloads_optimizer() const { return offload == Offload::optimizer; }
    bool validates() const { return !val_data.empty() && val_every; }
    bool runs_hellaswag() const { return hellaswag && val_every; }
    bool saves() const { return !output.empty() && checkpoint_every; }
    bool saves_best() const { return keep_best && saves() && validates(); }
    bool is_stories() const { return text == std::vector<std::string>{"stories"}; }
    bool has_text() const { return !text.empty() && !is_stories(); }
    // Whether --text still has to prepare the tokens and choose the options.
    bool needs_tokens() const {
        return !text.empty() && !exports() && sources.of(&train_data) == Source::built_in;
    }
    // Whether -b, and -r unless it was given, may be chosen so that the run fits: see fit.h.
    bool may_choose_batch() const { return batch == 0 || (!is_given(batch) && !is_given(recompute)); }
};

// The rows of all options. `o` must outlive the table.
OptionTable option_table(Options& o);

// Fills the options from the command line and the files. Returns false after printing --help or --version.
// Throws Error, one line, if an option is unknown or a value is invalid. A run on a text (needs_tokens())
// then chooses options; everything else calls complete_options().
bool parse_options(int argc, char** argv, Options& o);

// Chooses what follows from other options. Error if options contradict each other.
void complete_options(Options& o);

// Error if -d does not fit -b, -t and the processes, whose devices are known.
void check_batch(const Options& o);

// Error if -t is more than the model has positions.
void check_sequence(const Options& o, const ModelConfig& config);

// Whether -e names a model that is trained already.
bool finetunes(const Options& o);

// Why a run saves nothing, as the end of a sentence. Only where saves() is false.
const char* why_nothing_is_saved(const Options& o);
