#include "llmc/run/run_setup.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/output.h"
#include "llmc/data/ignored_target.h"
#include "llmc/data/saved_shards.h"
#include "llmc/data/sidecar.h"
#include "llmc/data/weighted_path.h"
#include "llmc/model/optimizer.h"
#include "llmc/model/schedulers.h"
#include "llmc/options/option_files.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_folder.h"
#include "llmc/run/tensorboard.h"
#include "llmc/run/text_tokens.h"
#include "llmc/text/bpe_trainer.h"
#include "llmc/text/tokenizer_roles.h"

static DataPatterns patterns_of(const Options& o) {
    return {.train = o.overfit ? o.val_data : without_weights(o.train_data),
            .val = o.val_data,
            .shares = o.overfit ? std::vector<double>() : shares_of(o.train_data)};
}

// All patterns of shards.
static std::vector<std::string> data_of(const Options& o) {
    std::vector<std::string> all = without_weights(o.train_data);
    all.insert(all.end(), o.val_data.begin(), o.val_data.end());
    return all;
}

// --- the model ---

// The shape of a model of -e. A new model takes its vocabulary from --tokenizer, or else from the tokenizer
// that made the data, and its positions from -t, unless -e names a size.
static ModelConfig new_config(const Options& o, ModelSource& model,
                              const std::optional<TokenizerInfo>& data) {
    ModelConfig config = read_shape(model);
    const bool names_vocab = model.is_file || model.path.find("vocab=") != std::string::npos;
    const std::optional<BpeOptions> trained = parse_bpe(o.tokenizer);  // it may have become smaller
    if (!names_vocab && !o.tokenizer.empty() && !(trained && data))
        set_vocab_size(config, trained ? trained->vocab_size : open_tokenizer(o.tokenizer).vocab_size());
    else if (!names_vocab && data)
        set_vocab_size(config, data->vocab_size);
    if (!model.names_positions()) config.max_seq_len = o.sequence;
    validate(config, o.model);
    return config;
}

// A run of llm.c saved no options that -e could be compared with.
static void refuse_other_shape(const Options& o, const ModelConfig& config, const Start& start) {
    const bool has_options = file_exists(options_path(start.folder));
    if (has_options || !o.is_given(o.model) || names_model_file(o.model)) return;
    ModelSource model = find_model(o.model);
    const ModelConfig asked = read_shape(model);
    if (asked.num_layers != config.num_layers || asked.channels != config.channels ||
        asked.num_heads != config.num_heads)
        fail("-e %s is not the model in %s, which has %s, %s and %d channels: leave out -e", o.model.c_str(),
             start.folder.c_str(), counted(config.num_layers, "layer").c_str(),
             counted(config.num_heads, "head").c_str(), config.channels);
}

// --- where the run starts ---

// Opens the folder -o; with -y 1, finds its newest intact checkpoint. Rank 0 does both before the others
// touch the folder, since opening it may move or remove files. All ranks get its checkpoint.
static FoundCheckpoint open_folder(const Options& o, RunFolder& folder, Communicator& job, Verify verify) {
    const bool first = job.rank == 0, holds = !o.output.empty() && !o.plans_only();
    FoundCheckpoint found;
    ByteProgress progress("verifying the checkpoint");
    if (first && holds) {
        std::vector<std::string> read = data_of(o);
        read.push_back(o.hellaswag_file);
        refuse_inputs(o.output, read);
        if (o.tensorboard) refuse_foreign_folder(o.output + "/" + tensorboard_folder, is_event_file);
        folder.open(o.output);
    }
    if (first && o.resume)
        found = find_latest_checkpoint(
            o.output, [&](uint64_t bytes) { progress.add(bytes); }, verify);
    job.broadcast(&found.step, sizeof found.step, 0);
    found.run = job.gather(found.run).front();
    if (!first && holds) folder.join(o.output);
    return found;
}

// The step of the first checkpoint that a run writes; at most that.
static int first_checkpoint(const Options& o) {
    if (!o.saves()) return 0;  // there will be none: nothing explains a log
    const int ends = o.max_steps >= 0 ? o.max_steps : std::numeric_limits<int>::max();
    const int first = o.checkpoint_every > 0 ? std::min(o.checkpoint_every, ends) : ends;
    return o.saves_best() ? std::min(first, o.val_every) : first;
}

// Starting at step 0 would overwrite them.
static void refuse_unexplained_files(const Options& o) {
    const std::string name = unexplained_file(o.output, first_checkpoint(o));
    if (!name.empty() && !is_same_file(o.output + "/" + name, o.tokenizer))
        fail(
            "-y 1: %s holds %s, but no complete checkpoint (DONE_*) to resume from: put it back, or start at "
            "step 0 with --start-over, which moves such files to a subfolder earlier_N",
            o.output.c_str(), name.c_str());
}

// The state of the checkpoint with -y 1 if there is one, else the state of step 0.
static Start find_start(const Options& o, const FoundCheckpoint& found) {
    Start start = {.folder = o.output, .continues = o.resume};
    start.state.precision = stored_type_name(o.precision);
    start.state.seed = o.seed;
    start.state.coin_state = 1295 + o.seed;                       // llm.c's 1337 for the default seed
    if (start.state.coin_state == 0) start.state.coin_state = 1;  // xorshift stays at 0
    if (!o.resume) return start;
    for (const std::string& line : found.broken) print_line(stdout, "note: %s", line.c_str());
    if (found.step < 0 && !found.broken.empty())
        fail("-y 1: no checkpoint in %s is intact; %s", o.output.c_str(), found.broken.front().c_str());
    if (found.step < 0) {
        refuse_unexplained_files(o);
        print_line(stdout, "note: no checkpoint in %s yet, the run starts at step 0", o.output.c_str());
        return start;
    }
    start.step = found.step;
    start.resumed = true;
    if (!found.run.empty()) start.state = run_state_from_json(found.run, run_path(o.output, found.step));
    start.extra = find_extra_checkpoints(o.output);
    if (start.state.written_for != WrittenFor::schedule)
        start.extra[start.step] = start.state.written_for;  // in all processes, whatever they see
    print_line(stdout, "resuming %s at step %d%s", o.output.c_str(), found.step,
               found.run.empty() ? ", from llm.c's files alone: nothing verifies their content" : "");
    return start;
}

static void check_resume(const Options& o, const Start& start, int max_steps) {
    if (!start.resumed) return;
    const char* folder = start.folder.c_str();
    if (start.state.seed != o.seed)
        fail(
            "--seed %llu: the run in %s has --seed %llu and continues with its random numbers; leave it "
            "out, or start a new run in another folder",
            static_cast<unsigned long long>(o.seed), folder,
            static_cast<unsigned long long>(start.state.seed));
    if (start.step > max_steps && o.max_steps < 0)
        fail(
            "the run in %s has already done %s, and an epoch has %s with this -b, -t and -d: say with -x at "
            "which step the run ends",
            folder, counted(start.step, "step").c_str(), counted(max_steps, "step").c_str());
    if (start.step > max_steps)
        fail(
            "-x %d: the run in %s has already done %s: give a larger -x, leave it out, or start a new run in "
            "another folder",
            max_steps, folder, counted(start.step, "step").c_str());
    if (start.step == max_steps)
        printf("note: the run has already done its %s; a larger -x adds more\n",
               counted(max_steps, "step").c_str());
}

// --- data ---

static Mixture training_data(const Options& o, const RunInputs& inputs) {
    const DataPatterns& data = inputs.data;
    const int B = o.global_batch(), T = o.sequence, vocab_size = inputs.config.vocab_size;
    const uint64_t seed = inputs.start.state.seed;
    if (!data.shares.empty()) return Mixture(data.train, data.shares, B, T, vocab_size, seed);
    if (o.overfit) return Mixture(DataLoader(data.train, B, T, vocab_size, false));
    // a divided step, which is one batch, may be longer than the data
    return Mixture(DataLoader(data.train, B, T, vocab_size, true, seed, o.is_divided));
}

static std::string describe_shares(const std::vector<double>& shares) {
    std::string text;
    for (const double share : shares) text += format_string("%s%.4g", text.empty() ? "" : ", ", share);
    return text.empty() ? "one source without a weight" : "sources with the shares " + text;
}

// A mixture continues only as it began: with other sources, it would be another one.
static void check_same_mixture(const Start& start, const Mixture& mixture, int T) {
    const char* what_to_do = "resume with the run's own, or start a new run from its model with -e";
    const char* folder = start.folder.c_str();
    const SavedMixture& saved = start.state.mixture;
    if (saved.shares != mixture.shares)
        fail("-i names %s, and the run in %s has %s: %s", describe_shares(mixture.shares).c_str(), folder,
             describe_shares(saved.shares).c_str(), what_to_do);
    if (mixture.shares.empty()) return;
    if (start.state.shards != shards_of(mixture))
        fail("-i: the sources have other shards than when the run in %s was saved: %s", folder, what_to_do);
    if (start.state.chunk_tokens != uint64_t(T))
        fail("-t %d: the run in %s mixes sequences of %llu tokens: %s", T, folder,
             (unsigned long long)start.state.chunk_tokens, what_to_do);
    // which are all drawn again: a wrong number could take years
    if (const uint64_t tokens = start.state.tokens.value_or(0); saved.sequences != tokens / T)
        fail("%s is damaged: %llu sequences of %d tokens are not the %llu tokens of the run",
             run_path(start.folder, start.step).c_str(), (unsigned long long)saved.sequences, T,
             (unsigned long long)tokens);
}

// Other shards than when the checkpoint was written.
static void note_other_shards(const std::vector<SavedShard>& saved, const DataLoader& loader) {
    uint64_t before = 0;
    for (const SavedShard& shard : saved) before += shard.tokens;
    if (saved.empty() || have_content(loader, saved)) return;
    if (before == loader.num_tokens())
        printf(
            "note: the shards of -i are others, or have another order, than when the run was saved, with as "
            "many tokens: it continues with those that are there\n");
    else
        printf(
            "note: the shards of -i have %llu tokens, and had %llu when the run was saved: it continues with "
            "those that are there\n",
            (unsigned long long)loader.num_tokens(), (unsigned long long)before);
}

// The loader continues where the run in the checkpoint stopped.
static std::optional<Mixture> open_training_data(const Options& o, const RunInputs& inputs) {
    const Start& start = inputs.start;
    if (o.plans_only() && inputs.data.train.empty()) return std::nullopt;
    Mixture data = training_data(o, inputs);
    if (!start.resumed) return data;
    check_same_mixture(start, data, o.sequence);
    if (!data.shares.empty()) {
        data.skip(start.state.mixture.sequences);
        return data;
    }
    DataPosition at = start.optimizer.data;
    at.sample_tokens = start.state.chunk_tokens;  // 0 in a checkpoint of llm.c: as in this run
    at.token_in_sample = start.state.token_in_sample;
    at.first_token = start.state.first_token;
    data.resume({.of = {fit_position(at, start.state.shards, data.loaders[0])}, .drawn = {}});
    if (!o.overfit) note_other_shards(start.state.shards, data.loaders[0]);
    return data;
}

// Of a mixture, those of each source, or of all.
static std::vector<DataLoader> open_validation_data(const Options& o, const RunInputs& inputs) {
    std::vector<DataLoader> loaders;
    const DataPatterns& data = inputs.data;
    const int B = o.global_batch(), T = o.sequence, vocab_size = inputs.config.vocab_size;
    const uint64_t seed = inputs.start.state.seed;
    const bool is_of_sources = data.val.size() > 1 && !data.shares.empty();
    for (size_t i = 0; is_of_sources && i < data.val.size(); i++)
        loaders.emplace_back(std::vector{data.val[i]}, B, T, vocab_size, false, seed, true);
    if (!is_of_sources && !data.val.empty())
        loaders.emplace_back(data.val, B, T, vocab_size, false, seed, o.is_divided);
    return loaders;
}

uint64_t fewest_tokens(const DataPatterns& data) {
    uint64_t fewest = std::numeric_limits<uint64_t>::max();
    for (const auto* patterns : {&data.train, &data.val})
        if (!patterns->empty()) fewest = std::min(fewest, count_tokens(*patterns));
    return fewest;
}

uint64_t validation_tokens(const Options& o, const std::vector<DataLoader>& loaders) {
    const uint64_t per_batch = uint64_t(o.global_batch()) * uint64_t(o.sequence);
    uint64_t tokens = 0;
    for (const DataLoader& val : loaders) {
        const auto most = uint64_t(o.val_batches_each(loaders.size()));  // -1: all
        tokens += std::min(std::min(val.num_batches(), most) * per_batch, val.num_tokens());
    }
    return tokens;
}

double mean_over_sources(const RunInputs& inputs, const std::function<double(size_t)>& value) {
    if (inputs.val.size() == 1) return value(0);
    double mean = 0;
    for (size_t i = 0; i < inputs.val.size(); i++) mean += inputs.loader->shares[i] * value(i);
    return mean;
}

// Bits per byte of a loss of 1, of at most so many batches; NaN: unknown.
static double bits_per_nat(const Options& o, DataLoader& val, uint64_t most, const Tokenizer& tokenizer) {
    val.reset();
    std::vector<int> batch(size_t(o.global_batch()) * o.sequence), targets(batch.size());
    uint64_t tokens = 0, bytes = 0;
    for (uint64_t left = std::min(val.num_batches(), most); left > 0; left--) {
        const int fresh = val.next_batch(batch.data(), targets.data());
        for (int i = 0; i < fresh; i++) {
            if (targets[i] == ignored_target) continue;
            tokens++;
            if (targets[i] >= tokenizer.vocab_size()) return NAN;  // another tokenizer made them
            if (targets[i] != tokenizer.end_of_text) bytes += tokenizer.decode(targets[i]).size();
        }
    }
    return bytes ? double(tokens) / double(bytes) / std::log(2) : NAN;
}

std::vector<double> bits_per_nat(const Options& o, RunInputs& inputs) {
    std::vector<double> bits(inputs.val.size(), NAN);
    for (size_t i = 0; inputs.tokenizer && o.val_every && i < bits.size(); i++)
        bits[i] =
            bits_per_nat(o, inputs.val[i], uint64_t(o.val_batches_each(bits.size())), *inputs.tokenizer);
    return bits;
}

// Losses on other tokens do not compare with those before.
static void check_validations(const Options& o, const std::vector<DataLoader>& loaders, Start& start) {
    std::string text =
        format_string("%d, %llu", o.sequence, (unsigned long long)validation_tokens(o, loaders));
    for (const DataLoader& val : loaders)
        for (const SavedShard& shard : shards_of(val)) text += ", " + shard.checksum;
    const std::string data = checksum_of(text);
    Validations& v = start.state.validations;
    if (!v.data.empty() && v.data != data) {
        if (v.best_step >= 0)
            printf(
                "note: validations read other tokens than before: the best step so far, %d, is forgotten\n",
                v.best_step);
        if (v.best_step != start.step) start.extra.erase(v.best_step);
        v = {};
    }
    v.data = data;
}

static RunLength length_of(const Options& o, const std::optional<Mixture>& loader, const Start& start) {
    const int micro_batch = o.global_batch() * o.sequence;
    const int micro_steps = o.total_batch == -1 ? 1 : o.total_batch / micro_batch;
    const uint64_t batches = loader ? loader->num_batches() : 0;
    const double epochs = o.epochs > 0 ? o.epochs : 1;
    const double steps = std::clamp(epochs * double(batches / uint64_t(micro_steps)), 1.0, double(1 << 30));
    return {.micro_steps = micro_steps,
            .tokens_per_step = micro_steps * micro_batch,
            .first_step = start.step,
            .max_steps = o.max_steps >= 0 ? o.max_steps : int(steps)};
}

// The model that a resumed run continues, with the tokenizer that its checkpoint records.
static ModelSource resumed_model(const Start& start) {
    const std::string path = model_path(start.folder, start.step);
    ModelSource model = {.name = path, .path = path, .is_file = true, .tokenizer = {}};
    if (!start.state.tokenizer.empty())
        model.tokenizer = tokenizer_info_from_json(start.state.tokenizer, run_path(start.folder, start.step));
    return model;
}

// --- all of it ---

// The positions of the model that are trained once the run has made a step.
static int positions_after(const Start& start, const ModelSource& model, const ModelConfig& config, int T) {
    int before = 0;
    if (start.resumed)
        before = start.state.positions ? start.state.positions : config.max_seq_len;
    else if (model.is_file)
        before = trained_positions(model, config);
    return std::max(before, T);
}

RunInputs open_inputs(const Options& o, RunFolder& folder, Communicator& job, Verify verify) {
    Start start = find_start(o, open_folder(o, folder, job, verify));
    const std::optional<TokenizerInfo> data = tokenizer_of_shards(data_of(o));
    ModelSource model = start.resumed ? resumed_model(start) : find_model(o.model);
    const ModelConfig config = start.resumed ? read_model_header(model.path) : new_config(o, model, data);
    if (!model.chosen.empty()) print_line(stdout, "%s", model.chosen.c_str());
    if (start.resumed) refuse_other_shape(o, config, start);
    const std::string data_name = data_of(o).empty() ? "" : data_of(o)[0];
    if (data) check_data_fits(*data, data_name, model, config);
    std::optional<Tokenizer> tokenizer;
    if (!o.plans_only() || data || !parse_bpe(o.tokenizer))  // else it is not trained yet
        tokenizer =
            tokenizer_for(o.tokenizer, model, config.vocab_size, data ? data : model.tokenizer, data_name);
    // plain data keeps the template of a model of questions and answers
    if (tokenizer && model.tokenizer && chat_template_of(tokenizer->roles).empty())
        take_chat_template(*tokenizer, *model.tokenizer);
    start.state.positions = positions_after(start, model, config, o.sequence);
    check_sequence(o, config);
    if (start.resumed) {
        start.optimizer = read_optimizer_state(optimizer_path(start.folder, start.step), config);
        if (const OptimizerKind kind = start.optimizer.share.kind; kind != o.optimizer)
            fail(
                "-y 1: the checkpoint of step %d was written with --optimizer %s: resume with that, or start "
                "from its model with -e and another folder -o",
                start.step, optimizer_info(kind).name);
    }
    std::vector<HellaSwagExample> examples;
    if (o.runs_hellaswag()) examples = read_hellaswag(o.hellaswag_file, config.vocab_size);
    if (!examples.empty()) make_hellaswag_rows(examples, o.sequence);  // an Error now, not after -v steps
    RunInputs inputs = {.model = model,
                        .tokenizer = std::move(tokenizer),
                        .made_with = data ? data : model.tokenizer,
                        .data_names_tokenizer = data.has_value(),
                        .start = std::move(start),
                        .config = config,
                        .data = patterns_of(o),
                        .hellaswag_file = o.runs_hellaswag() ? o.hellaswag_file : "",
                        .examples = std::move(examples)};
    if (!o.may_choose_batch()) open_data(o, inputs, job.rank == 0);
    return inputs;
}

static std::vector<TokenShard> files_of(const std::vector<DataLoader>& loaders) {
    std::vector<TokenShard> files;
    for (const DataLoader& loader : loaders)
        for (const DataLoader::Shard& shard : loader.all_shards())
            files.insert(files.end(), shard.files.begin(), shard.files.end());
    return files;
}

// Error if sequences of -t tokens cut questions and answers. Masks of earlier versions do not say it.
static void check_packing(int T, const std::vector<TokenShard>& files, int positions, bool is_first_process) {
    std::string unknown;
    for (const TokenShard& file : files) {
        if (file.cuts_examples(T))
            fail(
                "-t %d cuts the examples of %s, which are packed into sequences of %d tokens: %sprepare them "
                "again with -t %d",
                T, file.path.c_str(), file.packed,
                file.packed > positions ? "" : format_string("use -t %d, or ", file.packed).c_str(), T);
        if (file.mask && !file.packed) unknown = mask_of(file.path);
    }
    if (!unknown.empty() && is_first_process)
        warn("%s does not say into which sequences its examples are packed: -t %d cuts others",
             unknown.c_str(), T);
}

static bool has_mask(const std::vector<TokenShard>& files) {
    return std::ranges::any_of(files, [](const TokenShard& file) { return file.mask != nullptr; });
}

void open_data(const Options& o, RunInputs& inputs, bool is_first_process) {
    const int vocab_size = inputs.config.vocab_size;
    const int positions =
        inputs.model.names_positions() ? inputs.config.max_seq_len : std::numeric_limits<int>::max();
    inputs.val = open_validation_data(o, inputs);
    if (!inputs.val.empty()) check_validations(o, inputs.val, inputs.start);
    inputs.loader = open_training_data(o, inputs);
    const std::vector<TokenShard> val = files_of(inputs.val);
    const std::vector<TokenShard> train =
        inputs.loader ? files_of(inputs.loader->loaders) : std::vector<TokenShard>();
    check_packing(o.sequence, val, positions, false);
    check_packing(o.sequence, train, positions, is_first_process);
    if (const bool counts_answers = has_mask(val);
        !val.empty() && !train.empty() && counts_answers != has_mask(train) && is_first_process)
        warn("the validation loss counts %s, and the training loss %s: they do not compare",
             counts_answers ? "answers alone" : "all tokens",
             counts_answers ? "all tokens" : "answers alone");
    if (!inputs.data_names_tokenizer && inputs.loader && is_first_process)
        warn_of_bytes(inputs.loader->loaders[0].all_shards().front().files, vocab_size);
    inputs.length = length_of(o, inputs.loader, inputs.start);
    const int max_steps = inputs.length.max_steps;
    check_resume(o, inputs.start, max_steps);
    if (o.warmup > max_steps && inputs.loader && is_first_process)
        warn("-u %d: the warm-up is longer than the run of %s, which never reaches the learning rate of -l",
             o.warmup, counted(max_steps, "step").c_str());
}

// The room that the run's checkpoints need; a resumed run first deletes old ones.
static void make_room(const Options& o, const RunInputs& inputs, const OptimizerShare& share) {
    const int every = o.checkpoint_every, left = inputs.length.steps_left();
    const std::string& folder = inputs.start.folder;
    if (inputs.start.resumed)
        prune_checkpoints(folder, {.newest = inputs.start.step,
                                   .keep = o.keep_checkpoints,
                                   .major = o.major_checkpoint_every,
                                   .healthy = inputs.start.state.healthy_checkpoint,
                                   .best = o.keep_best ? inputs.start.state.validations.best_step : -1,
                                   .extra = inputs.start.extra});
    if (every == 0 || left == 0) return;
    OptimizerState state;
    state.use_master_weights = o.master_weights && o.precision != StoredType::fp32;
    state.data = inputs.loader->loaders[0].position();
    state.share = share;
    const uint64_t bytes = checkpoint_bytes(inputs.config, state, o.precision == StoredType::bf16);
    const int existing = inputs.start.resumed ? int(list_checkpoints(folder).size()) : 0;
    const int at_end_only = 1, count = every > 0 ? (left - 1) / every + 1 : at_end_only;
    const int best = o.saves_best(), keep = o.keep_checkpoints;
    check_room_for_run(folder, bytes, existing, count + best, keep ? keep + best : 0);
}

// The learning rate of a step, counted from 0, in a run of so many steps.
static float rate_of(const Options& o, int step, int steps) {
    return learning_rate({.schedule = o.scheduler,
                          .peak = o.learning_rate,
                          .warmup_steps = o.warmup,
                          .num_steps = steps,
                          .final_fraction = o.final_fraction},
                         step);
}

// The rate of the next step follows the schedule over the run's new length: it may be far above the rate of
// the last step. No note where that rate, or what the old schedule would have had here, goes on.
static void note_changed_rate(const Options& o, const RunInputs& inputs, const std::string& before) {
    const int step = inputs.start.step, now = inputs.length.max_steps;
    if (!inputs.start.resumed || step < 1 || step >= now) return;
    Options old;
    OptionTable table = option_table(old);
    read_options(table, before, "the options before", Source::run);
    const int recorded = inputs.start.state.max_steps, steps = recorded > 0 ? recorded : old.max_steps;
    if (steps < 1 || steps == now) return;
    const bool names_muon = o.muon_learning_rate > 0 || old.muon_learning_rate > 0;
    const auto constant_at = [&](float adamw, const Options& of) {
        const float muon = adamw * of.muon_rate_over_adamw_rate();
        return format_string("-k constant -l %.3g -u 0%s", adamw,
                             names_muon ? format_string(" --muon-lr %.3g", muon).c_str() : "");
    };
    const float rate = rate_of(o, step, now), last_rate = rate_of(old, step - 1, steps);
    const std::string next = constant_at(rate, o), last = constant_at(last_rate, old);
    if (next == last || next == constant_at(rate_of(old, step, steps), old)) return;
    printf(
        "note: the learning rate follows its schedule over %s: it is %.3g at step %d, and was %.3g at step "
        "%d; %s continues at that rate\n",
        counted(now, "step").c_str(), rate, step + 1, last_rate, step, last.c_str());
}

// Fewer processes, or another batch, change what a step learns from.
static void note_changed_step(const RunInputs& inputs) {
    const int step = inputs.start.step, now = inputs.length.tokens_per_step;
    const uint64_t before = inputs.start.state.tokens.value_or(0);  // llm.c records none
    if (!inputs.start.resumed || step < 1 || before == 0 || before % uint64_t(step) ||
        before / uint64_t(step) == uint64_t(now))
        return;
    printf("note: a step has %d tokens, and had %llu; -d keeps them the same for any number of processes\n",
           now, (unsigned long long)(before / uint64_t(step)));
}

OptimizerOptions optimizer_options(const Options& o) {
    return {.master_weights = o.master_weights,
            .beta1 = o.beta1,
            .beta2 = o.beta2,
            .epsilon = o.epsilon,
            .weight_decay = o.weight_decay,
            .momentum = o.momentum,
            .muon_rate_over_adamw_rate = o.muon_rate_over_adamw_rate(),
            .offload = o.offloads_optimizer()};
}

void take_folder(Options& o, RunInputs& inputs, const OptimizerShare& share, const Lease& lease,
                 Communicator& job) {
    const Start& start = inputs.start;
    if (start.folder.empty()) return;
    job.agree([&] {
        if (job.rank > 0) return;
        if (!start.continues) {
            make_room(o, inputs, share);
            lease.check();
            move_earlier_run(start.folder);
        }
        place_staged_tokens(o);
    });
    if (!has_staged_tokens(o)) return;
    name_placed_tokens(o);
    inputs.data = patterns_of(o);
    job.agree([&] {
        const std::vector<SavedShard> staged = shards_of(*inputs.loader);
        if (inputs.data_names_tokenizer) inputs.made_with = tokenizer_of_shards(data_of(o));
        open_data(o, inputs, false);
        if (shards_of(*inputs.loader) != staged)  // a network file system may show what was there before
            fail("the tokens in %s are not those that were prepared: start again", start.folder.c_str());
    });
}

void begin_output(const Options& o, const RunInputs& inputs, const OptimizerShare& share, MainLog& log) {
    const Start& start = inputs.start;
    if (start.folder.empty()) return;
    std::string before = start.state.options;  // that made the checkpoint, if it says so
    if (const std::string path = options_path(start.folder);
        start.resumed && before.empty() && file_exists(path))
        before = read_whole_file(path);
    for (const std::string& line : changed_options(before, o)) print_line(stdout, "note: %s", line.c_str());
    note_changed_rate(o, inputs, before);
    note_changed_step(inputs);
    log.tokens_per_step = inputs.length.tokens_per_step;
    log.first_step = start.step;
    log.tokens_before = inputs.tokens_before(start.step);
    log.open(start.folder, start.continues ? start.step : -1, o.tensorboard, [&] {
        for (const char* name : {"main.log", "metrics.csv", "options.toml", "tokenizer.bin"})
            check_can_move(start.folder + "/" + name);
        if (start.continues) make_room(o, inputs, share);  // deletes checkpoints
        write_whole_file(options_path(start.folder),
                         {options_text(o)});  // without it, logs are somebody else's
    });
}

std::string recorded_tokenizer(const RunInputs& inputs) {
    const std::string& folder = inputs.start.folder;
    if (folder.empty()) return "";
    std::optional<TokenizerInfo> info = inputs.made_with;
    if (inputs.tokenizer) info = keep_tokenizer(*inputs.tokenizer, folder + "/tokenizer.bin");
    const std::optional<TokenizerInfo>& before = inputs.made_with;
    if (before && before->checksum == info->checksum) info->name = before->name;  // not a copy's
    return info ? tokenizer_info_to_json(*info, folder) : "";
}
