// llm.c's checkpoints: see checkpoint.h. Files are checked completely before they are used.
#include "llmc/files/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/real.h"
#include "llmc/base/warning.h"

static constexpr int header_ints = 256;
static constexpr uint64_t header_bytes = header_ints * sizeof(int32_t);
static constexpr int32_t model_magic = 20240326, fp32_version = 3, bf16_version = 5;
static constexpr int32_t state_magic = 20240527, state_version = 1;

// --- reading and writing files ---

static void read_exactly(const File& file, const std::string& path, void* outp, size_t bytes) {
    if (bytes > 0 && fread(outp, 1, bytes, file.get()) != bytes)
        fail("cannot read %s to its end", path.c_str());
}

static void skip_bytes(const File& file, const std::string& path, uint64_t bytes) {
    if (fseeko(file.get(), off_t(bytes), SEEK_CUR) != 0)
        fail("cannot read %s: %s", path.c_str(), strerror(errno));
}

static void read_header(const File& file, const std::string& path, int32_t* header, int32_t magic,
                        const char* what) {
    if (size_of(file, path) < header_bytes) fail("%s is too short for %s", path.c_str(), what);
    read_exactly(file, path, header, header_bytes);
    if (header[0] != magic) {
        fail("%s is not %s: it starts with %d instead of %d", path.c_str(), what, header[0], magic);
    }
}

// Length and checksum of a file as written, for the checkpoint's run_%08d.json.
struct FileSeal {
    uint64_t bytes = 0;
    std::string checksum;
};

struct SealedWriter {
    FileWriter file;
    Checksum sum;
    explicit SealedWriter(const std::string& path) : file(path) {}
    void write(const void* data, size_t count) {
        file.write(data, count);
        sum.add(data, count);
    }
    FileSeal finish() {
        file.finish();
        return {sum.bytes, sum.text()};
    }
};

// Calls visit(tensor, offset, count) for all tensors in model order, in chunks of at most tensor_chunk
// elements.
template <typename Visit>
static void for_each_chunk(const ModelConfig& config, Visit visit) {
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
        size_t size = parameter_size(config, tensor);
        for (size_t offset = 0; offset < size; offset += tensor_chunk) {
            visit(tensor, offset, std::min(tensor_chunk, size - offset));
        }
    }
}

// --- model ---

// Reads and checks the header and the file's length. Leaves the file at the first tensor.
static ModelConfig check_model(const File& file, const std::string& path, bool& in_bf16) {
    int32_t header[header_ints];
    read_header(file, path, header, model_magic, "an llm.c model checkpoint");
    if (header[1] != fp32_version && header[1] != bf16_version) {
        fail("%s is a model checkpoint of version %d; versions 3 (fp32) and 5 (bf16) can be read",
             path.c_str(), header[1]);
    }
    in_bf16 = header[1] == bf16_version;
    ModelConfig config = {header[2], header[3], header[7], header[4], header[5], header[6]};
    validate(config, path);
    uint64_t size = size_of(file, path), expected = header_bytes + num_parameters(config) * (in_bf16 ? 2 : 4);
    if (size != expected) {
        fail("%s is %s: it has %llu bytes, but the %llu parameters of its header take %llu", path.c_str(),
             size < expected ? "truncated" : "too long", (unsigned long long)size,
             (unsigned long long)num_parameters(config), (unsigned long long)expected);
    }
    return config;
}

ModelConfig read_model_header(const std::string& path) {
    File file = open_to_read(path);
    bool in_bf16;
    return check_model(file, path, in_bf16);
}

void read_model(const std::string& path, const WriteTensor& write) {
    File file = open_to_read(path);
    bool in_bf16;
    ModelConfig config = check_model(file, path, in_bf16);
    size_t most = std::min(tensor_chunk, num_parameters(config));
    std::vector<float> values(most);
    std::vector<bf16> halves(in_bf16 ? most : 0);
    for_each_chunk(config, [&](int tensor, size_t offset, size_t count) {
        if (in_bf16) {
            read_exactly(file, path, halves.data(), count * sizeof(bf16));
            std::copy_n(halves.begin(), count, values.begin());
        } else {
            read_exactly(file, path, values.data(), count * sizeof(float));
        }
        write(tensor, offset, values.data(), count);
    });
}

static FileSeal write_sealed_model(const std::string& path, const ModelConfig& config, const ReadTensor& read,
                                   bool in_bf16) {
    validate(config, path);
    int32_t header[header_ints] = {model_magic,        in_bf16 ? bf16_version : fp32_version,
                                   config.max_seq_len, config.vocab_size,
                                   config.num_layers,  config.num_heads,
                                   config.channels,    config.padded_vocab_size};
    SealedWriter file(path);
    file.write(header, header_bytes);
    size_t most = std::min(tensor_chunk, num_parameters(config));
    std::vector<float> values(most);
    std::vector<bf16> halves(in_bf16 ? most : 0);
    for_each_chunk(config, [&](int tensor, size_t offset, size_t count) {
        read(tensor, offset, values.data(), count);
        if (in_bf16) {
            std::transform(values.begin(), values.begin() + count, halves.begin(),
                           [](float value) { return bf16(value); });
            file.write(halves.data(), count * sizeof(bf16));
        } else {
            file.write(values.data(), count * sizeof(float));
        }
    });
    return file.finish();
}

void write_model(const std::string& path, const ModelConfig& config, const ReadTensor& read, bool in_bf16) {
    write_sealed_model(path, config, read, in_bf16);
}

// --- optimizer state ---

// Indices of the header's ints, as in llm.c.
enum StateField {
    NUM_PROCESSES = 2,
    PROCESS_RANK = 3,
    USE_MASTER_WEIGHTS = 4,
    SHOULD_SHUFFLE = 5,
    STEP = 10,
    RNG_STATE = 20,  // this and the following are uint64 and take two ints each
    RNG_STATE_LAST_UPDATE = 22,
    CURRENT_SHARD = 30,
    CURRENT_SAMPLE = 32
};

static uint64_t get64(const int32_t* header, StateField field) {
    uint64_t value;
    memcpy(&value, header + field, sizeof value);
    return value;
}

static void set64(int32_t* header, StateField field, uint64_t value) {
    memcpy(header + field, &value, sizeof value);
}

static uint64_t moment_bytes(const ModelConfig& config, bool use_master_weights) {
    return num_parameters(config) * sizeof(float) * (use_master_weights ? 3 : 2);
}

// Reads a count and that many int32. `left` is the number of bytes to the end of the file; it is updated.
static std::vector<int32_t> read_indices(const File& file, const std::string& path, uint64_t& left) {
    uint64_t count = 0;
    if (left >= sizeof count) read_exactly(file, path, &count, sizeof count);
    if (left < sizeof count || count > (left - sizeof count) / sizeof(int32_t)) {
        fail("%s is truncated or damaged: the order of its data ends too early", path.c_str());
    }
    std::vector<int32_t> values(count);
    read_exactly(file, path, values.data(), count * sizeof(int32_t));
    left -= sizeof count + count * sizeof(int32_t);
    return values;
}

static OptimizerState check_state_header(const File& file, const std::string& path,
                                         const ModelConfig& config) {
    int32_t header[header_ints];
    read_header(file, path, header, state_magic, "an llm.c optimizer state");
    if (header[1] != state_version) {
        fail("%s is an optimizer state of version %d; only version %d can be read", path.c_str(), header[1],
             state_version);
    }
    if (header[NUM_PROCESSES] != 1 || header[PROCESS_RANK] != 0) {
        fail("%s was written by process %d in a run of %d; only runs of one process can be resumed",
             path.c_str(), header[PROCESS_RANK], header[NUM_PROCESSES]);
    }
    for (StateField flag : {USE_MASTER_WEIGHTS, SHOULD_SHUFFLE}) {
        if (header[flag] != 0 && header[flag] != 1) {
            fail("%s is damaged: header field %d is %d instead of 0 or 1", path.c_str(), flag, header[flag]);
        }
    }
    if (header[STEP] < 0) fail("%s is damaged: its step is %d", path.c_str(), header[STEP]);
    OptimizerState state;
    state.use_master_weights = header[USE_MASTER_WEIGHTS];
    state.step = header[STEP];
    state.rng_state = get64(header, RNG_STATE);
    state.rng_state_last_update = get64(header, RNG_STATE_LAST_UPDATE);
    state.data.should_shuffle = header[SHOULD_SHUFFLE];
    state.data.current_shard = get64(header, CURRENT_SHARD);
    state.data.current_sample = get64(header, CURRENT_SAMPLE);
    uint64_t size = size_of(file, path),
             least = header_bytes + moment_bytes(config, state.use_master_weights);
    if (size < least) {
        fail(
            "%s is truncated or belongs to another model: it has %llu bytes, but the moments of %llu "
            "parameters alone take %llu",
            path.c_str(), (unsigned long long)size, (unsigned long long)num_parameters(config),
            (unsigned long long)least);
    }
    return state;
}

OptimizerState read_optimizer_state(const std::string& path, const ModelConfig& config) {
    File file = open_to_read(path);
    OptimizerState state = check_state_header(file, path, config);
    uint64_t moments = moment_bytes(config, state.use_master_weights);
    uint64_t left = size_of(file, path) - header_bytes - moments;
    skip_bytes(file, path, moments);
    if (state.data.should_shuffle) {
        state.data.shard_indices = read_indices(file, path, left);
        state.data.intra_shard_indices = read_indices(file, path, left);
        uint8_t random[random_state_bytes];
        if (left < sizeof random)
            fail("%s is truncated: the state of its shuffling generator is missing", path.c_str());
        read_exactly(file, path, random, sizeof random);
        try {
            state.data.shuffle_random = load_random(random);
        } catch (const Error& error) {
            fail("%s: %s", path.c_str(), error.what());
        }
        left -= sizeof random;
    }
    if (left != 0) {
        fail("%s is too long or belongs to another model: %llu bytes follow its end", path.c_str(),
             (unsigned long long)left);
    }
    return state;
}

void read_moments(const std::string& path, const ModelConfig& config, const WriteMoment& write) {
    bool use_master_weights = read_optimizer_state(path, config).use_master_weights;
    File file = open_to_read(path);
    skip_bytes(file, path, header_bytes);
    std::vector<float> values(std::min(tensor_chunk, num_parameters(config)));
    for (Moment moment : {MOMENT_M, MOMENT_V, MASTER_WEIGHTS}) {
        if (moment == MASTER_WEIGHTS && !use_master_weights) break;
        for_each_chunk(config, [&](int tensor, size_t offset, size_t count) {
            read_exactly(file, path, values.data(), count * sizeof(float));
            write(moment, tensor, offset, values.data(), count);
        });
    }
}

static void write_indices(SealedWriter& file, const std::vector<int32_t>& values) {
    uint64_t count = values.size();
    file.write(&count, sizeof count);
    file.write(values.data(), count * sizeof(int32_t));
}

static FileSeal write_sealed_state(const std::string& path, const ModelConfig& config,
                                   const OptimizerState& state, const ReadMoment& read) {
    int32_t header[header_ints] = {state_magic, state_version};
    header[NUM_PROCESSES] = 1;
    header[USE_MASTER_WEIGHTS] = state.use_master_weights;
    header[SHOULD_SHUFFLE] = state.data.should_shuffle;
    header[STEP] = state.step;
    set64(header, RNG_STATE, state.rng_state);
    set64(header, RNG_STATE_LAST_UPDATE, state.rng_state_last_update);
    set64(header, CURRENT_SHARD, state.data.current_shard);
    set64(header, CURRENT_SAMPLE, state.data.current_sample);
    SealedWriter file(path);
    file.write(header, header_bytes);
    std::vector<float> values(std::min(tensor_chunk, num_parameters(config)));
    for (Moment moment : {MOMENT_M, MOMENT_V, MASTER_WEIGHTS}) {
        if (moment == MASTER_WEIGHTS && !state.use_master_weights) break;
        for_each_chunk(config, [&](int tensor, size_t offset, size_t count) {
            read(moment, tensor, offset, values.data(), count);
            file.write(values.data(), count * sizeof(float));
        });
    }
    if (state.data.should_shuffle) {
        write_indices(file, state.data.shard_indices);
        write_indices(file, state.data.intra_shard_indices);
        uint8_t random[random_state_bytes];
        save_random(state.data.shuffle_random, random);
        file.write(random, sizeof random);
    }
    return file.finish();
}

void write_optimizer_state(const std::string& path, const ModelConfig& config, const OptimizerState& state,
                           const ReadMoment& read) {
    write_sealed_state(path, config, state, read);
}

// --- run_%08d.json: {"checksum": ..., "content": {"files": ..., "run": ...}} ---
// The checksum is computed over the content, printed as compact JSON.

static void write_run_file(const std::string& path, const FileSeal& model, const FileSeal& state,
                           const std::string& run) {
    auto seal = [](const FileSeal& s) { return nlohmann::json{{"bytes", s.bytes}, {"xxh3", s.checksum}}; };
    const nlohmann::json content = {{"files", {{"model", seal(model)}, {"state", seal(state)}}},
                                    {"run", parse_json_object(run, "the run's state")}};
    const nlohmann::json file = {{"checksum", checksum_of(json_text(content))}, {"content", content}};
    write_whole_file(path, {json_text(file, 1), "\n"});
}

static nlohmann::json read_run_file(const std::string& path) {
    const nlohmann::json file = parse_json_object(read_whole_file(path, max_json_bytes), path);
    if (!file.contains("content") || !file.contains("checksum") ||
        file["checksum"] != checksum_of(json_text(file["content"])))
        fail("%s is damaged: its checksum does not match its content", path.c_str());
    return file["content"];
}

static void check_seal(const std::string& path, const nlohmann::json& seal) {
    File file = open_to_read(path);
    const uint64_t bytes = seal.at("bytes"), size = size_of(file, path);
    if (size != bytes)
        fail("%s is damaged: it has %llu bytes, but %llu were written", path.c_str(),
             (unsigned long long)size, (unsigned long long)bytes);
    Checksum sum;
    std::vector<char> piece(1 << 20);
    for (uint64_t left = bytes; left;) {
        const size_t count = std::min<uint64_t>(left, piece.size());
        read_exactly(file, path, piece.data(), count);
        sum.add(piece.data(), count);
        left -= count;
    }
    if (seal.at("xxh3") != sum.text())
        fail("%s is damaged: its checksum does not match its content", path.c_str());
}

// --- checkpoints as sets of files ---

std::string model_path(const std::string& dir, int step) {
    return format_string("%s/model_%08d.bin", dir.c_str(), step);
}

std::string optimizer_path(const std::string& dir, int step) {
    return format_string("%s/state_%08d_%05d.bin", dir.c_str(), step, 0);
}

std::string done_path(const std::string& dir, int step) {
    return format_string("%s/DONE_%08d", dir.c_str(), step);
}

std::string run_path(const std::string& dir, int step) {
    return format_string("%s/run_%08d.json", dir.c_str(), step);
}

uint64_t checkpoint_bytes(const ModelConfig& config, const OptimizerState& state, bool in_bf16) {
    const uint64_t order = state.data.shard_indices.size() + state.data.intra_shard_indices.size();
    const uint64_t others = 64 << 10;  // headers, the state of the random numbers, run_%08d.json
    return num_parameters(config) * (in_bf16 ? 2 : 4) + moment_bytes(config, state.use_master_weights) +
           order * sizeof(int32_t) + others;
}

static std::string mib(uint64_t bytes) { return format_string("%.1f MiB", double(bytes) / (1 << 20)); }

void check_room(const std::string& dir, uint64_t bytes) {
    const uint64_t room = free_bytes(dir);
    if (room < bytes)
        fail(
            "no room for a checkpoint in %s: it takes %s, and %s are free; free some space, for example by "
            "removing old checkpoints, and resume with -y 1",
            dir.c_str(), mib(bytes).c_str(), mib(room).c_str());
}

struct Checkpoint {
    const ModelConfig& config;
    const OptimizerState& optimizer;
    const ReadTensor& read_tensor;
    const ReadMoment& read_moment;
    bool in_bf16;
    const std::string& run;
};

static void write_files(const std::string& dir, const Checkpoint& c) {
    const int step = c.optimizer.step;
    const FileSeal model = write_sealed_model(model_path(dir, step), c.config, c.read_tensor, c.in_bf16);
    const FileSeal state =
        write_sealed_state(optimizer_path(dir, step), c.config, c.optimizer, c.read_moment);
    write_run_file(run_path(dir, step), model, state, c.run);
    sync_folder(dir);  // makes all names durable before DONE
    write_whole_file(done_path(dir, step), {});
    sync_folder(dir);
}

// The mark of a checkpoint that is being written or deleted: without DONE, its files are worth nothing.
static std::string mark_path(const std::string& dir, int step) {
    return format_string("%s/unfinished_%08d", dir.c_str(), step);
}

// Turns DONE, if it is there, into the mark. Returns whether it was. A full disk does not prevent it.
static bool turn_done_into_mark(const std::string& dir, int step) {
    if (!file_exists(done_path(dir, step))) return false;
    rename_file(done_path(dir, step), mark_path(dir, step));
    sync_folder(dir);
    return true;
}

// For work whose failure must not hide an error or undo a success; the next start repeats it.
static void try_to(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error&) {
    }
}

// After an error, no file of the step is left unless it had a checkpoint before.
static void write_or_remove(const std::string& dir, const Checkpoint& checkpoint, bool overwrites) {
    const int step = checkpoint.optimizer.step;
    try {
        if (!overwrites) {
            write_whole_file(mark_path(dir, step), {});
            sync_folder(dir);
        }
        write_files(dir, checkpoint);
    } catch (...) {
        if (!overwrites) try_to([&] { delete_checkpoint(dir, step); });
        throw;
    }
}

void write_checkpoint(const std::string& dir, const ModelConfig& config, const OptimizerState& state,
                      const ReadTensor& read_tensor, const ReadMoment& read_moment, bool in_bf16,
                      const std::string& run) {
    create_folders(dir);
    check_room(dir, checkpoint_bytes(config, state, in_bf16));
    const Checkpoint checkpoint = {config, state, read_tensor, read_moment, in_bf16, run};
    const bool overwrites = turn_done_into_mark(dir, state.step);
    try {
        write_or_remove(dir, checkpoint, overwrites);
    } catch (const FileError& error) {
        warn(format_string("the checkpoint of step %d was not written: %s; it is written again", state.step,
                           error.what()));
        write_or_remove(dir, checkpoint, overwrites);
    }
    try_to([&] { remove_file(mark_path(dir, state.step)); });
}

// The step in a file's name; -1 if the name does not follow the format, which ends in %n.
static int step_in(const std::string& name, const char* format) {
    int step = -1, length = 0;
    if (sscanf(name.c_str(), format, &step, &length) != 1 || size_t(length) != name.size()) return -1;
    return step;
}

// Steps with a file of this format, newest first.
static std::vector<int> steps_of(const std::string& dir, const char* format) {
    std::vector<int> steps;
    for (const std::string& name : names_in(dir))
        if (const int step = step_in(name, format); step >= 0) steps.push_back(step);
    std::sort(steps.rbegin(), steps.rend());
    return steps;
}

std::vector<int> list_checkpoints(const std::string& dir) { return steps_of(dir, "DONE_%8d%n"); }

void remove_unfinished_checkpoints(const std::string& dir) {
    for (int step : steps_of(dir, "unfinished_%8d%n")) {
        if (file_exists(done_path(dir, step)))
            remove_file(mark_path(dir, step));  // the checkpoint was complete when the program stopped
        else
            delete_checkpoint(dir, step);
    }
}

std::vector<int> list_checkpoints_without_done(const std::string& dir) {
    const std::vector<int> complete = list_checkpoints(dir);
    std::set<int> steps;
    for (const char* format : {"state_%8d_00000.bin%n", "run_%8d.json%n"})
        for (int step : steps_of(dir, format))
            if (!std::binary_search(complete.rbegin(), complete.rend(), step)) steps.insert(step);
    return {steps.begin(), steps.end()};
}

std::string read_run(const std::string& dir, int step) {
    const std::string path = run_path(dir, step);
    try {
        return json_text(read_run_file(path).at("run"));
    } catch (const nlohmann::json::exception&) {
        fail("%s was not written by this program", path.c_str());
    }
}

std::string check_model_of_checkpoint(const std::string& dir, int step) {
    const std::string path = run_path(dir, step);
    if (!file_exists(path)) return "";
    try {
        const nlohmann::json content = read_run_file(path);
        check_seal(model_path(dir, step), content.at("files").at("model"));
        return json_text(content.at("run"));
    } catch (const nlohmann::json::exception&) {
        fail("%s was not written by this program", path.c_str());
    }
}

// Whether the folder's run writes run_%08d.json: llm.c writes neither this nor options.toml.
static bool has_run_files(const std::string& dir) {
    return !steps_of(dir, "run_%8d.json%n").empty() || file_exists(dir + "/options.toml");
}

std::string check_checkpoint(const std::string& dir, int step, Unverified unverified) {
    const std::string model = model_path(dir, step), state = optimizer_path(dir, step),
                      path = run_path(dir, step);
    std::string run;
    if (file_exists(path)) {
        try {
            const nlohmann::json content = read_run_file(path);
            check_seal(model, content.at("files").at("model"));
            check_seal(state, content.at("files").at("state"));
            run = json_text(content.at("run"));
        } catch (const nlohmann::json::exception&) {
            fail("%s was not written by this program", path.c_str());
        }
    } else if (unverified == Unverified::refuse && has_run_files(dir)) {
        fail(
            "%s is missing, which the run had: without it the other files cannot be verified; "
            "--resume-unverified accepts them as they are",
            path.c_str());
    }
    const OptimizerState found = read_optimizer_state(state, read_model_header(model));
    if (found.step != step) fail("%s belongs to step %d", state.c_str(), found.step);
    return run;
}

FoundCheckpoint find_latest_checkpoint(const std::string& dir, Unverified unverified) {
    FoundCheckpoint found;
    for (int step : list_checkpoints(dir)) {
        try {
            found.run = check_checkpoint(dir, step, unverified);
            found.step = step;
            return found;
        } catch (const Error& error) {
            found.broken.push_back(
                format_string("the checkpoint of step %d is broken: %s", step, error.what()));
        }
    }
    return found;
}

void delete_checkpoint(const std::string& dir, int step) {
    turn_done_into_mark(dir, step);
    remove_file(model_path(dir, step));
    remove_file(run_path(dir, step));
    remove_file(optimizer_path(dir, step));
    remove_file(mark_path(dir, step));
}
