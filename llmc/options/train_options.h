// The options of train_gpt2: names, meaning, default values, limits. They come from the command line, from a
// file (--config) and, for a resumed run, from the file that the run wrote. The first of these that gives an
// option takes precedence.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/data/preparation.h"
#include "llmc/layers/sampler.h"
#include "llmc/model/ownership.h"

struct Options {
    std::string train_data, val_data, model, output, tokenizer, config;
    std::string device_memory = "all";  // or a size such as 8G
    std::string text;                   // file or folder to train on, or "stories"; empty: -i and -j
    TextOptions of_text;
    std::string device = "auto", scheduler = "cosine", precision = "fp32";
    std::string optimizer = "adamw";  // or muon
    int threads = 0;                  // CPU threads; 0: OMP_NUM_THREADS, or all cores
    int batch = 4;                    // 0: auto
    int sequence = 1024, total_batch = -1, max_steps = -1, warmup = 0;
    double epochs = 0;  // length of the run if max_steps is -1; 0: one
    float learning_rate = 3e-4f, final_fraction = 1.0f, weight_decay = 0.0f;
    float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;  // of AdamW
    float momentum = 0.95f;                              // of Muon
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
    int log_every = 1;             // steps between lines in a pipe or a file
    int recompute = 1;             // RECOMPUTE_GELU
    std::string offload = "none";  // or optimizer: its state lies in the host's memory
    int zero_stage = 1;            // 0 or 1: the optimizer's state is divided among the processes
    int ranks_per_node = 0;        // processes that share memory; 0: all of a machine
    SamplerOptions sampler;
    std::string hellaswag_file = "dev/data/hellaswag/hellaswag_val.bin";  // llm.c's
    std::pair<std::string, std::string> export_to;                        // "hf" and a folder; empty: train
    std::vector<std::string> plotted;  // folders of runs to plot; empty: train
    std::string plot_over = "steps";   // or tokens, seconds
    bool hellaswag = false;
    std::string dry_run_of = "false";  // "true", "memory" or "false"
    bool dry_run = false;
    bool plans_memory_only() const { return dry_run_of == "memory"; }
    // For a device that need not be there.
    bool plans_device() const { return plans_memory_only() && device_bytes(); }
    bool overfit = false, list_devices = false, profile = false, master_weights = true, resume = false;
    bool start_over = false;
    bool resume_unverified = false;  // accept a checkpoint without the run_%08d.json that the run had
    bool tensorboard = false;
    uint64_t seed = 42;

    // Set before parsing: the processes that train together, and this one's number.
    int num_processes = 1, process_rank = 0;
    int num_nodes = 1;                                          // machines; set after parsing
    int global_batch() const { return batch * num_processes; }  // sequences of a micro-batch in all processes

    OptimizerKind optimizer_kind() const { return optimizer_named(optimizer); }
    // Muon's learning rate, as a multiple of AdamW's.
    float muon_rate_over_adamw_rate() const {
        return muon_learning_rate > 0 && learning_rate > 0 ? muon_learning_rate / learning_rate : 1;
    }
    bool offloads_optimizer() const { return offload == "optimizer"; }
    bool validates() const { return !val_data.empty() && val_every; }
    bool saves() const { return !output.empty() && checkpoint_every; }
    bool saves_best() const { return keep_best && saves() && validates(); }

    bool needs_tokens = false;  // of --text: -i does not yet say where they are
    std::string expected_data;  // a dry run of --text: the tokens that the run would have; else empty
    bool batch_given = false;   // -b was given, as a number
    // Whether -b, and -r unless it was given, may be chosen so that the run fits: see fit.h.
    bool may_choose_batch() const { return batch == 0 || (!batch_given && !gives("recompute")); }
    uint64_t device_bytes() const;   // of --device-memory; 0: not given
    std::vector<std::string> notes;  // lines to print: options that have no effect or come from a file
    std::string given;               // every option that was given or read, a line each
    // Whether it was, by its long name without dashes.
    bool gives(const std::string& option) const {
        return ("\n" + given).find("\n--" + option + " ") != std::string::npos;
    }
    std::string effective;  // all options, in the format of --config, with absolute paths
};

// The peak learning rate that `--optimizer muon` takes for a new model of so many channels, through the tuned
// ones for 96 (0.005) and 768 channels (0.0036): docs/experiments.md.
double default_muon_learning_rate(int channels);

// Why a run saves nothing, as the end of a sentence. Only where saves() is false.
const char* why_nothing_is_saved(const Options& o);

// A line for each option that differs between two sets of effective options.
std::vector<std::string> changed_options(const std::string& before, const std::string& now);

// The options with absolute paths instead of those relative to a folder.
std::string with_absolute_paths(const std::string& effective, const std::string& folder);

// Writes another value of an option where a resumed run reads it, in o.effective.
void set_effective(Options& o, const std::string& name, const std::string& value);

// The file in a run's folder that holds its options.
std::string options_path(const std::string& output);

// Fills the options from the command line and the files, then from `chosen`, lines as in a file, which the
// notes repeat. Returns false after printing --help or --version. Throws Error, one line, if an option is
// unknown, a value is invalid or options contradict each other. If needs_tokens is set afterwards, the
// options are not complete: prepare the tokens, and parse again.
bool parse_options(int argc, char** argv, Options& options, const std::string& chosen = "");
