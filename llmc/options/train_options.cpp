#include "llmc/options/train_options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/precision.h"
#include "llmc/base/system_files.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_source.h"
#include "llmc/files/stored_type.h"
#include "llmc/options/command_line.h"
#include "llmc/options/option_checks.h"
#include "llmc/options/option_lines.h"
#include "llmc/options/recipe.h"
#include "llmc/options/shared_options.h"
#include "llmc/options/version.h"
#include "llmc/text/bpe_trainer.h"
#include "llmc/text/text_file.h"

static const char* launcher_starts = "mpirun or srun starts the processes";

// Options that the parser does not know as llm.c spells them: it would read a two-letter flag as a one-letter
// flag and its value.
struct LlmcOption {
    const char *flag, *name;
    const char* why = nullptr;  // it is accepted, and has no effect here; null: it has
};
static const LlmcOption llmc_options[] = {
    {"-nk", "--keep-checkpoints"},
    {"-nm", "--major-checkpoint-every"},
    {"-sl", "--skip-loss-outliers"},
    {"-sg", "--skip-gradient-outliers"},
    {"-pn", "--num-processes"},
    {"-pr", "--process-rank"},
    {"-f", "--tf32", "fp32 is never reduced; --precision bf16 or fp16 is faster"},
    {"-ge", "--gelu-fusion", "GELU is always fused into the GEMM before it"},
    {"-lg", "--device-line-every", "use the device's own tools, such as nvidia-smi"},
    {"-pg", "--gpus-per-node", launcher_starts},
    {"-pi", "--init-method", launcher_starts},
    {"-ps", "--server-ip", launcher_starts},
    {"-pf", "--shared-folder", launcher_starts},
};

// llm.c's options for jobs, which must agree with the job.
struct LlmcJob {
    int num_processes = -1, process_rank = -1;
};

static void add_data_options(CLI::App& app, Options& o) {
    app.option_defaults()->group("Data and model");
    add(app, "-i,--train-data", o.train_data, home_path(),
        "training tokens: llm.c shards, a file or a quoted glob pattern");
    add(app, "-j,--val-data", o.val_data, home_path(), "validation tokens, in the same form");
    add(app, "--text", o.text, home_path(),
        "instead of -i and -j: train on this text file or folder, or on 'stories', a generated corpus; "
        "tokens, model and all options that are not given follow from the text, -o is runs/NAME-text, and "
        "the end is a sample and a plot of the loss");
    add(app, "-e,--model", o.model, home_path(),
        "model: a run's folder (its best checkpoint; FOLDER:last: its newest), an llm.c checkpoint (.bin), a "
        "Hugging Face folder or model.safetensors, or a new model: d6 d12 ... d48, gpt3:c768 ..., "
        "custom:layers=4,heads=4,channels=128,max_seq_len=256; a new model takes its vocabulary from the "
        "data unless vocab= or --tokenizer says otherwise");
    add(app, "--tokenizer", o.tokenizer, home_path(),
        "gpt2_tokenizer.bin or 'bytes', to print samples as text (default: the one that made the data, as "
        "NAME.json next to it says, else gpt2_tokenizer.bin in this folder, the model's folder, the data's "
        "folder or data/starter)");
    add(app, "--seed", o.seed, unsigned_number(), "seed of initialization, shuffling and sampling");
}

// At least 1; "auto" becomes 0.
static CLI::Validator count_or_auto() {
    return CLI::Validator(
        [](std::string& text) {
            if (text == "auto") {
                text = "0";
                return std::string();
            }
            const std::string problem = at_least(1)(text);
            return problem.ends_with("at least 1") ? problem + ", or auto" : problem;
        },
        "at least 1, or auto");
}

static void add_options_of_text(CLI::App& app, Options& o) {
    app.option_defaults()->group("With --text, how files are read");
    app.option_defaults()->always_capture_default(false);
    add_text_options(app, o.of_text);
    app.option_defaults()->always_capture_default();
}

static void add_training_options(CLI::App& app, Options& o) {
    app.option_defaults()->group("Training");
    add(app, "-b,--batch-size", o.batch, count_or_auto(),
        "sequences in a micro-batch (B), in each process; auto: the fastest -b, with -r and --offload unless "
        "they are given, with which the run fits in memory; -d stays. A run that gives neither -b nor -r, "
        "and does not fit, gets the same");
    add(app, "-t,--sequence-length", o.sequence, at_least(1), "tokens in a sequence (T)");
    add(app, "-d,--total-batch-size", o.total_batch, at_least(-1),
        "tokens per step, a multiple of B*T: gradients are accumulated over micro-batches (-1: B*T)");
    add(app, "-x,--max-steps", o.max_steps, at_least(-1), "number of steps (-1: as --epochs says)");
    add(app, "--epochs", o.epochs, between(0, 1e6),
        "instead of -x: passes over the training data, such as 2.5 (0: one)");
    add(app, "-k,--lr-scheduler", o.scheduler, one_of({"cosine", "linear", "constant", "wsd"}),
        "learning rate schedule: cosine, linear, constant or wsd");
    add(app, "-l,--learning-rate", o.learning_rate, between(0, 1000), "peak learning rate");
    add(app, "-u,--warmup-steps", o.warmup, at_least(0), "steps of linear learning rate warm-up");
    add(app, "-q,--final-lr-fraction", o.final_fraction, between(0, 1),
        "final learning rate, as a fraction of the peak");
    add(app, "-c,--weight-decay", o.weight_decay, between(0, 1000),
        "weight decay of matrices and embeddings");
    add(app, "--optimizer", o.optimizer, one_of(optimizer_names()),
        "adamw, or muon: Muon for the weights of attention and MLP, AdamW for everything else; for a new "
        "model, its -l follows from the width (0.0036 for d12), -q and -c are 0.1, unless given");
    add(app, "--muon-lr", o.muon_learning_rate, between(0, 1000), "Muon: peak learning rate; 0: as -l");
    add(app, "--momentum", o.momentum, between(0, 0.999999), "Muon: decay of the mean of the gradients");
    add(app, "--beta1", o.beta1, between(0, 0.999999), "AdamW: decay of the mean of the gradients");
    add(app, "--beta2", o.beta2, between(0, 0.999999), "AdamW: decay of the mean of their squares");
    add(app, "--eps", o.epsilon, between(1e-18, 1),
        "AdamW: added to the denominator");  // 0 divides 0 by 0 where there was no gradient
    add(app, "--grad-clip", o.gradient_clip, number_check(0, 1e9, "at least 0"),
        "largest norm of the gradient; 0: not clipped");
    add(app, "--dropout", o.dropout, between(0, 0.99),
        "share of the embedding's, attention's and MLP's outputs that is set to 0 in training");
    add(app, "--skip-loss-outliers", o.skip_loss, number_check(0, 1e9, "at least 0"),
        "skip updates whose loss is more than this many standard deviations above the mean of the last 128 "
        "(0: never)");
    add(app, "--skip-gradient-outliers", o.skip_gradient, number_check(0, 1e9, "at least 0"),
        "the same for the gradient norm");
    add(app, "--max-nonfinite-updates", o.max_not_finite, at_least(0),
        "stop after so many updates in a row whose loss or gradient is not finite (0: never)");
    add(app, "-a,--overfit-one-batch", o.overfit, zero_or_one(),
        "1: train on the first validation batch only, for debugging");
}

static void add_evaluation_options(CLI::App& app, Options& o) {
    app.option_defaults()->group("Evaluation");
    add(app, "-v,--val-every", o.val_every, at_least(0), "steps between validations (0: none)");
    add(app, "-m,--val-batches", o.val_batches, at_least(-1), "most batches per validation (-1: all)");
    add(app, "--patience", o.patience, at_least(0),
        "end the run after this many validations in a row without a better one (0: never)");
    add(app, "-s,--sample-every", o.sample_every, at_least(0), "steps between text samples (0: none)");
    add(app, "-g,--sample-tokens", o.sample_tokens, at_least(1), "tokens per sample");
    add_sampler_options(app, o.sampler);
    add(app, "-h,--hellaswag", o.hellaswag, zero_or_one(),
        "1: evaluate HellaSwag every -v steps and at the end");
    add(app, "--hellaswag-file", o.hellaswag_file, home_path(),
        "HellaSwag file, from data/download.sh starter or prepare_data hellaswag");
}

static void add_output_options(CLI::App& app, Options& o) {
    app.option_defaults()->group("Output and resume");
    add(app, "-o,--output", o.output, home_path(),
        "folder for main.log, options.toml and checkpoints (default: write nothing); an earlier run's files "
        "are moved to a subfolder, unless -y 1 resumes it");
    add(app, "-n,--checkpoint-every", o.checkpoint_every, at_least(-1),
        "steps between checkpoints; one more is written at the end (-1: at the end only; 0: never)");
    add(app, "--keep-checkpoints", o.keep_checkpoints, at_least(0),
        "keep only the newest so many checkpoints (0: all)");
    add(app, "--major-checkpoint-every", o.major_checkpoint_every, at_least(0),
        "never delete checkpoints of steps that are multiples of this (0: none)");
    app.add_flag("--keep-best,!--no-keep-best", o.keep_best,
                 "also keep the checkpoint with the lowest validation loss, which -e FOLDER takes (default: "
                 "on, with -j)");
    add(app, "--log-every", o.log_every, at_least(1), "steps between lines in a pipe or a file");
    app.add_flag("--tensorboard", o.tensorboard, "also log for TensorBoard, to the folder tensorboard in -o");
    add(app, "-y,--resume", o.resume, zero_or_one(),
        "1: resume from the newest intact checkpoint in -o, if there is one; options that are not given are "
        "the run's")
        ->configurable(false);
    app.add_flag("--start-over", o.start_over,
                 "with -y 1: start at step 0 with the run's options; its files move to a subfolder earlier_N")
        ->configurable(false);
    app.add_flag("--resume-unverified", o.resume_unverified,
                 "with -y 1: also accept a checkpoint whose run_*.json, with its checksums, is missing")
        ->configurable(false);
    add(app, "--export", o.export_to, home_path(),
        "write the model of -e and its tokenizer, then exit; hf DIR: a folder for Hugging Face's tools; gguf "
        "FILE: a file for llama.cpp, Ollama and LM Studio; in fp32, or as --precision says")
        ->type_name("hf DIR | gguf FILE")
        ->default_str("")
        ->configurable(false);
    add(app, "--plot", o.plotted, home_path(),
        "draw the loss of the runs in these folders, then exit: to loss.svg in the folder, or, of several, "
        "to comparison.svg next to the first")
        ->type_name("FOLDER...")
        ->default_str("")
        ->configurable(false);
    add(app, "--plot-over", o.plot_over, CLI::IsMember({"steps", "tokens", "seconds"}),
        "the horizontal axis of --plot: steps, or tokens or seconds of training")
        ->type_name("AXIS")
        ->configurable(false);
    add(app, "--config", o.config, home_path(),
        "read options from this TOML file; the command line takes precedence; its relative paths are "
        "relative to the file")
        ->configurable(false);
}

static void add_device_options(CLI::App& app, Options& o) {
    app.option_defaults()->group("Device and memory");
    app.add_option("--device", o.device, "auto, cpu, gpu, a number from --list-devices, or part of a name");
    add(app, "--device-memory", o.device_memory, size_check(),
        "most of the device's memory that the run may take, such as 8G, or all; with --dry-run=memory, the "
        "memory of the device to plan for, which need not be there");
    add(app, "--threads", o.threads, between(0, 1024), "CPU threads (0: OMP_NUM_THREADS, or all cores)")
        ->configurable(false);
    add_simd_option(app)->configurable(false);
    add_tensor_core_option(app)->configurable(false);
    add(app, "--precision", o.precision, one_of(stored_type_names()),
        "storage type of parameters, gradients and activations: fp32, bf16 or fp16; for --export gguf also "
        "q8_0, 8-bit integers");
    add(app, "-w,--master-weights", o.master_weights, zero_or_one(),
        "1: keep fp32 master weights and update those (bf16 and fp16 only)");
    add(app, "-r,--recompute", o.recompute, between(0, 3),
        "recompute in the backward pass to save memory: 0: nothing, 1: GELU, 2: GELU and LayerNorm, 3: whole "
        "layers");
    add(app, "--offload", o.offload, one_of({"none", "optimizer"}),
        "optimizer: keep moments and master weights in the host's memory, which a GPU reads and writes over "
        "the bus once per step; none: in the GPU's memory");
    add(app, "-z,--zero-stage", o.zero_stage, between(0, 1),
        "with several processes: each holds a part of the optimizer's state (ZeRO stage 1), whether 0 or 1");
    add(app, "--ranks-per-node", o.ranks_per_node, at_least(0),
        "for tests: processes that share memory, so that one machine acts as several, which exchange "
        "messages (0: all of a machine)")
        ->configurable(false);
    app.add_flag("--list-devices", o.list_devices, "list the Vulkan devices and exit")->configurable(false);
    app.add_flag("--dry-run", o.dry_run_of,
                 "print memory, steps, operations and estimated time, then exit; needs no data; "
                 "--dry-run=memory measures no time")
        ->check(one_of({"true", "false", "memory"}))
        ->configurable(false);
    app.add_flag("--profile", o.profile, "print the time of each kernel at the end; slows the run slightly")
        ->configurable(false);
}

static void add_llmc_options(CLI::App& app, LlmcJob& job) {
    app.option_defaults()->group("llm.c's options that are accepted without effect")->configurable(false);
    app.option_defaults()->always_capture_default(false);
    for (const LlmcOption& o : llmc_options)
        if (o.why)
            app.add_option_function<std::string>(
                o.name, [](const std::string&) {}, std::string("without effect: ") + o.why);
    app.add_option("--num-processes", job.num_processes, "must be what mpirun started")
        ->check(whole_number<int>());
    app.add_option("--process-rank", job.process_rank, "must be the rank that mpirun gave")
        ->check(whole_number<int>());
    app.option_defaults()->group("Options")->configurable(true);
}

// llm.c's -pn and -pr must agree with the job.
static void check_processes(const Options& o, const LlmcJob& l) {
    if (l.num_processes != -1 && l.num_processes != o.num_processes)
        fail("-pn %d: this job has %d process%s; start it with mpirun -np %d, and leave -pn out",
             l.num_processes, o.num_processes, o.num_processes == 1 ? "" : "es", l.num_processes);
    if (l.process_rank != -1 && l.process_rank != o.process_rank)
        fail("-pr %d: mpirun gave this process rank %d; leave -pr out", l.process_rank, o.process_rank);
    if (o.ranks_per_node && o.num_processes % o.ranks_per_node)
        fail("--ranks-per-node %d does not divide the %d process%s of this job", o.ranks_per_node,
             o.num_processes, o.num_processes == 1 ? "" : "es");
}

const char* why_nothing_is_saved(const Options& o) { return o.output.empty() ? "there is no -o" : "-n is 0"; }

static void check_options(const Options& o) {
    const std::string& format = o.export_to.first;
    if (!format.empty() && format != "hf" && format != "gguf")
        fail("--export %s: the formats are hf and gguf, as in --export hf DIR", format.c_str());
    if (o.precision == "q8_0" && format != "gguf")
        fail("--precision q8_0 is for --export gguf: give fp32, bf16 or fp16");
    if (!o.export_to.first.empty() && !o.gives("model"))
        fail("--export writes the model of -e: name a run's folder or a model's file, as in -e runs/my");
    if (!o.export_to.first.empty()) return;
    if (o.train_data.empty() && !o.overfit && !o.dry_run)
        fail("no training data: give a text with --text, or token shards with -i");
    if (o.val_data.empty() && o.overfit) fail("-a 1 trains on validation data: give token shards with -j");
    const int64_t sequences = int64_t(std::max(1, o.batch)) * o.num_processes;
    if (sequences > (1 << 30) / o.sequence)
        fail("-b %lld times -t %d is more than 2^30 tokens", (long long)sequences, o.sequence);
    const int micro = std::max(1, o.batch) * o.num_processes * o.sequence;
    if (o.total_batch != -1 && (o.total_batch <= 0 || o.total_batch % micro))
        fail("-d %d is not a multiple of %s%s = %d", o.total_batch, o.batch ? "B*T" : "T",
             o.num_processes > 1 ? "*processes" : "", micro);
    if (o.val_batches == 0 && o.val_every)
        fail("-m 0 leaves nothing to validate on: use -v 0 for no validation");
    if (o.patience && !o.validates()) fail("--patience counts validations: it needs -j and -v");
    if (o.resume && o.output.empty()) fail("-y 1 resumes the run in a folder: name it with -o");
    if (!o.text.empty() && o.output.empty()) fail("-o is empty: a run on a text needs a folder");
    if (o.tensorboard && o.output.empty()) fail("--tensorboard needs a folder: name it with -o");
}

// llm.c's default files, if they are in the current folder.
static void fill_in_defaults(Options& o) {
    const auto if_there = [](const std::string& path) { return std::filesystem::exists(path) ? path : ""; };
    o.train_data = if_there("dev/data/tinyshakespeare/tiny_shakespeare_train.bin");
    o.val_data = if_there("dev/data/tinyshakespeare/tiny_shakespeare_val.bin");
    o.model = if_there("gpt2_124M_bf16.bin");
    if (o.model.empty()) o.model = "d12";
}

// The help text, with llm.c's two-letter flags added before the long names and the columns kept aligned.
static std::string help_text(const CLI::App& app) {
    std::string text = app.help();
    for (const LlmcOption& n : llmc_options) {
        const size_t at = text.find(std::string("  ") + n.name);
        if (at == std::string::npos) continue;
        text.insert(at + 2, std::string(n.flag) + ",");
        const size_t spaces = text.find("     ", at + 2);
        if (spaces < text.find('\n', at)) text.erase(spaces, strlen(n.flag) + 1);
    }
    return text;
}

uint64_t Options::device_bytes() const { return parse_size(device_memory); }

std::string options_path(const std::string& output) { return output + "/options.toml"; }

static std::map<std::string, std::string> values_of(const std::string& effective) {
    std::map<std::string, std::string> values;
    for (const std::string& line : lines_of(effective))
        if (const size_t at = line.find('='); at != std::string::npos)
            values[line.substr(0, at)] = line.substr(at + 1);
    return values;
}

std::vector<std::string> changed_options(const std::string& before, const std::string& now) {
    std::map<std::string, std::string> old = values_of(before);
    std::vector<std::string> lines;
    for (const auto& [name, value] : values_of(now))
        if (old.count(name) && old[name] != value)
            lines.push_back(name + " is " + value + ", and was " + old[name]);
    return lines;
}

void set_effective(Options& o, const std::string& name, const std::string& value) {
    const size_t at = ("\n" + o.effective).find("\n" + name + "=");
    if (at == std::string::npos) return;
    const size_t end = o.effective.find('\n', at);
    o.effective.replace(at, end - at, name + "=" + value);
}

// Names the tokens of a text relative to the run's folder, which may move.
static void name_tokens_in_folder(Options& o) {
    namespace fs = std::filesystem;
    const auto whole = [](const std::string& path) { return fs::absolute(path).lexically_normal(); };
    const fs::path tokens = whole(escaped_pattern(o.output) + "/" + tokens_folder);
    for (const auto& [name, value] : {std::pair("train-data", o.train_data), {"val-data", o.val_data}})
        if (!value.empty() && whole(value).parent_path() == tokens)
            set_effective(o, name,
                          format_string("\"%s/%s\"", tokens_folder,
                                        fs::path(value).filename().generic_string().c_str()));
}

// Options whose values are paths. A model may also be a descriptor, a tokenizer "bytes" or "bpe:4096".
static const std::set<std::string> path_options = {"train-data", "val-data",       "model", "text",
                                                   "tokenizer",  "hellaswag-file", "output"};
static bool is_path(const std::string& option, const std::string& value) {
    if (value.empty() || !path_options.count(option)) return false;
    if (option == "model") return looks_like_model_file(value);
    if (option == "text") return value != "stories";
    return option != "tokenizer" || (value != "bytes" && !parse_bpe(value));
}

static bool is_pattern(const std::string& option) { return option == "train-data" || option == "val-data"; }

// The option's path in a folder, whose name is no pattern, whatever characters it has.
static std::filesystem::path path_in(const std::filesystem::path& folder, const std::string& option,
                                     const std::string& value) {
    const std::filesystem::path path = folder / value;
    if (!is_pattern(option) || file_exists(path.generic_string())) return path;
    return std::filesystem::path(escaped_pattern(folder.generic_string())) / value;
}

std::string with_absolute_paths(const std::string& effective, const std::string& folder) {
    std::string text;
    for (std::string line : lines_of(effective)) {
        const size_t at = line.find('=');
        if (at != std::string::npos && line.size() > at + 3 && line[at + 1] == line.back()) {  // quoted
            const std::string option = line.substr(0, at), value = line.substr(at + 2, line.size() - at - 3);
            const std::string path = path_in(folder, option, value).lexically_normal().generic_string();
            // newer versions of CLI11 read a backslash in "..." as the start of an escape
            const char quote = path.find_first_of("\"\\") == std::string::npos ? '"' : '\'';
            if (is_path(option, value)) line = option + "=" + quote + path + quote;
        }
        text += line + "\n";
    }
    return text;
}

static bool is_descriptor(const std::string& model) {
    try {
        parse_descriptor(model);
        return true;
    } catch (const Error&) {
        return false;
    }
}

// The value of an option in a file of options. A relative path is relative to the file, or else to the
// current folder.
static std::string value_in_file(const std::string& option, const std::string& value,
                                 const std::string& path) {
    if (!is_path(option, value) && option != "model") return value;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    const std::string in_folder = path_in(folder, option, value).generic_string();
    if (option == "model") return !is_descriptor(value) && names_model_file(in_folder) ? in_folder : value;
    const bool is_there = is_pattern(option) ? !matching_paths(in_folder).empty() : file_exists(in_folder);
    return is_there ? in_folder : value;
}

// Sets the options of a file that nothing has set before.
static void take_options(CLI::App& app, const std::string& text, const std::string& path) {
    for (const OptionLine& line : parse_option_lines(text, path)) {
        CLI::Option* option = app.get_option_no_throw("--" + line.name);
        const std::string where = format_string("%s, line %d", path.c_str(), line.number);
        if (!option)
            fail("%s: unknown option '%s'%s", where.c_str(), line.name.c_str(),
                 nearest_option(app, line.name).c_str());
        if (!option->get_configurable())
            fail("%s: --%s is for the command line only", where.c_str(), line.name.c_str());
        if (line.values.size() > 1 && option->get_items_expected_max() == 1)
            fail("%s: --%s takes one value, not a list", where.c_str(), line.name.c_str());
        const bool is_flag = option->get_items_expected_max() == 0;
        if (is_flag && line.values[0] != "true" && line.values[0] != "false")
            fail("%s: --%s is true or false", where.c_str(), line.name.c_str());
        if (!option->empty()) continue;
        try {
            for (const std::string& value : line.values)
                option->add_result(value_in_file(line.name, value, path));
            option->run_callback();
        } catch (const CLI::ParseError& error) {
            fail("%s: %s; correct it, or delete it and give all options", where.c_str(),
                 explain(app, error).c_str());
        }
    }
}

// A text's path without "." and "..", and without a slash at its end. Unchanged: "stories", which is no path.
static std::filesystem::path whole_path(const std::string& text) {
    if (text.empty() || text == "stories") return text;
    return (std::filesystem::absolute(text) / "").lexically_normal().parent_path();
}

// Where a run on a text goes if -o does not say.
static void choose_folder(CLI::App& app, const Options& o) {
    if (o.text.empty() || app.count("--output")) return;
    const std::filesystem::path text = whole_path(o.text);
    std::string name = o.text == "stories" ? o.text : text.stem().generic_string() + "-text";
    for (char& c : name)
        if (uint8_t(c) < 0x80 && !isalnum(uint8_t(c)) && !strchr("._-", c)) c = '_';
    take_options(app, "output = 'runs/" + name + "'\n", "--text");
}

// Of -x and --epochs, the one of the command line, or else of --config, wins over the other of the run.
static void choose_length(Options& o, bool names_steps, bool names_epochs) {
    if (names_steps && names_epochs) fail("-x and --epochs both say how long the run is: leave one out");
    if (names_steps) o.epochs = 0;
    if (names_epochs) o.max_steps = -1;
}

// Takes the options of `chosen` that nothing gives, and notes them.
static void take_chosen(CLI::App& app, Options& o, const std::string& chosen, const std::string& what) {
    std::string list;
    for (const OptionLine& line : parse_option_lines(chosen, what))
        if (!app.count("--" + line.name) && !is_pattern(line.name))
            list += " --" + line.name + " " + line.values[0];
    take_options(app, chosen, what);
    if (!list.empty()) o.notes.push_back("chosen for " + what + ", unless another is given:" + list);
}

double default_muon_learning_rate(int channels) { return 3.6e-3 * std::pow(768.0 / channels, 0.16); }

// What `--optimizer muon` alone trains a new model with.
static void take_muon_defaults(CLI::App& app, Options& o) {
    if (o.optimizer_kind() != OptimizerKind::muon || names_model_file(o.model)) return;
    const double rate = default_muon_learning_rate(read_shape(find_model(o.model)).channels);
    take_chosen(app, o,
                format_string("learning-rate = %.3g\nfinal-lr-fraction = 0.1\nweight-decay = 0.1\n", rate),
                "--optimizer muon");
}

static std::vector<std::string> values_in(const std::vector<OptionLine>& lines, const std::string& name) {
    std::vector<std::string> values;
    for (const OptionLine& line : lines)
        if (line.name == name) values = line.values;
    return values;
}

static const char* const text_options[] = {"include",        "field",          "split-documents",
                                           "special-tokens", "skip-bad-lines", "as-text"};

// As they would be given, such as " --include '*.md'".
static std::string shown(const std::string& name, const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) {
        // the defaults; a file writes an empty list as ""
        if (value == "false" || value == "auto" || value.empty()) continue;
        text += (text.empty() ? "--" : " --") + name + (value == "true" ? "" : " " + shell_word(value));
    }
    return text.empty() ? "no --" + name : text;
}

// Error if an option says how files are read, and there are none to read.
static void refuse_text_options(const CLI::App& app, const Options& o) {
    if (!o.text.empty() && o.text != "stories") return;
    for (const std::string name : text_options) {
        const std::string given = shown(name, app.get_option("--" + name)->results());
        if (given.starts_with("--"))
            fail("%s says how a text is read: name a file or folder with --text", given.c_str());
    }
}

// A resumed run reads the tokens that are in its folder, whatever text is given: they must be that text's.
static void refuse_other_text(const CLI::App& app, const Options& o, const std::vector<OptionLine>& saved) {
    const std::vector<std::string> texts = values_in(saved, "text");
    const char* what_to_do = "leave it out, or start a new run in another folder";
    const std::string text = texts.empty() ? "" : texts[0];
    if (app.count("--text") && whole_path(o.text) != whole_path(text))
        fail("--text %s: the run in %s trains on %s; %s", o.text.c_str(), o.output.c_str(),
             text.empty() ? "no text" : text.c_str(), what_to_do);
    for (const std::string name : text_options) {
        if (!app.count("--" + name)) continue;
        const std::string before = shown(name, values_in(saved, name));
        const std::string given = shown(name, app.get_option("--" + name)->results());
        if (given != before)
            fail("%s: the tokens of the run in %s were prepared with %s; %s", given.c_str(), o.output.c_str(),
                 before.c_str(), what_to_do);
    }
}

// Takes options that neither the command line nor --config gives from the options.toml of the run to resume,
// then from the newest checkpoint.
static void read_saved_options(CLI::App& app, Options& o) {
    choose_folder(app, o);
    if (!o.resume || o.output.empty()) return;
    const std::string path = options_path(o.output);
    const bool has_file = file_exists(path);
    SavedOptions from_file;
    if (has_file) from_file = {read_whole_file(path, 1 << 20), path};
    const SavedOptions of_checkpoint = options_of_checkpoint(o.output);
    const SavedOptions& first = has_file ? from_file : of_checkpoint;
    if (first.path.empty()) return;
    refuse_other_text(app, o, parse_option_lines(first.text, first.path));
    for (const SavedOptions& saved : {from_file, of_checkpoint})
        if (!saved.text.empty()) take_options(app, saved.text, saved.path);
    o.notes.push_back("options that are not given come from " + first.path);
}

static void declare_options(CLI::App& app, Options& o, LlmcJob& llmc) {
    app.set_help_flag("--help", "show this text; so does -h without a value");
    app.set_version_flag("--version", version_text("train_gpt2"));
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // scripts append options
    app.option_defaults()->always_capture_default();
    add_data_options(app, o);
    add_options_of_text(app, o);
    add_training_options(app, o);
    add_evaluation_options(app, o);
    add_output_options(app, o);
    add_device_options(app, o);
    add_llmc_options(app, llmc);
}

// False if --help or --version was printed.
static bool parse_command_line(CLI::App& app, int argc, char** argv) {
    std::vector<std::string> arguments;  // last first, as the parser expects them
    for (int i = argc - 1; i > 0; i--) {
        if (strchr(argv[i], '\n'))
            fail("'%s' contains the end of a line, which the file of options cannot hold", argv[i]);
        const bool has_value = i + 1 < argc && argv[i + 1][0] != '-';
        arguments.push_back(!strcmp(argv[i], "-h") && !has_value ? "--help" : argv[i]);
        for (const LlmcOption& n : llmc_options)
            if (arguments.back() == n.flag) arguments.back() = n.name;
    }
    check_flags(app, arguments, {"true", "false", "memory"});  // --dry-run=memory
    try {
        app.parse(arguments);
    } catch (const CLI::CallForHelp&) {
        fputs(help_text(app).c_str(), stdout);
        return false;
    } catch (const CLI::Success& success) {
        app.exit(success);
        return false;
    } catch (const CLI::ParseError& error) {
        fail("%s (--help lists the options)", explain(app, error).c_str());
    }
    return true;
}

// In the place of llm.c's HellaSwag file, the default, which a resumed run has as an absolute path: the one
// that data/download.sh writes.
static void choose_hellaswag_file(Options& o) {
    const std::string downloaded = "data/starter/hellaswag_val.bin";
    if (o.hellaswag_file.ends_with(Options().hellaswag_file) && !file_exists(o.hellaswag_file) &&
        file_exists(downloaded))
        o.hellaswag_file = downloaded;
}

// A line for each value that the command line or a file gives, and that counts.
static std::string given_options(const CLI::App& app) {
    std::string text;
    for (const CLI::Option* option : app.get_options())
        if (option->get_name() != "--process-rank")  // the one that differs
            for (const std::string& value : option->reduced_results())
                text += option->get_name() + " " + value + "\n";
    return text;
}

bool parse_options(int argc, char** argv, Options& o, const std::string& chosen) {
    LlmcJob llmc;
    CLI::App app("Trains GPT-2 on the CPU or on any Vulkan device.", "train_gpt2");
    app.allow_windows_style_options(false);  // a path may begin with a slash
    fill_in_defaults(o);
    declare_options(app, o, llmc);
    const bool runs = parse_command_line(app, argc, argv);
    o.given = runs ? given_options(app) : "--help or --version\n";
    if (!runs) return false;
    if (o.list_devices || !o.plotted.empty()) return true;
    const bool names_hellaswag_file = app.count("--hellaswag-file") > 0;
    const bool asks_for_best = app.count("--keep-best") > 0 && o.keep_best;
    bool names_steps = app.count("--max-steps") > 0, names_epochs = app.count("--epochs") > 0;
    if (!o.text.empty() && app.count("--train-data") + app.count("--val-data") > 0)
        fail("--text prepares the tokens: leave out -i and -j");
    if (!o.config.empty()) take_options(app, read_text_file(o.config, 1 << 20), o.config);
    if (!names_steps && !names_epochs) {
        names_steps = o.max_steps >= 0;
        names_epochs = !names_steps && o.epochs > 0;
    }
    read_saved_options(app, o);
    std::erase(o.of_text.include, "");  // how a file writes an empty list
    refuse_text_options(app, o);
    o.needs_tokens =
        !o.text.empty() && !app.count("--train-data") && o.export_to.first.empty() && chosen.empty();
    o.batch_given = app.count("--batch-size") > 0 && o.batch != 0;  // not as a text's size chooses it
    if (!chosen.empty())
        take_chosen(app, o, chosen, "this text");
    else if (!o.needs_tokens && o.export_to.first.empty())
        take_muon_defaults(app, o);
    choose_length(o, names_steps, names_epochs);
    o.given = given_options(app);
    o.dry_run = o.dry_run_of != "false";
    if (o.start_over) o.resume = false;
    if (!names_hellaswag_file) choose_hellaswag_file(o);
    if (o.needs_tokens) return true;
    check_processes(o, llmc);
    check_options(o);
    if (asks_for_best && !o.saves_best())
        fail("--keep-best compares validation losses of checkpoints: it needs -o, -j, -v and -n");
    for (const LlmcOption& l : llmc_options)
        if (l.why && app.count(l.name))
            o.notes.push_back(format_string("%s has no effect: %s", l.flag, l.why));
    o.effective =
        with_absolute_paths(app.config_to_str(true, false), std::filesystem::current_path().generic_string());
    if (!o.text.empty()) name_tokens_in_folder(o);
    set_effective(o, "keep-best",
                  o.keep_best ? "true" : "false");     // which CLI11 writes as false unless given
    if (names_steps) set_effective(o, "epochs", "0");  // as choose_length() did
    if (names_epochs) set_effective(o, "max-steps", "-1");
    return true;
}
