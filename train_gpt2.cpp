// Trains GPT-2 on the CPU or on a Vulkan device:
//
//     train_gpt2 --text my.txt
//     train_gpt2 -i 'data/my_train*.bin' -j 'data/my_val*.bin' -e d6 -x 100
//
// The first prepares the tokens (llmc/run/text_tokens.h) and chooses the options of the second
// (llmc/run/text_choice.h).
// A run has three parts: open the inputs and the device (llmc/run/run_setup.h), plan memory and time
// (llmc/run/run_plan.h), run the loop (llmc/run/train_loop.h). The model is llmc/model/gpt2.h, a training
// step is llmc/model/train_step.h, the options are llmc/options/train_options.h.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/precision.h"
#include "llmc/base/signals.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"
#include "llmc/files/export.h"
#include "llmc/kernels/self_test.h"
#include "llmc/launchpad/peak.h"
#include "llmc/model/gradient_exchange.h"
#include "llmc/options/start_program.h"
#include "llmc/run/device_job.h"
#include "llmc/run/fit.h"
#include "llmc/run/loss_plot.h"
#include "llmc/run/model_checkpoint.h"
#include "llmc/run/processes.h"
#include "llmc/run/profile.h"
#include "llmc/run/same_inputs.h"
#include "llmc/run/step_time.h"
#include "llmc/run/text_choice.h"
#include "llmc/run/text_tokens.h"
#include "llmc/run/train_loop.h"
#include "llmc/text/tokenizer_roles.h"

static void print_devices() {
    std::vector<DeviceInfo> devices;
    try {
        devices = list_devices();
    } catch (const Error& error) {
        print_line(stdout, "no Vulkan device: %s", error.what());
    }
    for (const DeviceInfo& d : devices) {
        print_line(stdout, "%d: %s, %s, %.1f GiB, Vulkan %s, %s%s%s", d.index, d.name.c_str(),
                   device_type_name(d.type), double(d.memory_bytes) / (1 << 30), d.api_version.c_str(),
                   d.driver.c_str(), d.missing.empty() ? "" : ", unusable: lacks ", d.missing.c_str());
        for (const std::string& line : d.features) printf("   %s\n", line.c_str());
    }
    printf("cpu: %s\n", counted(omp_get_max_threads(), "thread").c_str());
}

// Opens the device of --device; null is the CPU.
static std::unique_ptr<LaunchPad> open_training_device(Options& o, Communicator& job) {
    note_bound_cores(o, job);
    const std::string device = device_of_process(o, job);
    const uint64_t limit = o.plans_device() ? 0 : o.device_memory / uint64_t(o.processes_on_device);
    auto pad = open_checked_device(device, {.device_memory = limit, .timestamps = o.profile},
                                   job.rank == 0 ? stdout : nullptr);
    compare_devices(o, pad.get(), job);
    if (o.offloads_optimizer() && !has_own_memory(pad.get()))
        print_line(stdout, "note: --offload optimizer has no effect: %s uses the host's memory",
                   pad ? pad->device().name.c_str() : "the CPU");
    return pad;
}

// Prints the plan and checks that it fits. Returns the device's peak rate; 0: not measured.
template <class Real>
static double plan(const Options& o, const RunInputs& inputs, LaunchPad* pad, const MemoryCheck& memory) {
    print_plan(o, inputs, memory.need(shape_of(o)));
    if (o.plans_device() && !pad)
        print_line(stdout, "note: the plan leaves out the scratch memory of the GPU's kernels");
    if (o.plans_only()) print_room(memory, o);
    check_memory(memory, o);
    if (pad) {  // batches that were only tried took other kernels
        pad->forget_versions();
        memory.need(shape_of(o));
    }
    if (!pad || !pad->device().is_gpu() || o.plans_memory_only()) return 0;
    Phase phase("measuring the device's peak");
    const double peak = peak_rate<Real>(pad);
    phase.done();
    return peak;
}

// Loads the parameters of a new run. If a run that trains meanwhile has deleted the model's checkpoint, one
// process takes the next; several would take different ones, so they end.
template <class Real>
static void load_model(const RunInputs& inputs, GPT2<Real>& g, const Optimizer<Real>& optimizer,
                       const BytesRead& show, Communicator& job) {
    const auto load_from = [&](const ModelSource& model) {
        load_parameters(g, model.path, inputs.start.state.seed, &optimizer, show, &job);
    };
    if (job.size > 1) return load_from(inputs.model);
    ModelSource model = inputs.model;
    read_same_model(model, inputs.config, [&] { load_from(model); });
    if (model.chosen == inputs.model.chosen) return;
    clear_status_line();
    print_line(stdout, "%s", model.chosen.c_str());
}

// Loads parameters and moments.
template <class Real>
static void load(const RunInputs& inputs, GPT2<Real>& g, Optimizer<Real>& optimizer, Communicator& job) {
    const Start& start = inputs.start;
    Phase phase("loading the parameters");
    uint64_t loaded = 0;
    const BytesRead show = [&](uint64_t bytes) { phase.update(bytes_text(loaded += bytes, 0)); };
    if (start.resumed)
        load_checkpoint(g, optimizer, start.folder, start.step, start.state.precision, show, job);
    else
        load_model(inputs, g, optimizer, show, job);
    phase.done();
}

// A word from the beginning of the training data as a prompt, or some characters of a text without blanks;
// "": there is none. Error if the data cannot be read.
static std::string first_word(const RunInputs& inputs) {
    if (!inputs.tokenizer) return "";
    const TokenShard& shard = inputs.loader->loaders[0].all_shards()[0].files[0];
    std::vector<uint16_t> tokens(size_t(std::min<uint64_t>(shard.tokens, 1000)));
    read_tokens(shard, 0, tokens.size(), tokens.data());
    std::string word;
    for (const uint16_t token : tokens) {
        if (token == inputs.tokenizer->end_of_text || token >= inputs.tokenizer->vocab_size()) continue;
        for (const char c : inputs.tokenizer->decode(token)) {
            const bool is_letter = isalpha(uint8_t(c)) || uint8_t(c) >= 0x80;
            if (const std::string whole = first_characters(word, word.size());
                whole.size() > (is_letter ? 20 : 2) && printable(whole) == whole)
                return whole;
            word = is_letter ? word + c : "";
        }
    }
    return "";
}

// What a run on a text shows at its end, also after a signal.
static void show_text_run(const Options& o, const RunInputs& inputs, bool has_ended, bool has_best) {
    const std::string& folder = inputs.start.folder;
    try {
        plot_runs({folder});
    } catch (const Error& error) {
        print_line(stdout, "note: there is no plot: %s", error.what());
    }
    std::string word;
    try {
        word = first_word(inputs);
    } catch (const Error& error) {
        print_line(stdout, "note: %s", error.what());
    }
    const bool answers = inputs.tokenizer && !chat_template_of(inputs.tokenizer->roles).empty();
    if (has_ended && o.saves())
        print_line(stdout, "%s -e %s %s with the %s model", command_of("generate").c_str(),
                   shell_word(folder).c_str(),
                   answers        ? "--chat answers questions"
                   : word.empty() ? "writes a text"
                                  : ('"' + word + "\" continues a text").c_str(),
                   has_best ? "best" : "last");
}

// Whether the folder holds this run, which a retry resumes, and not an earlier one.
static bool run_has_begun = false;

// Runs the steps. Returns the exit status, which is nonzero if a signal stopped the run.
template <class Real>
static int run(Options& o, RunInputs& inputs, GPT2<Real>& g, Optimizer<Real>& optimizer, double peak,
               Communicator& job, const Lease& lease) {
    const OwnPart own = own_part(o, inputs.division, inputs.length.micro_steps);
    StepRunner<Real> runner = {.g = g,
                               .optimizer = optimizer,
                               .B = own.micro_batch,
                               .T = o.sequence,
                               .micro_steps = own.micro_steps,
                               .step_tokens = inputs.length.tokens_per_step,
                               .gradient_clip = o.gradient_clip,
                               .dropout_seed = o.seed,
                               .process = job.rank,
                               .scaling = inputs.start.state.scaling,
                               .on_new_scale = [](float scale) {
                                   clear_status_line();
                                   printf("the loss is now scaled by %.0f\n", scale);
                               }};
    std::optional<GradientExchange<Real>> exchange;
    if (job.size > 1) runner.exchange = &exchange.emplace(g, optimizer.ownership, job);
    runner.prepare();
    if (g.pad) prepare_kernels(*g.pad);
    note_devices(o, g.pad, job);
    Run<Real> run = {.options = o,
                     .inputs = inputs,
                     .g = g,
                     .optimizer = optimizer,
                     .runner = runner,
                     .job = job,
                     .lease = lease,
                     .peak_rate = peak};
    take_folder(o, inputs, optimizer.share, lease, job);
    run_has_begun = true;
    if (job.rank == 0) begin_output(o, inputs, optimizer.share, run.log);
    if (job.rank == 0) run.tokenizer = recorded_tokenizer(inputs);
    if (job.rank == 0) run.bits_per_nat = bits_per_nat(o, inputs);
    if (!o.saves()) printf("note: this run saves nothing, since %s\n", why_nothing_is_saved(o));
    catch_stop_signals();
    run.loop();
    if (o.profile && g.pad)
        print_profile(*g.pad);
    else if (o.profile)
        printf("no profile: --profile measures a GPU's kernels, and this run used the CPU\n");
    const bool has_best = o.saves_best() && run.validations.best_step >= 0;
    if (job.rank == 0 && !o.text.empty())
        show_text_run(o, inputs, !run.stopping || run.is_complete, has_best);
    if (!run.stopping) return 0;
    const std::string command = o.saves() ? resume_command(o) : "";
    const bool may_be_key = run.stopping == SIGTERM && job.size > 1 && !getenv(devices_variable);
    print_line(
        stdout, "stopped by %s%s; %s", signal_name(run.stopping),
        may_be_key ? ", which mpirun sends for Ctrl-C, too" : "",
        (run.is_complete ? "the run is complete: " + command + " only repeats what follows its last step"
         : o.saves()     ? command + " resumes from here"
                         : format_string("nothing was saved, since %s", why_nothing_is_saved(o)))
            .c_str());
    return 128 + run.stopping;  // as if the signal had ended the program
}

// A checkpoint that could not be read: it may be damaged.
struct CheckpointNotRead : Error {
    using Error::Error;
};

// Calls action(). Its errors are CheckpointNotRead if it reads a checkpoint that nobody has verified.
template <class Action>
static void read_checkpoint(bool is_unverified, const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        if (is_unverified) throw CheckpointNotRead(error.what());
        throw;
    }
}

// Some processes are left out of the job.
struct SmallerJob {
    Options options;  // as chosen before: the division's micro-batches are of these
    Division division;
};

// Plans a run whose inputs are open, loads the model and trains.
template <class Real>
static int train(Options o, RunInputs& inputs, LaunchPad* pad, Communicator& job, Verify verify,
                 const Lease& lease) {
    const bool is_divided_before = !inputs.division.empty();
    const OptimizerShare share = share_of_process(o, job);
    const MemoryCheck memory = memory_check<Real>(o, inputs.config, pad, job);
    if (o.may_choose_batch()) {
        if (!is_divided_before) choose_fit(o, memory, fewest_tokens(inputs.data));
        open_data(o, inputs, job.rank == 0);
    }
    if (o.is_divided) job.agree([&] { check_memory(memory, o); });
    check_same_inputs(inputs, job);
    const double peak = plan<Real>(o, inputs, pad, memory);
    if (o.plans_memory_only()) return 0;
    if (!is_divided_before)
        inputs.division = find_division<Real>(o, inputs.config, inputs.start, pad, job, true);
    if (!is_divided_before && o.is_divided)
        print_line(stdout, "division of a step: %s", division_text(inputs.division).c_str());
    if (std::ranges::count(members_of(inputs.division), false) && !is_divided_before) {
        note_devices(o, pad, job);
        throw SmallerJob{o, inputs.division};
    }
    GPT2<Real> g(inputs.config, pad);
    g.dropout = o.dropout;
    gpt2_allocate(g, o.batch, o.sequence, true, Recompute(o.recompute));
    Optimizer<Real> optimizer(inputs.config, g.memory, optimizer_options(o), share);
    if (pad) pad->commit(true);  // a driver may allocate more of the host's memory than it can lock
    read_checkpoint(inputs.start.resumed && verify == Verify::when_read,
                    [&] { job.agree([&] { load(inputs, g, optimizer, job); }); });
    note_devices(o, pad, job);
    if (!o.plans_only()) return run(o, inputs, g, optimizer, peak, job, lease);
    const OwnPart own = own_part(o, inputs.division, inputs.length.micro_steps);
    o.batch = own.micro_batch;
    inputs.length.micro_steps = own.micro_steps;
    print_estimate(o, g, optimizer, inputs, peak, job);
    return 0;
}

static int open_and_train(const Options& o, LaunchPad* pad, Communicator& job, const Division& agreed,
                          Verify verify) {
    RunFolder folder;
    RunInputs inputs;
    read_checkpoint(o.resume && verify == Verify::when_read,
                    [&] { inputs = open_inputs(o, folder, job, verify); });
    inputs.division = agreed;
    return with_precision(stored_type_name(o.precision), [&]<class Real>(Real) {
        return train<Real>(o, inputs, pad, job, verify, folder.lease);
    });
}

// `agreed`: the division of a step, for which the options were chosen before; empty: not known.
// Several processes verify a checkpoint when they read it, each what it needs. If that fails, the first
// process verifies all checkpoints, and the run resumes the newest intact one.
static int train(const Options& o, LaunchPad* pad, Communicator& job, const Division& agreed) {
    if (job.size > 1) try {
            return open_and_train(o, pad, job, agreed, Verify::when_read);
        } catch (const CheckpointNotRead&) {
        }
    return open_and_train(o, pad, job, agreed, Verify::now);
}

// Where notes go: standard output, unless that is what the model is exported to.
static FILE* notes_of_export(const Options& o) {
    return o.exports() && is_same_file(o.export_to[1], "/dev/stdout") ? stderr : stdout;
}

// Writes the model of -e and its tokenizer for other programs.
static void export_model(const Options& o) {
    const StopWritingAtSignals stops;
    const std::string &format = o.export_to[0], &path = o.export_to[1];
    format == "hf" ? check_export_folder(path) : check_export_file(path);
    ModelSource model = find_model(o.model);
    ModelConfig config = {};
    std::optional<GPT2<float>> g;
    read_found_model(model, [&] {
        config = read_shape(model);
        check_model_fits<float>(model.name, config, nullptr);
        load_parameters(g.emplace(config, nullptr), model.path, o.seed);
    });
    std::optional<Tokenizer> tokenizer =
        tokenizer_for(o.tokenizer, model, config.vocab_size, model.tokenizer);
    if (!tokenizer && (model.tokenizer || model.has_unusable_tokenizer))
        fail("-e %s: without its tokenizer, which cannot be used, --export needs another one: --tokenizer",
             o.model.c_str());
    config.max_seq_len = trained_positions(model, config);  // the first rows of wpe
    if (!model.chosen.empty()) print_line(notes_of_export(o), "%s", model.chosen.c_str());
    const ReadTensor read = parameter_reader(*g);
    const ExportedModel exported = {.source = model,
                                    .config = config,
                                    .read = read,
                                    .tokenizer = tokenizer ? &*tokenizer : nullptr,
                                    .type = o.precision};
    format == "hf" ? export_hugging_face(path, exported) : export_gguf(path, exported);
}

static void print_notes(const Options& o) {
    for (const std::string& note : o.notes) print_line(notes_of_export(o), "note: %s", note.c_str());
}

static int own_stdout = -1;  // of a rank that prints nothing

// Continues with the processes that have sequences. The first of them prints. In the others, returns false
// when the job has ended.
static bool stays_in_job(Options& o, const Division& division, Communicator& job) {
    fflush(stdout);        // before another process prints
    catch_stop_signals();  // for those that wait; the others look for them
    share_cores(o, members_of(division), job);
    if (!job.keep(members_of(division))) return false;
    if (o.process_rank > 0 && job.rank == 0) redirect(stdout, own_stdout);
    print_line(stdout, "note: %d of %d processes train%s, and this one has %s", job.size, o.num_processes,
               job.size == 1 ? "s" : "", counted(omp_get_max_threads(), "CPU thread").c_str());
    o.num_processes = job.size;
    o.process_rank = job.rank;
    return true;
}

// Opens the device, chooses what is not given, and trains.
static int train(Options& o, Communicator& job) {
    catch_save_signal();
    if (!has_launcher()) announce_interrupts("train_gpt2", o.plans_only() ? "" : " before training began");
    const auto pad = open_training_device(o, job);
    if (o.needs_tokens())
        prepare_and_choose(o, pad.get(), job);
    else if (o.resume)
        job.agree([&] {
            if (job.rank == 0) note_changed_texts(o), check_tokens(o);
        });
    choose_step_of_all(o, job);
    check_all_options(o, job);
    print_notes(o);
    Division division;
    try {
        return train(o, pad.get(), job, division);
    } catch (const SmallerJob& smaller) {
        o = smaller.options;
        division = smaller.division;
    }
    return stays_in_job(o, division, job) ? train(o, pad.get(), job, division) : 0;
}

// Plots, or exports, by the first process alone.
static int run_alone(const Options& o, Communicator& job) {
    print_notes(o);
    job.agree([&] {
        if (job.rank == 0) o.exports() ? export_model(o) : plot_runs(o.plotted, o.plot_over);
    });
    return 0;
}

// Trains. A run whose device is lost starts again, as with -y 1 if it had begun.
static int train_and_retry(Options& o, int argc, char** argv, Communicator& job) {
    for (int retries = 0;; retries++) {
        try {
            return train(o, job);
        } catch (const DeviceLost& lost) {
            if (retries == o.retry_lost_device) throw;
            warn("%s; retry %d of %d", lost.what(), retries + 1, o.retry_lost_device);
        }
        std::this_thread::sleep_for(std::chrono::seconds(1));  // while the driver resets it
        o = {.num_processes = job.size,
             .process_rank = job.rank,
             .retries = run_has_begun,
             .num_nodes = job.num_nodes};
        parse_options(argc, argv, o);
    }
}

int main(int argc, char** argv) {
    start_program(argv);
    std::unique_ptr<Communicator> job;
    try {
        job = join_job();
        if (job->rank > 0) own_stdout = duplicate(fileno(stdout));
        if (job->rank > 0 && !freopen("/dev/null", "w", stdout)) fail("cannot open /dev/null");
        if (job->rank > 0) setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // also if it prints later
        if (job->rank == 0 && getenv(devices_variable))
            take_signals_from_input(
                [](int number) { abort_job(format_string("stopped by %s", signal_name(number))); });
        Options options = {.num_processes = job->size, .process_rank = job->rank};
        bool runs = false;
        job->agree([&] { runs = parse_options(argc, argv, options); });
        check_same_options(options, *job);
        if (!runs) return 0;
        job->set_ending(options.timeout * 60, "");
        job->form_nodes(options.ranks_per_node);
        options.num_nodes = job->num_nodes;
        if (options.machine.threads) use_threads(options.machine.threads);
        if (options.list_devices || options.self_test) print_notes(options);
        if (options.list_devices) return print_devices(), 0;
        if (options.self_test) return print_self_test(options.device) ? 0 : 1;
        if (options.exports() || !options.plotted.empty()) return run_alone(options, *job);
        const auto status = options.devices.empty() ? std::nullopt : train_on_devices(options, argc, argv);
        if (status) return *status;
        return train_and_retry(options, argc, argv, *job);
    } catch (const std::exception& error) {
        if (job && job->size > 1) abort_job(message_for(error));
        return report_error("train_gpt2", error);
    }
}
