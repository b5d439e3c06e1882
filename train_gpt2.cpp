// Trains GPT-2 on the CPU or on a Vulkan device. The model's stack (forward, backward, update) is
// llmc/gpt2.h, a step of training llmc/train_step.h, the options llmc/train_options.h; here they come
// together: the device, the model's parameters, the loop, checkpoints.
//
//     train_gpt2 -i 'data/corpus/corpus_train.bin' -j 'data/corpus/corpus_val.bin' -e d6 -b 4 -t 64 -x 100
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "llmc/checkpoint.h"
#include "llmc/data_position.h"
#include "llmc/dataloader.h"
#include "llmc/evaluate.h"
#include "llmc/file.h"
#include "llmc/gpt2.h"
#include "llmc/hellaswag.h"
#include "llmc/hugging_face.h"
#include "llmc/initialize.h"
#include "llmc/log.h"
#include "llmc/model_file.h"
#include "llmc/openmp_waiting.h"
#include "llmc/profile.h"
#include "llmc/progress.h"
#include "llmc/run_folder.h"
#include "llmc/run_plan.h"
#include "llmc/run_state.h"
#include "llmc/schedulers.h"
#include "llmc/stop_signal.h"
#include "llmc/tokenizer.h"
#include "llmc/train_options.h"
#include "llmc/train_step.h"

static void print_devices() {
    std::vector<DeviceInfo> devices;
    try {
        devices = list_devices();
    } catch (const Error& error) {
        printf("no Vulkan device: %s\n", error.what());
    }
    for (const DeviceInfo& d : devices)
        printf("%d: %s, %s, %.1f GiB, Vulkan %s, %s%s%s\n", d.index, d.name.c_str(), device_type_name(d.type),
               double(d.memory_bytes) / (1 << 30), d.api_version.c_str(), d.driver.c_str(),
               d.missing.empty() ? "" : ", cannot be used: lacks ", d.missing.c_str());
    printf("cpu: %d threads\n", omp_get_max_threads());
}

static std::unique_ptr<LaunchPad> open_device(const Options& o) {
    const DeviceChoice choice = choose_device(o.device);
    if (!choice.device) {
        printf("device: CPU, %d threads (%s)\n", omp_get_max_threads(), choice.reason.c_str());
        return nullptr;
    }
    LaunchPadOptions options;
    options.device = std::to_string(choice.device->index);
    options.timestamps = o.profile;
    auto pad = std::make_unique<LaunchPad>(options);
    printf("device: %s, %s memory (%s)\n", pad->device().name.c_str(), memory_mode_name(pad->memory_mode()),
           choice.reason.c_str());
    return pad;
}

// The tokenizer asked for, or GPT-2's where its file lies at hand; none is no error: samples are printed as
// numbers.
static std::optional<Tokenizer> find_tokenizer(const Options& o) {
    if (!o.tokenizer.empty()) return open_tokenizer(o.tokenizer);
    const auto folder = [](const std::string& path) { return std::filesystem::path(path).parent_path(); };
    const std::string usual = usual_tokenizer({folder(o.model), folder(o.train_data)});
    if (usual.empty()) return std::nullopt;
    return open_tokenizer(usual);
}

// The shape of a new model, which takes its vocabulary from --tokenizer unless the descriptor names a size.
static ModelConfig new_config(const Options& o, const std::optional<Tokenizer>& tokenizer) {
    ModelConfig config = is_model_file(o.model) ? read_model_file_header(o.model) : parse_descriptor(o.model);
    const bool own_vocab = is_model_file(o.model) || o.model.find("vocab=") != std::string::npos;
    if (!own_vocab && !o.tokenizer.empty()) set_vocab_size(config, tokenizer->vocab_size());
    validate(config, o.model);
    return config;
}

// The shape of the model in a checkpoint that is to be resumed; Error where -e names another.
static ModelConfig resumed_config(const Options& o, int step, const std::optional<Tokenizer>& tokenizer) {
    const ModelConfig config = read_model_header(model_path(o.output, step));
    if (!o.model_given || (is_model_file(o.model) && !std::filesystem::exists(o.model))) return config;
    const ModelConfig asked = new_config(o, tokenizer);
    if (asked.max_seq_len != config.max_seq_len || asked.num_layers != config.num_layers ||
        asked.num_heads != config.num_heads || asked.channels != config.channels)
        fail(
            "-e %s is not the model of the run in %s, which has %d layers, %d heads, %d channels and "
            "max_seq_len %d: "
            "leave -e out, or begin a new run in another folder",
            o.model.c_str(), o.output.c_str(), config.num_layers, config.num_heads, config.channels,
            config.max_seq_len);
    return config;
}

// A tokenizer that does not fit the model is an error where it was asked for, and else left aside.
static void check_tokenizer(const Options& o, const ModelConfig& config,
                            std::optional<Tokenizer>& tokenizer) {
    if (!tokenizer || tokenizer->vocab_size() == config.vocab_size) return;
    if (!o.tokenizer.empty())
        fail(
            "--tokenizer %s has %d tokens, and the model %s %d: give the tokenizer that its data was made "
            "with",
            o.tokenizer.c_str(), tokenizer->vocab_size(), o.model.c_str(), config.vocab_size);
    tokenizer.reset();
}

template <class Real>
static void load_parameters(GPT2<Real>& g, const Options& o) {
    if (is_model_file(o.model))
        read_model_file(o.model, parameter_writer(g));
    else
        initialize_parameters(g.config, o.seed, parameter_writer(g));
}

// Finds out which tiles suit this device's matrix cores, where that was not done before.
template <class Real>
static void measure_products(GPT2<Real>& g) {
    const auto products = gpt2_unmeasured_products(g);
    if (products.empty()) return;
    printf("tiles: measuring those of %zu products, once for this device and driver\n", products.size());
    fflush(stdout);
    try {
        measure_tiles<Real>(*g.pad, products);
    } catch (const Error& error) {
        printf("note: tiles were not measured: %s\n", error.what());
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Checkpoints

// Where a run begins: at a checkpoint, or at step 0.
struct Start {
    int step = 0;
    bool resumed = false;
    OptimizerState optimizer = {};
    RunState run = {};
};

// The newest good checkpoint of -o, where -y asks for it and there is one.
static Start find_start(const Options& o) {
    Start start;
    start.run.precision = o.precision;
    start.run.seed = o.seed;
    start.run.coin_state = 1295 + o.seed;  // 1337, llm.c's, with the default seed
    if (!o.resume) return start;
    const FoundCheckpoint found = find_latest_checkpoint(o.output);
    for (const std::string& line : found.broken) printf("note: %s\n", line.c_str());
    if (found.step < 0 && !found.broken.empty())
        fail("-y 1: no checkpoint in %s is good; %s", o.output.c_str(), found.broken.front().c_str());
    if (found.step < 0) {
        printf("note: no checkpoint in %s yet, the run begins at step 0\n", o.output.c_str());
        return start;
    }
    start.step = found.step;
    start.resumed = true;
    if (!found.run.empty()) start.run = run_state_from_json(found.run, run_path(o.output, found.step));
    printf("resuming %s at step %d%s\n", o.output.c_str(), found.step,
           found.run.empty() ? ", which has llm.c's files alone" : "");
    return start;
}

static void check_resume(const Options& o, const Start& start, int max_steps) {
    if (!start.resumed) return;
    if (start.run.seed != o.seed)
        fail(
            "--seed %llu: the run in %s has --seed %llu, and goes on with its random numbers; leave it out, "
            "or begin a "
            "new run in another folder",
            static_cast<unsigned long long>(o.seed), o.output.c_str(),
            static_cast<unsigned long long>(start.run.seed));
    if (start.step > max_steps)
        fail("-x %d: the run in %s has made %d steps already", max_steps, o.output.c_str(), start.step);
    if (start.step == max_steps)
        printf("note: all %d steps were made already; a larger -x adds some\n", max_steps);
}

// Parameters and moments of a checkpoint of any precision, with or without master weights. Where the
// precision is the same, all of it to the bit; where it is another, what the unrounded weights give.
template <class Real>
static void read_checkpoint(GPT2<Real>& g, const std::string& output, const Start& start) {
    const bool same_precision = start.run.precision == real_name<Real>();
    read_model(model_path(output, start.step), parameter_writer(g));
    auto write_moment = [&](Moment moment, int tensor, size_t offset, const float* values, size_t count) {
        if (moment != MASTER_WEIGHTS)
            g.memory.upload((moment == MOMENT_M ? g.m : g.v)[tensor] + offset, values, count);
        if (moment == MASTER_WEIGHTS && g.master[tensor])
            g.memory.upload(g.master[tensor] + offset, values, count);
        if (moment == MASTER_WEIGHTS && !same_precision)
            g.memory.upload_floats(g.params[tensor] + offset, values, count);
    };
    read_moments(optimizer_path(output, start.step), g.config, write_moment);
}

template <class Real>
static void write_checkpoint(const GPT2<Real>& g, const std::string& output, int step,
                             const DataLoader& loader, const Start& start, const RunState& run) {
    OptimizerState state = start.optimizer;  // llm.c's random numbers, if it began the run
    state.step = step;
    state.use_master_weights = g.master[0];
    state.data = loader.position();
    auto read_moment = [&g](Moment moment, int tensor, size_t offset, float* values, size_t count) {
        const auto& from = moment == MOMENT_M ? g.m : moment == MOMENT_V ? g.v : g.master;
        g.memory.download(values, from[tensor] + offset, count);
    };
    // llm.c has no files in fp16: those are written in fp32
    write_checkpoint(output, g.config, state, parameter_reader(g), read_moment, std::is_same_v<Real, bf16>,
                     run_state_to_json(run));
    printf("wrote checkpoint %s\n", model_path(output, step).c_str());
}

// ---------------------------------------------------------------------------------------------------------------
// The loop

static DataLoader open_training_data(const Options& o, int vocab_size) {
    if (o.overfit) return DataLoader(o.val_data, o.batch, o.sequence, vocab_size, false);
    return DataLoader(o.train_data, o.batch, o.sequence, vocab_size, true, o.seed);
}

// How much there is to do.
struct Amount {
    int micro_steps = 1, max_steps = 0, first_step = 0;
    double tokens(const Options& o) const { return double(micro_steps) * o.batch * o.sequence; }  // a step
    int steps_left() const { return max_steps - first_step; }
};

// A run: what is trained, on which data, for how long.
template <class Real>
struct Run {
    const Options& options;
    GPT2<Real>& g;
    DataLoader& loader;
    std::optional<DataLoader>& val;
    std::optional<Tokenizer>& tokenizer;
    const Start& start;
    const Amount amount;
    StepRunner<Real>& runner;
    StepJudge judge;
    uint64_t coin_state;
    double peak;  // operations a second
    std::vector<HellaSwagExample> examples = {};
    MainLog log = {};
    int stopping = 0;  // the signal that ends the run before the step at hand: looked for once a step

    // Whether something that is due every `every` steps (0: never) and at the end is due before this step.
    bool due(int step, int every) const {
        return every && (step == amount.max_steps || (step > 0 && step % every == 0));
    }

    bool interrupts(int step) const {
        return step == amount.max_steps || stopping || validates(step) || tests(step) || samples(step) ||
               saves(step);
    }
    bool validates(int step) const {
        return val && options.val_every && (step == 0 || due(step, options.val_every));
    }
    bool tests(int step) const { return !examples.empty() && due(step, options.val_every); }
    bool samples(int step) const { return due(step, options.sample_every); }
    bool saves(int step) const {
        return !options.output.empty() && (due(step, options.checkpoint_every) || stopping) &&
               !(start.resumed && step == start.step);  // it is there
    }

    // What happens between steps: a checkpoint, validation, a sample. The checkpoint comes first: a run that
    // begins there makes the others again.
    void interrupt(int step) {
        if (saves(step)) {
            const RunState state = {real_name<Real>(),
                                    options.seed,
                                    shards_of(loader),
                                    loader.position().sample_tokens,
                                    loader.position().token_in_sample,
                                    coin_state,
                                    runner.scaling,
                                    judge};
            write_checkpoint(g, options.output, step, loader, start, state);
            prune_checkpoints(options.output, step, options.keep_checkpoints, options.major_checkpoint_every);
        }
        if (stopping) return;
        if (validates(step)) {
            const float loss = validation_loss(g, *val, options.batch, options.sequence, options.val_batches);
            printf("val loss %f\n", loss);
            fflush(stdout);
            log.log_val(step, loss);
        }
        if (tests(step)) {
            const int right = hellaswag_right(g, examples);
            print_hellaswag(right, examples.size());
            log.log_eval(step, float(right) / float(examples.size()));
        }
        if (samples(step)) sample_text(g, tokenizer, options.sample_tokens, options.sampler, coin_state);
    }

    void loop();
};

// On a device nothing waits: a step's numbers are looked at while the next one runs, unless outliers are to
// be skipped.
template <class Real>
void Run<Real>::loop() {
    const Scheduler scheduler = {parse_schedule(options.scheduler), options.learning_rate, options.warmup,
                                 amount.max_steps, options.final_fraction};
    Progress progress = {log,
                         amount.max_steps,
                         int(amount.tokens(options)),
                         flops_per_token(g.config, options.sequence),
                         peak,
                         real_name<Real>(),
                         g.memory.bytes};
    const bool looks_first = options.skip_loss > 0 || options.skip_gradient > 0;
    StepJudge::Verdict verdict;  // of the step at hand
    if (looks_first)
        runner.accept = [&](const float* stats) {
            verdict = judge.judge(stats[0], stats[1], stats[2]);
            return verdict.applied();
        };
    Ticket pending = 0;  // of the step before
    bool reported = true;
    auto report_pending = [&](int step) {
        if (reported) return;
        reported = true;
        const float* stats = runner.stats(step, pending);
        if (!looks_first) verdict = judge.judge(stats[0], stats[1], stats[2]);
        progress.report(step, stats[0], stats[1], learning_rate(scheduler, step), verdict);
    };
    auto next_batch = [&](int* inputs, int* targets) {
        if (options.overfit) loader.reset();
        loader.next_batch(inputs, targets);
    };
    for (int step = start.step; step <= amount.max_steps; step++) {
        stopping = stop_signal();
        if (interrupts(step)) {
            runner.finish_update();
            report_pending(step - 1);
            clear_status_line();
            interrupt(step);
            progress.restart_clock();
        }
        if (step == amount.max_steps || stopping) break;
        const Ticket ticket = runner.run(step, learning_rate(scheduler, step), next_batch);
        report_pending(step - 1);  // while this step runs; on the CPU it has run
        pending = ticket;
        reported = false;
        if (!g.pad || options.profile || looks_first)
            report_pending(step);  // it has run, or is timed by itself
    }
    progress.print_summary(judge);
}

static void check_lengths(const Options& o, const ModelConfig& config, const LaunchPad* pad) {
    if (o.sequence > config.max_seq_len)
        fail("-t %d is more than the model's max_seq_len %d: use -t %d or less", o.sequence,
             config.max_seq_len, config.max_seq_len);
    if (!o.cpu_layers.empty() && pad && pad->memory_mode() != MemoryMode::unified)
        fail("--cpu-layers needs a device whose memory is unified with the host's; %s has %s memory",
             pad->device().name.c_str(), memory_mode_name(pad->memory_mode()));
}

static void print_plan(const Options& o, const ModelConfig& c, const DataLoader& loader,
                       const std::optional<DataLoader>& val, const Amount& amount, const MemoryNeed& need) {
    const bool master = o.master_weights && o.precision != "fp32";
    printf("model: %s, %d layers, %d heads, %d channels, vocabulary %d, %.1f M parameters in %s%s\n",
           o.model.c_str(), c.num_layers, c.num_heads, c.channels, c.vocab_size,
           double(num_parameters(c)) / 1e6, o.precision.c_str(), master ? ", master weights in fp32" : "");
    printf("data: %llu training tokens", static_cast<unsigned long long>(loader.num_tokens()));
    if (val) printf(", %llu validation tokens", static_cast<unsigned long long>(val->num_tokens()));
    printf("\nbatch: %d x %d x %d = %.0f tokens a step, %d steps\n", amount.micro_steps, o.batch, o.sequence,
           amount.tokens(o), amount.max_steps);
    printf("memory: %s\n", need.by_kind.c_str());
}

// What --dry-run adds: whether the memory suffices, operations, and the time that they take, by a few steps
// at a learning rate of 0.
static void print_memory_room(const std::function<MemoryNeed(int B)>& need, const MemoryRoom& room,
                              const Options& o) {
    printf("memory free on %s: %.1f GiB, the largest batch that fits is -b %d\n", room.where.c_str(),
           double(room.bytes) / (1 << 30), largest_batch(need, room, o.sequence));
}

template <class Real>
static void print_estimate(const Options& o, GPT2<Real>& g, DataLoader& loader, const Amount& amount,
                           double peak) {
    const double flops = flops_per_token(g.config, o.sequence), tokens = amount.tokens(o);
    printf("tokens: %.4g in %d steps, %.2f epochs\n", tokens * amount.steps_left(), amount.steps_left(),
           tokens * amount.steps_left() / double(loader.num_tokens()));
    printf("operations: %.4g a token, %.4g a step, %.4g in all\n", flops, flops * tokens,
           flops * tokens * amount.steps_left());
    StepRunner<Real> runner = {g, o.batch, o.sequence, 1, o.weight_decay};
    auto seconds_of = [&](int step) {
        const auto start = Progress::Clock::now();
        runner.stats(step, runner.run(step, 0, [&](int* in, int* out) { loader.next_batch(in, out); }));
        return std::chrono::duration<double>(Progress::Clock::now() - start).count();
    };
    double total = 0, seconds = seconds_of(0);  // the first one builds kernels
    for (int step = 1; step <= 10 && total < 2 && seconds < 60; step++) {
        const double now = seconds_of(step);
        seconds = step == 1 ? now : std::min(seconds, now);
        total += now;
    }
    seconds *= amount.micro_steps;
    printf("time: about %.4g s a step, %.0f tokens a second, %s in all, without validation and samples\n",
           seconds, tokens / seconds, duration(seconds * amount.steps_left()).c_str());
    if (peak > 0)
        printf("that is %.1f%% of the %.4g operations a second in %s that this device was measured to do\n",
               100 * flops * tokens / seconds / peak, peak, real_name<Real>());
}

// The loader goes on where the run in the checkpoint stood.
static void resume_data(const Start& start, DataLoader& loader) {
    if (!start.resumed) return;
    DataPosition at = start.optimizer.data;
    at.sample_tokens = start.run.chunk_tokens;  // 0 in a checkpoint of llm.c: this run's
    at.token_in_sample = start.run.token_in_sample;
    loader.resume(fit_position(at, start.run.shards, loader));
}

// Makes the folder ready: an earlier run's files go aside, a resumed run's logs end at its first step.
static void begin_output(const Options& o, const Start& start, MainLog& log) {
    if (o.output.empty()) return;
    remove_temporary_files(o.output);
    if (!o.resume) {
        const std::string moved = move_earlier_run(o.output);
        if (!moved.empty())
            printf("note: %s held an earlier run, which is now in %s; -y 1 goes on with a run\n",
                   o.output.c_str(), moved.c_str());
    }
    const std::string path = options_path(o.output);
    if (start.resumed && std::filesystem::exists(path))
        for (const std::string& line : changed_options(read_whole_file(path), o.effective))
            printf("note: %s\n", line.c_str());
    log.open(o.output, o.resume ? start.step : -1, o.tensorboard);
    write_whole_file(path, {o.effective});
}

// Says how a run ended that was asked to; its status is that of a program which the signal ended.
static int stopped(const Options& o, int signal) {
    const char* name = signal == SIGINT ? "SIGINT" : "SIGTERM";
    if (o.output.empty())
        printf("stopped by %s; nothing was saved, since there is no -o\n", name);
    else
        printf("stopped by %s; -y 1 goes on from here\n", name);
    return 128 + signal;
}

static Amount amount_of(const Options& o, const DataLoader& loader, const Start& start) {
    const int micro_steps = o.total_batch == -1 ? 1 : o.total_batch / (o.batch * o.sequence);
    const uint64_t epoch = std::clamp<uint64_t>(loader.num_batches() / uint64_t(micro_steps), 1, 1 << 30);
    return {micro_steps, o.max_steps >= 0 ? o.max_steps : int(epoch), start.step};
}

template <class Real>
static int train(const Options& o) {
    std::optional<Tokenizer> tokenizer = find_tokenizer(o);
    RunFolder folder;
    if (!o.output.empty() && !o.dry_run) folder.open(o.output);
    Start start = find_start(o);
    const ModelConfig config =
        start.resumed ? resumed_config(o, start.step, tokenizer) : new_config(o, tokenizer);
    check_tokenizer(o, config, tokenizer);
    check_lengths(o, config, nullptr);
    if (start.resumed) start.optimizer = read_optimizer_state(optimizer_path(o.output, start.step), config);
    std::optional<DataLoader> val;
    if (!o.val_data.empty()) val.emplace(o.val_data, o.batch, o.sequence, config.vocab_size, false);
    std::vector<HellaSwagExample> examples;
    if (o.hellaswag) examples = read_hellaswag(o.hellaswag_file, config.vocab_size);
    DataLoader loader = open_training_data(o, config.vocab_size);
    resume_data(start, loader);
    const Amount amount = amount_of(o, loader, start);
    check_resume(o, start, amount.max_steps);

    std::unique_ptr<LaunchPad> pad = open_device(o);
    check_lengths(o, config, pad.get());
    const auto need = [&](int B) {
        return memory_need<Real>(config, pad.get(), o.master_weights, B, o.sequence, Recompute(o.recompute));
    };
    const MemoryRoom room = memory_room(pad.get());
    print_plan(o, config, loader, val, amount, need(o.batch));
    if (o.dry_run) print_memory_room(need, room, o);
    check_memory(need, room, o.batch, o.sequence, o.total_batch);
    // a CPU's takes half a second of all cores, which a plan is worth and the start of each run is not
    const bool gpu = pad && pad->device().type != DeviceType::software;
    const double peak = gpu || o.dry_run ? peak_rate<Real>(pad.get()) : 0;
    GPT2<Real> g(config, pad.get(), o.master_weights);
    g.cpu_layers = o.cpu_layers;
    gpt2_allocate(g, o.batch, o.sequence, true, Recompute(o.recompute));
    if (start.resumed)
        read_checkpoint(g, o.output, start);
    else
        load_parameters(g, o);
    measure_products(g);
    if (o.dry_run) {
        print_estimate(o, g, loader, amount, peak);
        return 0;
    }
    StepJudge judge = start.run.judge;
    judge.loss_limit = o.skip_loss;
    judge.norm_limit = o.skip_gradient;
    StepRunner<Real> runner = {g, o.batch, o.sequence, amount.micro_steps, o.weight_decay, start.run.scaling};
    Run<Real> run = {o,         g,
                     loader,    val,
                     tokenizer, start,
                     amount,    runner,
                     judge,     start.run.coin_state,
                     peak,      std::move(examples)};
    begin_output(o, start, run.log);
    catch_stop_signals();
    run.loop();
    if (pad && o.profile)
        print_profile(*pad);
    else if (o.profile)
        printf("no profile: --profile measures a GPU's kernels, and this ran on the CPU\n");
    return run.stopping ? stopped(o, run.stopping) : 0;
}

// Writes the model of -e, a file of either kind or a new one, as Hugging Face keeps it.
static void export_model(const Options& o) {
    const std::optional<Tokenizer> tokenizer = find_tokenizer(o);
    const ModelConfig config = new_config(o, tokenizer);
    GPT2<float> g(config, nullptr, false);
    load_parameters(g, o);
    write_hugging_face(o.export_to.second, config, parameter_reader(g), o.precision == "bf16");
    printf("wrote %s/model.safetensors and config.json\n", o.export_to.second.c_str());
}

int main(int argc, char** argv) {
    wait_briefly(argv);
    try {
        Options options;
        if (!parse_options(argc, argv, options)) return 0;
        if (options.threads) omp_set_num_threads(options.threads);
        for (const std::string& note : options.notes) printf("note: %s\n", note.c_str());
        if (options.list_devices)
            print_devices();
        else if (!options.export_to.first.empty())
            export_model(options);
        else if (options.precision == "bf16")
            return train<bf16>(options);
        else if (options.precision == "fp16")
            return train<fp16>(options);
        else
            return train<float>(options);
    } catch (const std::exception& error) {
        fprintf(stderr, "train_gpt2: %s\n", error.what());
        return 1;
    }
    return 0;
}
