#include "llmc/options/train_options.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/utf8.h"
#include "llmc/data/weighted_path.h"
#include "llmc/files/model_source.h"
#include "llmc/options/arguments.h"
#include "llmc/options/optimizer_defaults.h"
#include "llmc/options/option_files.h"
#include "llmc/options/resumed_options.h"
#include "llmc/options/shared_options.h"
#include "llmc/text/text_file.h"

namespace fs = std::filesystem;

// --- the rows ---

static void add_data_options(OptionTable& t, Options& o) {
    t.group = "Data and model";
    t.add("-i,--train-data train data train-file", o.train_data,
          "training tokens: llm.c's shards, a file or a quoted glob pattern; may be repeated, with weights "
          "that mix them, as in a.bin:0.7")
        .weighted(PathKind::pattern);
    t.add("-j,--val-data val validation-file", o.val_data,
          "validation tokens, likewise, but without weights; of a mixture, one for each -i, or one for all")
        .is(PathKind::pattern);
    t.add("--text", o.text,
          "instead of -i and -j: a text file, a folder, or 'stories', a generated corpus; may be repeated, "
          "with weights that mix the texts, as in novels.txt:0.7")
        .weighted(PathKind::text);
    t.add(
         "-e,--model layers n-layer n-head n-embd init-from checkpoint model-name model-path "
         "model-name-or-path",
         o.model,
         "a run's folder (FOLDER:last: its newest checkpoint, else its best), an llm.c checkpoint, a Hugging "
         "Face folder, or a new model: d1 to d84, gpt3:c768, "
         "custom:layers=4,heads=4,channels=128,max_seq_len=256")
        .is(PathKind::model);
    t.add("--tokenizer", o.tokenizer,
          "with --text: bytes, bpe:4096 to train one of so many tokens on the text, or a tokenizer's file; "
          "else the file or 'bytes' that prints samples (default: the data's or model's)")
        .is(PathKind::tokenizer);
    t.add("--seed", o.seed, "seed of initialization, shuffling and sampling");
    t.group = "With --text, how files are read";
    const size_t first = t.rows.size();
    add_text_options(t, o.of_text);
    for (size_t row = first; row < t.rows.size(); row++) t.rows[row].is_fixed = true;
}

static void add_training_options(OptionTable& t, Options& o) {
    const double below_1 = 0.999999;
    t.group = "Training";
    t.add("--optimizer", o.optimizer, "adamw, or muon for the weights of attention and MLP")
        .one_of(optimizer_names());
    t.add("-b,--batch-size bs batch micro-batch", o.batch,
          "sequences in a micro-batch (B), in each process; auto: the fastest that fits")
        .of_process()
        .at_least(1)
        .word_for_zero = "auto";
    t.add("-t,--sequence-length block-size context seq-len ctx max-length n-ctx", o.sequence,
          "tokens in a sequence (T)")
        .at_least(1);
    t.add("-d,--total-batch-size grad-accum gradient-accumulation-steps", o.total_batch,
          "tokens in a step, a multiple of B*T, by accumulation; -1: B*T")
        .at_least(-1);
    t.add("-x,--max-steps steps max-iters iterations num-steps iters", o.max_steps,
          "steps; -1: as --epochs says")
        .at_least(-1);
    t.add("--epochs num-epochs num-train-epochs", o.epochs,
          "instead of -x: passes over the training data, such as 2.5; 0: one")
        .between(0, 1e6);
    t.add("--minutes", o.minutes,
          "with --text: the time that training takes; model, steps and all else that is not given follow")
        .between(0.05, 1e5);
    t.add("-k,--lr-scheduler lr-schedule schedule lr-decay", o.scheduler,
          "cosine, linear, constant or wsd; cosine if -q alone is given")
        .one_of({"cosine", "linear", "constant", "wsd"});
    t.add("-l,--learning-rate lr", o.learning_rate, "peak learning rate").between(0, 1000);
    t.add("-u,--warmup-steps warmup", o.warmup, "steps of linear warm-up");
    t.add("-q,--final-lr-fraction min-lr", o.final_fraction,
          "final learning rate, as a fraction of the peak; 0.1 if -k alone is given")
        .between(0, 1);
    t.add("-c,--weight-decay wd", o.weight_decay, "weight decay of matrices and embeddings").between(0, 1000);
    t.add("--muon-lr", o.muon_learning_rate, "peak learning rate of Muon; 0: as -l").between(0, 1000);
    t.add("--momentum", o.momentum, "Muon: decay of the mean of the gradients").between(0, below_1);
    t.add("--beta1", o.beta1, "AdamW: decay of the mean of the gradients").between(0, below_1);
    t.add("--beta2", o.beta2, "AdamW: decay of the mean of their squares").between(0, below_1);
    t.add("--eps", o.epsilon, "AdamW: added to the denominator").between(1e-18, 1);  // 0 divides 0 by 0
    t.add("--grad-clip clip", o.gradient_clip, "largest norm of the gradient; 0: not clipped")
        .at_least(0, 1e9);
    t.add("--dropout", o.dropout, "share of the activations that is set to 0 in training").between(0, 0.99);
    t.add("-sl,--skip-loss-outliers", o.skip_loss, "skip updates whose loss has a larger z; 0: none")
        .at_least(0, 1e9);
    t.add("-sg,--skip-gradient-outliers", o.skip_gradient, "the same for the gradient norm").at_least(0, 1e9);
    t.add("--max-nonfinite-updates", o.max_not_finite,
          "stop after so many non-finite updates in a row; 0: never");
    t.add("-a,--overfit-one-batch", o.overfit, "1: train on the first validation batch only, to debug")
        .zero_or_one();
}

static void add_evaluation_options(OptionTable& t, Options& o) {
    t.group = "Evaluation";
    t.add("-v,--val-every val-interval eval-steps eval-interval eval-every", o.val_every,
          "steps between validations; 0: none");
    t.add("-m,--val-batches eval-iters", o.val_batches,
          "most batches in a validation, the same number of each source of a mixture; -1: all")
        .at_least(-1);
    t.add("--patience early-stopping", o.patience,
          "end after so many validations without a better one; 0: never");
    t.add("-s,--sample-every", o.sample_every, "steps between samples of text; 0: none");
    t.add("-g,--sample-tokens", o.sample_tokens, "tokens in a sample").at_least(1);
    add_sampler_options(t, o.sampler);
    t.add("-h,--hellaswag", o.hellaswag, "1: HellaSwag every -v steps and at the end").zero_or_one();
    t.add("--hellaswag-file", o.hellaswag_file,
          "as data/download.sh or " + command_of("prepare_data") + " hellaswag writes it")
        .is(PathKind::file);
}

static void add_output_options(OptionTable& t, Options& o) {
    t.group = "Output and resume";
    t.add("-o,--output out out-dir output-dir", o.output,
          "folder of the run; without -y 1, an earlier run in it moves (default: with --text, in runs/; "
          "else nothing is written)")
        .is(PathKind::file);
    t.add("-n,--checkpoint-every save-every save-steps save-interval", o.checkpoint_every,
          "steps between checkpoints; -1: only at the end; 0: never")
        .at_least(-1);
    t.add("-nk,--keep-checkpoints", o.keep_checkpoints, "keep so many checkpoints, the newest; 0: all");
    t.add("-nm,--major-checkpoint-every", o.major_checkpoint_every,
          "keep those of multiples of so many steps; 0: none");
    t.add("--keep-best", o.keep_best,
          "keep the checkpoint with the lowest validation loss, too (default: on, with -j)")
        .has_negation = true;
    t.add("--log-every log-interval logging-steps", o.log_every, "steps between lines in a pipe or a file")
        .at_least(1);
    t.add("--tensorboard", o.tensorboard, "also write TensorBoard's events into the folder");
    t.add("-y,--resume resume-from resume-from-checkpoint", o.resume,
          "1: resume from the newest good checkpoint in -o, with the run's options")
        .zero_or_one()
        .not_saved();
    t.add("--start-over", o.start_over,
          "with -y 1: move the run to earlier_N, start at step 0 with its options")
        .not_saved();
    t.add("--retry-lost-device", o.retry_lost_device,
          "if the GPU is lost, open it again and resume from the newest checkpoint, at most so many times")
        .at_least(0)
        .not_saved();
    Option& exported =
        t.add("--export", o.export_to,
              "write the model of -e, and exit: a folder for Hugging Face's tools, or a file for "
              "llama.cpp; as --precision says");
    exported.is(PathKind::file).not_saved();
    exported.count = 2;
    exported.placeholder = "hf DIR | gguf FILE";
    Option& plotted =
        t.add("--plot", o.plotted, "draw the losses of runs, and exit: loss.svg or comparison.svg");
    plotted.is(PathKind::file).not_saved();
    plotted.is_long = true;
    plotted.placeholder = "FOLDER...";
    t.add("--plot-over", o.plot_over, "horizontal axis of --plot: steps, tokens or seconds of training")
        .one_of({"steps", "tokens", "seconds"})
        .not_saved();
    t.add("--config", o.config, "read options from this TOML file, to which its paths are relative")
        .is(PathKind::file)
        .not_saved();
}

static void add_device_options(OptionTable& t, Options& o) {
    t.group = "Device and memory";
    t.add("--device gpu", o.device, "auto, cpu, gpu, a number of --list-devices, or part of a name")
        .of_process();
    t.add("--devices", o.devices,
          "train on several devices of this machine together: all, or such as 0,1,cpu; needs MPI")
        .list()
        .not_saved();
    t.add("--share", o.share,
          "with several processes: sequences of a step, relative to the others'; 0: as speeds are measured; "
          "with --devices one for each, such as 3,1")
        .list()
        .between(0, 1e6)
        .of_process()
        .not_saved();
    t.add("--device-memory", o.device_memory, "most of its memory that the run may take, such as 8G")
        .of_process()
        .is_size = true;
    add_cpu_options(t, o.machine);
    add_tensor_core_option(t, o.machine);
    t.add("--precision dtype fp16 bf16 amp", o.precision, "fp32, bf16 or fp16; for --export gguf also q8_0")
        .one_of(stored_type_names());
    t.add("-w,--master-weights", o.master_weights, "1: keep the weights in fp32 too, in bf16 and fp16")
        .zero_or_one();
    t.add("-r,--recompute", o.recompute,
          "in the backward pass: 0 nothing, 1 GELU, 2 LayerNorm too, 3 whole layers")
        .of_process()
        .between(0, 3);
    t.add("--offload", o.offload, "optimizer: keep moments and master weights in the host's memory")
        .of_process()
        .one_of({"none", "optimizer"});
    t.add("--timeout", o.timeout,
          "with several processes: minutes that they wait for one that makes no progress before the job ends")
        .between(0.01, 1e6)
        .not_saved();
    t.add("--ranks-per-node", o.ranks_per_node, "for tests: processes that share memory; 0: all of a machine")
        .not_saved();
    t.add("--self-test", o.self_test,
          "check every kernel on the device, print a table for a report, and exit")
        .not_saved();
    t.add("--list-devices", o.list_devices, "list the Vulkan devices and what they lack, and exit")
        .not_saved();
    t.add("--dry-run", o.dry_run, "print memory, steps and time, and exit; --dry-run=memory measures no time")
        .one_of({"false", "true", "memory"})
        .not_saved()
        .bare = "true";
    t.add("--profile", o.profile, "print the time of each kernel at the end").not_saved();
}

// llm.c's options for what is not an option here.
static void add_llmc_options(OptionTable& t) {
    t.group = "llm.c's options without effect";
    t.add_without_effect("-f,--tf32", "fp32 is never reduced; --precision bf16 or fp16 is faster");
    t.add_without_effect("-ge,--gelu-fusion", "GELU is always fused into the GEMM before it");
    t.add_without_effect("-lg,--device-line-every", "use the device's own tools, such as nvidia-smi");
    t.add_without_effect("-z,--zero-stage", "processes always divide the optimizer's state (stage 1)");
    for (const char* names : {"-pn,--num-processes", "-pr,--process-rank", "-pg,--gpus-per-node",
                              "-pi,--init-method", "-ps,--server-ip", "-pf,--shared-folder"})
        t.add_without_effect(names, "mpirun or srun starts the processes");
}

OptionTable option_table(Options& o) {
    OptionTable t = {.program = "train_gpt2",
                     .description = "Trains GPT-2 on the CPU or on any Vulkan device.",
                     .sources = &o.sources};
    add_help_options(t, o.machine);
    add_data_options(t, o);
    add_training_options(t, o);
    add_evaluation_options(t, o);
    add_output_options(t, o);
    add_device_options(t, o);
    add_llmc_options(t);
    return t;
}

// --- what follows from other options ---

// llm.c's default files, if they are in the current folder; questions also where data/download.sh puts them.
static void fill_in_defaults(Options& o) {
    const auto if_there = [](const std::string& path) {
        return fs::exists(path) ? std::vector{path} : std::vector<std::string>();
    };
    o.train_data = if_there("dev/data/tinyshakespeare/tiny_shakespeare_train.bin");
    o.val_data = if_there("dev/data/tinyshakespeare/tiny_shakespeare_val.bin");
    o.model = fs::exists("gpt2_124M_bf16.bin") ? "gpt2_124M_bf16.bin" : "d12";
    const std::string downloaded = "data/starter/hellaswag_val.bin";
    if (!file_exists(o.hellaswag_file) && file_exists(downloaded)) o.hellaswag_file = downloaded;
}

// Where a run on a text goes if -o does not say.
static void choose_folder(OptionTable& table, const Options& o) {
    if (o.text.empty() || o.is_given(o.output)) return;
    std::string name;
    for (const std::string& text : without_weights(o.text))
        name += whole_path(text).stem().generic_string() + '-';
    name = o.is_stories() ? o.text[0] : first_characters(name, 100) + "text";
    for (char& c : name)
        if (uint8_t(c) < 0x80 && !isalnum(uint8_t(c)) && !strchr("._-", c)) c = '_';
    table.set(*table.find("output"), {"runs/" + name}, Source::config);
}

// Of -x and --epochs, the stronger one deletes the other, except that a file may say that it is not used.
static void choose_length(Options& o) {
    Source steps = o.sources.of(&o.max_steps);
    if (steps == Source::command_line && o.max_steps < 0) {  // as --epochs says
        steps = Source::built_in;
        o.sources.set(&o.max_steps, steps);
    }
    const Source epochs = o.sources.of(&o.epochs);
    if (steps == Source::command_line && epochs == Source::command_line)
        fail("-x and --epochs both say how long the run is: leave one out");
    const bool names_steps = steps == Source::command_line || (steps == Source::config && o.max_steps >= 0);
    const bool names_epochs = epochs == Source::command_line || (epochs == Source::config && o.epochs > 0);
    if (names_steps && !(names_epochs && epochs > steps))
        o.epochs = 0;
    else if (names_epochs)
        o.max_steps = -1, o.epochs = o.epochs > 0 ? o.epochs : 1;
}

bool finetunes(const Options& o) { return o.is_given(o.model) && names_model_file(o.model); }

// --- checks ---

// Error if the texts are no texts, or if an option says how files are read, and there are none to read.
static void refuse_wrong_texts(OptionTable& table, const Options& o) {
    const std::vector<std::string> texts = without_weights(o.text);
    if (!o.is_stories() && std::count(texts.begin(), texts.end(), "stories"))
        fail(
            "--text stories is a generated corpus: give it alone, or write it to a file with %s and name "
            "that "
            "file",
            command_of("make_corpus").c_str());
    shares_of(o.text);  // an Error if a weight is wrong
    if (!o.has_text()) refuse_text_options(table);
}

static void add_notes(std::vector<std::string>& notes, const std::vector<std::string>& more) {
    notes.insert(notes.end(), more.begin(), more.end());
}

// Notes the options of the command line that do nothing in this training.
static void note_without_effect(const OptionTable& table, Options& o) {
    const bool is_alone = o.num_processes == 1 && o.devices.empty();
    const bool is_chosen = o.needs_tokens() && !finetunes(o);
    const bool is_constant = o.is_given(o.scheduler) && o.scheduler == Schedule::constant;
    const bool is_adamw = o.optimizer == OptimizerKind::adamw && (!is_chosen || o.is_given(o.optimizer));
    const bool is_fp32 = o.precision == StoredType::fp32 && (!o.needs_tokens() || o.is_given(o.precision));
    const bool has_data = !o.val_data.empty() || !o.text.empty(), is_on_cpu = o.device == "cpu";
    const bool is_cold = o.sample_every && o.sampler.temperature == 0;
    const bool is_top_1 = o.sample_every && !is_cold && o.sampler.top_k == 1;
    const bool has_length = o.is_given(o.max_steps) || o.is_given(o.epochs);
    const std::string length = o.epochs > 0 ? "--epochs says" : "-x says";
    const int every = o.checkpoint_every, major = o.major_checkpoint_every;
    const bool keeps_all_major = o.keep_checkpoints && every > 0 && major > 0 && every % major == 0;
    const bool saves_best = o.keep_best && o.saves() && o.val_every && has_data;
    const bool has_no_major = o.keep_checkpoints && !saves_best && major > 0 && o.max_steps >= 0 &&
                              o.max_steps % major &&
                              (every < 0 || std::lcm<int64_t>(every, major) > o.max_steps);
    const std::string unsaved = o.saves() ? "" : why_nothing_is_saved(o);
    add_notes(
        o.notes,
        table.notes_of(
            {{"start-over", "it is for -y 1", !o.resume},
             {"plot-over", "it is for --plot", true},
             {"share timeout ranks-per-node", "it is for a job of several processes", is_alone},
             {"minutes", length + " how long the run is", has_length && o.is_given(o.model)},
             {"muon-lr momentum", "it is for --optimizer muon", is_adamw},
             {"train-data", "-a 1 trains on a batch of -j", o.overfit},
             {"hellaswag", "-v is 0", o.hellaswag && !o.val_every},
             {"hellaswag-file", "it is for -h 1", !o.hellaswag},
             {"val-every", "there is no -j", o.val_every && !has_data && !o.hellaswag},
             {"val-batches", "-v is 0", !o.val_every},
             {"val-batches", "it is for -j", o.val_every && !has_data},
             {"sample-tokens temperature top-k top-p", "-s is 0", !o.sample_every},
             {"top-k top-p", "--temperature is 0", is_cold},
             {"temperature top-p", "--top-k is 1", is_top_1},
             {"checkpoint-every", "there is no -o", o.checkpoint_every && o.output.empty()},
             {"keep-checkpoints major-checkpoint-every", unsaved, !o.saves()},
             {"keep-checkpoints", "-nm keeps all of -n", !o.resume && o.saves() && keeps_all_major},
             {"major-checkpoint-every", "no checkpoint of the run is at such a step",
              !o.resume && o.saves() && has_no_major},
             {"major-checkpoint-every", "-nk is 0, which keeps all",
              o.saves() && !o.keep_checkpoints && !saves_best},
             {"master-weights", "the weights are fp32", is_fp32},
             {"profile log-every tensorboard retry-lost-device", "it is for a training", o.plans_only()},
             {"retry-lost-device", "the CPU is never lost", !o.plans_only() && is_on_cpu},
             {"tensor-cores", "it is for GPUs", is_on_cpu},
             {"final-lr-fraction", "-k is constant", is_constant}}));
    if (o.sources.of(&o.minutes) == Source::command_line && has_length && !o.is_given(o.model))
        o.notes.push_back(length + " how long the run is: --minutes chooses the rest");
    for (const Option& row : table.rows)
        if (row.without_effect && row.source == Source::command_line)
            o.notes.push_back(format_string("-%s has no effect: %s", row.flag.c_str(), row.without_effect));
}

const char* why_nothing_is_saved(const Options& o) { return o.output.empty() ? "there is no -o" : "-n is 0"; }

static const char* why_nothing_is_validated(const Options& o) {
    return o.val_every ? "there is no -j" : "-v is 0";
}

static void check_export(const Options& o) {
    const std::string format = o.exports() ? o.export_to[0] : "";
    if (!format.empty() && format != "hf" && format != "gguf")
        fail("--export %s: the formats are hf and gguf, as in --export hf DIR", format.c_str());
    if (o.precision == StoredType::q8_0 && format != "gguf")
        fail("--precision q8_0 is for --export gguf: give fp32, bf16 or fp16");
    if (o.exports() && !o.is_given(o.model))
        fail("--export writes the model of -e: name a run's folder or a model's file, as in -e runs/my");
}

// Error if a weight is wrong, or if it is not clear whose validation data -j is.
static void check_mixture(const Options& o) {
    const size_t sources = shares_of(o.train_data).size(), validated = o.val_data.size();
    if (sources > 0 && validated > 1 && validated != sources)
        fail("-j: %zu patterns for the %zu sources of -i: give one for each of them, or one for all",
             validated, sources);
}

void check_batch(const Options& o) {
    const int64_t sequences = int64_t(std::max(1, o.batch)) * o.num_processes;
    if (sequences > (1 << 30) / o.sequence)
        fail("-b %lld times -t %d is more than 2^30 tokens", (long long)sequences, o.sequence);
    if (o.total_batch == -1) return;
    const int unit = o.is_divided ? o.sequence : int(sequences) * o.sequence;
    if (o.total_batch <= 0 || o.total_batch % unit)
        fail("-d %d is not a multiple of %s%s = %d", o.total_batch, o.batch && !o.is_divided ? "B*T" : "T",
             o.num_processes > 1 && !o.is_divided ? "*processes" : "", unit);
    if (o.is_divided && o.global_batch() < o.num_processes)  // each has a sequence at least
        fail("-d %d is %s of %d tokens for %d processes: give each of them one at least", o.total_batch,
             counted(o.global_batch(), "sequence").c_str(), o.sequence, o.num_processes);
}

void check_sequence(const Options& o, const ModelConfig& config) {
    if (o.sequence > config.max_seq_len)
        fail("-t %d is more than the model's max_seq_len %d: use -t %d or less", o.sequence,
             config.max_seq_len, config.max_seq_len);
}

// What a run has left that began to start over, and failed: the newest earlier run's options. "": none.
static std::string options_of_earlier_run(const std::string& folder) {
    std::string newest;
    for (int i = 1;; i++) {
        const std::string path = options_path(format_string("%s/earlier_%d", folder.c_str(), i));
        if (!file_exists(path)) break;
        newest = path;
    }
    return newest.empty() ? "" : "; --config " + shell_word(newest) + " has the options of an earlier run";
}

static void check_options(const Options& o) {
    if (o.ranks_per_node && o.num_processes % o.ranks_per_node)
        fail("--ranks-per-node %d does not divide the %d process%s of this job", o.ranks_per_node,
             o.num_processes, o.num_processes == 1 ? "" : "es");
    check_export(o);
    if (o.exports()) return;
    const bool lacks_data = o.train_data.empty() && !o.overfit && !o.plans_only();
    if (lacks_data && o.resume && o.output.empty()) fail("-y 1 resumes the run in -o: name its folder");
    if (lacks_data && (o.resume || o.start_over) && !file_exists(options_path(o.output)))
        fail("no run in '%s' to resume, and no training data for a new one%s", o.output.c_str(),
             options_of_earlier_run(o.output).c_str());
    if (lacks_data) fail("no training data: give a text with --text, or token shards with -i");
    const bool asks_for_minutes = o.sources.of(&o.minutes) == Source::command_line;
    if (asks_for_minutes && o.text.empty())
        fail("no --text: --minutes chooses a run on a text; -x or --epochs say how long other runs are");
    if (o.val_data.empty() && o.overfit) fail("-a 1 trains on validation data: give token shards with -j");
    check_mixture(o);
    if (o.share.size() > 1 && o.devices.empty())
        fail("--share: a process has one; with --devices, each device may have one of its own");
    if (o.knows_devices && o.devices.empty()) check_batch(o);
    if (o.val_batches == 0 && o.val_every)
        fail("-m 0 leaves nothing to validate on: use -v 0 for no validation");
    if (o.patience && !o.validates())
        fail("--patience counts validations, and %s; --patience 0 needs none", why_nothing_is_validated(o));
    if (o.retry_lost_device && !o.saves())
        fail("--retry-lost-device resumes from a checkpoint, and %s", why_nothing_is_saved(o));
    if (o.retry_lost_device && o.num_processes > 1)
        fail("--retry-lost-device is for one process: leave it out of a job of %d", o.num_processes);
    if (o.resume && o.output.empty()) fail("-y 1 resumes the run in a folder: name it with -o");
    if (!o.text.empty() && o.output.empty()) fail("-o is empty: a run on a text needs a folder");
    if (o.tensorboard && o.output.empty()) fail("--tensorboard needs a folder: name it with -o");
    if (o.sources.of(&o.keep_best) == Source::command_line && o.keep_best && !o.saves_best())
        fail("--keep-best compares validation losses of checkpoints, and %s",
             o.saves() ? why_nothing_is_validated(o) : why_nothing_is_saved(o));
}

// The rate is constant unless -k or -q says how it falls.
static void choose_decay(Options& o) {
    const auto is_free = [&](const auto& value) { return o.sources.of(&value) == Source::built_in; };
    if (o.is_given(o.final_fraction) && is_free(o.scheduler)) o.sources.choose(o.scheduler, Schedule::cosine);
    if (!o.is_given(o.scheduler) || o.scheduler == Schedule::constant || !is_free(o.final_fraction)) return;
    if (o.sources.of(&o.scheduler) == Source::run) return;  // which continues as it began
    o.sources.choose(o.final_fraction, 0.1f);
    o.notes.push_back("-k without -q: the learning rate falls to a tenth, as with -q 0.1");
}

void complete_options(Options& o) {
    choose_decay(o);
    check_options(o);
    if (o.batch == 0) o.sources.set(&o.batch, Source::chosen);  // -b auto
}

// --- all of it ---

// llm.c's -h has a value; as the last argument, or before an option, it asks for help.
static std::vector<std::string> arguments_of(int argc, char** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    for (const std::string& argument : arguments)
        if (argument.find('\n') != argument.npos)
            fail("'%s' contains the end of a line, which no option has", argument.c_str());
    for (size_t i = 0; i < arguments.size(); i++)
        if (arguments[i] == "-h" && (i + 1 == arguments.size() || arguments[i + 1].starts_with('-')))
            arguments[i] = "--help";
    return arguments;
}

bool parse_options(int argc, char** argv, Options& o) {
    fill_in_defaults(o);
    OptionTable table = option_table(o);
    parse_arguments(table, arguments_of(argc, argv));
    if (o.retries) o.resume = true, o.start_over = false;
    if (!take_machine_options(table, o.machine)) return false;
    const auto note_unread = [&](const char* instead, const std::vector<std::string>& read) {
        add_notes(o.notes, table.notes_of_unread(instead, read));
        return true;
    };
    if (o.list_devices) return note_unread("--list-devices", {"list-devices"});
    if (o.self_test) return note_unread("--self-test", {"self-test", "device"});
    if (o.exports())
        note_unread("--export",
                    {"export", "model", "tokenizer", "precision", "seed", "config", "output", "resume"});
    else if (!o.plotted.empty())
        return note_unread("--plot", {"plot", "plot-over"});
    const bool reads_again = o.num_processes > 1 || !o.devices.empty() || o.retry_lost_device;
    if (!o.config.empty() && reads_again && is_read_once(o.config))
        fail("--config %s can be read once, and this run may read it again: save it in a file",
             o.config.c_str());
    if (!o.config.empty()) read_options(table, read_text_file(o.config, 1 << 20), o.config, Source::config);
    // the file of a run on a text names that text and its tokens
    const bool asks_for_text = !o.text.empty() && o.sources.of(&o.text) == Source::command_line;
    for (const auto* data : {&o.train_data, &o.val_data})
        if (asks_for_text && o.sources.of(data) >= Source::config)
            fail("--text prepares the tokens: leave out -i and -j%s",
                 o.sources.of(data) == Source::config
                     ? format_string(", which %s gives", o.config.c_str()).c_str()
                     : "");
    if (file_exists(o.output) && !is_folder(o.output))
        fail("-o %s is a file: name a folder", o.output.c_str());
    choose_folder(table, o);
    take_options_of_run(table, o);
    refuse_wrong_texts(table, o);
    choose_length(o);
    if (!o.exports()) note_without_effect(table, o);
    if (o.start_over) o.resume = false;
    if (o.needs_tokens()) return true;
    if (!o.exports()) take_optimizer_defaults(o);
    complete_options(o);
    return true;
}
