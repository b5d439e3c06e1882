#include "llmc/files/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <set>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/os.h"
#include "llmc/base/paths.h"
#include "llmc/base/real.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"
#include "llmc/files/stored_type.h"

static constexpr int32_t model_magic = 20240326, fp32_version = 3, bf16_version = 5;

// --- model ---

// Reads and checks the header and the file's length. Leaves the file at the first tensor.
static ModelConfig check_model(const File& file, const std::string& path, bool& in_bf16) {
    int32_t header[header_ints];
    read_header(file, path, header, model_magic, "an llm.c model checkpoint");
    if (header[1] != fp32_version && header[1] != bf16_version)
        fail("%s is a model checkpoint of version %d; versions 3 (fp32) and 5 (bf16) can be read",
             path.c_str(), header[1]);
    in_bf16 = header[1] == bf16_version;
    ModelConfig config = {header[2], header[3], header[7], header[4], header[5], header[6]};
    validate(config, path);
    uint64_t size = size_of(file, path), expected = header_bytes + num_parameters(config) * (in_bf16 ? 2 : 4);
    if (size != expected)
        fail("%s is %s: it has %llu bytes, but the %llu parameters of its header take %llu", path.c_str(),
             size < expected ? "truncated" : "too long", (unsigned long long)size,
             (unsigned long long)num_parameters(config), (unsigned long long)expected);
    return config;
}

ModelConfig read_model_header(const std::string& path) {
    File file = open_to_read(path);
    bool in_bf16;
    return check_model(file, path, in_bf16);
}

void read_model(const std::string& path, const WriteTensor& write, const FileSeal* seal) {
    File file = open_to_read(path);
    bool in_bf16;
    ModelConfig config = check_model(file, path, in_bf16);
    ContentCheck content(file, path, seal);
    size_t most = std::min(tensor_chunk, num_parameters(config));
    std::vector<float> values(most);
    std::vector<bf16> halves(in_bf16 ? most : 0);
    for_each_chunk(config, {}, MASTER_WEIGHTS, [&](int tensor, size_t offset, size_t count) {
        if (in_bf16) {
            content.read(halves.data(), count * sizeof(bf16));
            std::copy_n(halves.begin(), count, values.begin());
        } else {
            content.read(values.data(), count * sizeof(float));
        }
        write(tensor, offset, values.data(), count);
    });
    content.finish();
}

FileSeal write_model(const std::string& path, const ModelConfig& config, const ReadTensor& read,
                     bool in_bf16) {
    validate(config, path);
    int32_t header[header_ints] = {model_magic,        in_bf16 ? bf16_version : fp32_version,
                                   config.max_seq_len, config.vocab_size,
                                   config.num_layers,  config.num_heads,
                                   config.channels,    config.padded_vocab_size};
    SealedWriter file(path);
    const WriteBytes write = [&](const void* bytes, size_t count) { file.write(bytes, count); };
    write(header, header_bytes);
    std::vector<float> values(std::min(tensor_chunk, num_parameters(config)));
    for_each_chunk(config, {}, MASTER_WEIGHTS, [&](int tensor, size_t offset, size_t count) {
        read(tensor, offset, values.data(), count);
        const StoredType type = in_bf16 ? StoredType::bf16 : StoredType::fp32;
        write_values(write, type, values.data(), count, parameter_info[tensor].name);
    });
    return file.finish();
}

// --- run_%08d.json: {"checksum": ..., "content": {"files": ..., "run": ...}} ---
// The checksum is computed over the content, printed as compact JSON.

// "files" has the seal of the model's file, and as "state" the seal of the only state's file, or as
// "states" a list.

static nlohmann::json seal_to_json(const FileSeal& s) { return {{"bytes", s.bytes}, {"xxh3", s.checksum}}; }

static void write_run_file(const std::string& path, const FileSeal& model,
                           const std::vector<nlohmann::json>& states, const std::string& run) {
    nlohmann::json files = {{"model", seal_to_json(model)}};
    if (states.size() == 1)
        files["state"] = states[0];
    else
        files["states"] = states;
    const nlohmann::json content = {{"files", files}, {"run", parse_json_object(run, "the run's state")}};
    const nlohmann::json file = {{"checksum", checksum_of(json_text(content))}, {"content", content}};
    write_whole_file(path, {json_text(file, 1), "\n"});
}

static nlohmann::json read_run_file(const std::string& path) {
    const nlohmann::json file = read_json_object(path);
    if (!file.contains("content") || !file.contains("checksum") ||
        file["checksum"] != checksum_of(json_text(file["content"])))
        fail("%s is damaged: its checksum does not match its content", path.c_str());
    return file["content"];
}

static FileSeal seal_from_json(const nlohmann::json& seal) { return {seal.at("bytes"), seal.at("xxh3")}; }

static void check_seal(const std::string& path, const nlohmann::json& seal,
                       const BytesRead& progress = nullptr, Verify verify = Verify::now) {
    const uint64_t bytes = seal.at("bytes"), size = size_of(open_to_read(path), path);
    if (size != bytes)
        fail("%s is damaged: it has %llu bytes, but %llu were written", path.c_str(),
             (unsigned long long)size, (unsigned long long)bytes);
    if (verify == Verify::now && seal.at("xxh3") != checksum_of_file(path, progress))
        fail("%s is damaged: its checksum does not match its content", path.c_str());
}

// --- checkpoints as sets of files ---

std::string model_path(const std::string& dir, int step) {
    return format_string("%s/model_%08d.bin", dir.c_str(), step);
}

std::string optimizer_path(const std::string& dir, int step) { return optimizer_part_path(dir, step, 0); }

std::string optimizer_part_path(const std::string& dir, int step, int part) {
    return format_string("%s/state_%08d_%05d.bin", dir.c_str(), step, part);
}

// The number between the two ends of a name, in which it has at least so many digits, as a step has 8; -1 if
// there is none.
static int number_in(std::string_view name, std::string_view before, std::string_view after, int digits = 8) {
    int number = -1;
    if (!name.starts_with(before)) return -1;
    std::from_chars(name.data() + before.size(), name.data() + name.size(), number);
    const std::string same = std::string(before) + format_string("%0*d", digits, number) + std::string(after);
    return number >= 0 && name == same ? number : -1;
}

std::string own_spelling(const std::string& name) {
    const std::string folded = fold_case(name);
    return folded.starts_with("done_") ? "DONE_" + folded.substr(5) : folded;
}

bool is_spelled_as(const std::string& own, const std::string& folder, const std::string& name) {
    return own == name || is_same_file(folder + "/" + own, folder + "/" + name);
}

// The numbers in the names of a folder's files, highest first.
static std::vector<int> numbers_in(const std::string& dir, const std::string& before,
                                   const std::string& after = "", int digits = 8) {
    std::vector<int> numbers;
    for (const std::string& name : names_in(dir)) {
        const std::string own = own_spelling(name);
        const int number = number_in(own, before, after, digits);
        if (number >= 0 && is_spelled_as(own, dir, name)) numbers.push_back(number);
    }
    std::sort(numbers.rbegin(), numbers.rend());
    return numbers;
}

// The parts of the optimizer's state that the step has files of.
static std::vector<int> parts_of_state(const std::string& dir, int step) {
    return numbers_in(dir, format_string("state_%08d_", step), ".bin", 5);
}

CheckpointName checkpoint_of(const std::string& model) {
    const std::filesystem::path path = path_as_listed(model), parent = path.parent_path();
    const std::string folder = parent.empty() ? "." : generic_text(parent);
    const std::string name = path.filename().generic_string(), own = own_spelling(name);
    return {folder, number_in(is_spelled_as(own, folder, name) ? own : name, "model_", ".bin")};
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
    return num_parameters(config) * (in_bf16 ? 2 : 4) +
           moment_bytes(config, state.use_master_weights, {.kind = state.share.kind}) +
           state.share.count * (order * sizeof(int32_t) + others);
}

void check_room(const std::string& dir, uint64_t bytes) {
    const uint64_t room = free_bytes(dir);
    if (room < bytes)
        fail(
            "no room for a checkpoint in %s: it takes %.1f MiB, and %.1f MiB are free; free some space, for "
            "example by removing old checkpoints, and resume with -y 1",
            dir.c_str(), double(bytes) / (1 << 20), double(room) / (1 << 20));
}

// Does the work in all processes, or in this one alone. An error in one of them is an error in all.
static void together(Communicator* job, const std::function<void()>& work) {
    job ? job->agree(work) : work();
}

// The seals of all parts of the optimizer's state, in the order of the parts.
static std::vector<nlohmann::json> gather_seals(const FileSeal& own, const OptimizerShare& share,
                                                Communicator* job) {
    if (!job) return {seal_to_json(own)};
    std::vector<nlohmann::json> by_part(share.count);
    for (const std::string& text :
         job->gather(json_text({{"part", share.index}, {"seal", seal_to_json(own)}}))) {
        const nlohmann::json seal = parse_json_object(text, "a seal");
        by_part.at(seal.at("part")) = seal.at("seal");
    }
    return by_part;
}

// All parts must be in this process's folder before the checkpoint counts.
static void check_parts(const std::string& dir, int step, int count) {
    const std::vector<int> written = parts_of_state(dir, step);
    for (int part = 0; part < count; part++)
        if (std::find(written.begin(), written.end(), part) == written.end())
            fail("%s is missing, but process %d has written it: all machines must see the same folder -o",
                 optimizer_part_path(dir, step, part).c_str(), part);
}

static void write_files(const std::string& dir, const Checkpoint& c, Communicator* job) {
    const int step = c.optimizer.step;
    const bool first = !job || job->rank == 0;
    const OptimizerShare& share = c.optimizer.share;
    FileSeal model, state;
    together(job, [&] {
        if (first) model = write_model(model_path(dir, step), c.config, c.read_tensor, c.in_bf16);
        state = write_optimizer_state(optimizer_part_path(dir, step, share.index), c.config, c.optimizer,
                                      c.read_moment);
    });
    const std::vector<nlohmann::json> states = gather_seals(state, share, job);
    together(job, [&] {
        if (!first) return;
        for (const int part : parts_of_state(dir, step))  // of an earlier run with more processes
            if (part >= share.count) remove_file(optimizer_part_path(dir, step, part));
        check_parts(dir, step, share.count);
        write_run_file(run_path(dir, step), model, states, c.run);
    });
    together(job, [&] {
        if (!first) return;
        c.expect_folder();
        write_whole_file(done_path(dir, step), {});
    });
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
static void write_or_remove(const std::string& dir, const Checkpoint& checkpoint, bool overwrites,
                            Communicator* job) {
    const int step = checkpoint.optimizer.step;
    const bool first = !job || job->rank == 0;
    try {
        together(job, [&] {
            if (first) checkpoint.expect_folder();
            if (overwrites || !first) return;
            write_whole_file(mark_path(dir, step), {});
        });
        write_files(dir, checkpoint, job);
    } catch (...) {
        if (!overwrites && first)
            try_to([&] {
                checkpoint.expect_folder();
                delete_checkpoint(dir, step);
            });
        throw;
    }
}

void write_checkpoint(const std::string& dir, const Checkpoint& checkpoint, Communicator* job) {
    const int step = checkpoint.optimizer.step;
    const bool first = !job || job->rank == 0;
    int64_t overwrites = 0;
    together(job, [&] {
        if (!first) return;
        checkpoint.expect_folder();
        create_folders(dir);
        check_room(dir, checkpoint_bytes(checkpoint.config, checkpoint.optimizer, checkpoint.in_bf16));
        overwrites = turn_done_into_mark(dir, step);
    });
    if (job) job->broadcast(&overwrites, sizeof overwrites, 0);
    try {
        write_or_remove(dir, checkpoint, overwrites, job);
    } catch (const Error& error) {
        // processes agree on an error's text, and not on its type
        if (!job && !dynamic_cast<const FileError*>(&error)) throw;
        if (first)
            warn("the checkpoint of step %d was not written: %s; it is written again", step, error.what());
        write_or_remove(dir, checkpoint, overwrites, job);
    }
    if (first) try_to([&] { remove_file(mark_path(dir, step)); });
}

std::vector<int> list_checkpoints(const std::string& dir) { return numbers_in(dir, "DONE_"); }

void remove_unfinished_checkpoints(const std::string& dir) {
    for (int step : numbers_in(dir, "unfinished_")) {
        if (file_exists(done_path(dir, step)))
            remove_file(mark_path(dir, step));  // the checkpoint was complete when the program stopped
        else
            delete_checkpoint(dir, step);
    }
}

std::vector<int> list_checkpoints_without_done(const std::string& dir) {
    const std::vector<int> complete = list_checkpoints(dir);
    std::set<int> steps;
    for (const auto& [before, after] : {std::pair("state_", "_00000.bin"), std::pair("run_", ".json")})
        for (int step : numbers_in(dir, before, after))
            if (!std::binary_search(complete.rbegin(), complete.rend(), step)) steps.insert(step);
    return {steps.begin(), steps.end()};
}

// The text of the run's JSON object in run_%08d.json, after `check` of the files' seals.
static std::string verified_run(const std::string& dir, int step,
                                const std::function<void(const nlohmann::json& files)>& check) {
    const std::string path = run_path(dir, step);
    try {
        const nlohmann::json content = read_run_file(path);
        check(content.at("files"));
        return json_text(content.at("run"));
    } catch (const nlohmann::json::exception&) {
        fail("%s was not written by this program", path.c_str());
    }
}

std::string read_run(const std::string& dir, int step) {
    return verified_run(dir, step, [](const nlohmann::json&) {});
}

SavedOptions options_of_checkpoint(const std::string& folder) {
    for (int step : list_checkpoints(folder)) {  // newest first
        const std::string path = run_path(folder, step);
        if (!file_exists(path)) continue;  // llm.c's have none
        std::string text;
        try {
            const nlohmann::json run = parse_json_object(read_run(folder, step), path);
            for (const nlohmann::json& line : run.at("options")) text += line.get<std::string>() + "\n";
        } catch (const FileError&) {
            throw;
        } catch (const std::exception&) {  // find_latest_checkpoint() reports what is wrong
        }
        if (!text.empty()) return {text, path};
    }
    return {};
}

// Error if the run wrote run_%08d.json and it is gone: llm.c writes neither this nor options.toml.
static void expect_no_run_file(const std::string& dir, int step) {
    if (!numbers_in(dir, "run_", ".json").empty() || file_exists(dir + "/options.toml"))
        fail(
            "%s is missing, which the run had: without it, the other files cannot be verified; -e %s takes "
            "this model all the same",
            run_path(dir, step).c_str(), shell_word(model_path(dir, step)).c_str());
}

std::string check_model_of_checkpoint(const std::string& dir, int step) {
    if (!optional_file_exists(run_path(dir, step))) return "";
    return verified_run(dir, step, [&](const nlohmann::json& files) {
        check_seal(model_path(dir, step), files.at("model"));
    });
}

// Reads all parts of the optimizer's state with `read`, and checks that they belong together.
static void read_states(const std::string& dir, int step,
                        const std::function<OptimizerState(const std::string& path)>& read) {
    int count = 1;
    for (int part = 0; part < count; part++) {
        const std::string path = optimizer_part_path(dir, step, part);
        const OptimizerState state = read(path);
        if (state.step != step) fail("%s belongs to step %d", path.c_str(), state.step);
        if (part == 0) count = state.share.count;
        if (state.share.index != part || state.share.count != count)
            fail("%s is part %d of %d of an optimizer's state, instead of part %d of %d", path.c_str(),
                 state.share.index, state.share.count, part, count);
    }
}

// The seals of the parts of the optimizer's state.
static std::vector<nlohmann::json> seals_of_states(const nlohmann::json& files) {
    if (files.contains("state")) return {files["state"]};
    return files.value("states", std::vector<nlohmann::json>());
}

std::string check_checkpoint(const std::string& dir, int step, const BytesRead& progress, Verify verify) {
    const std::string model = model_path(dir, step);
    std::string run;
    if (optional_file_exists(run_path(dir, step)))
        run = verified_run(dir, step, [&](const nlohmann::json& files) {
            check_seal(model, files.at("model"), progress, verify);
            int part = 0;
            for (const nlohmann::json& seal : seals_of_states(files))
                check_seal(optimizer_part_path(dir, step, part++), seal, progress, verify);
        });
    else
        expect_no_run_file(dir, step);
    const ModelConfig config = read_model_header(model);
    read_states(dir, step, [&](const std::string& part) {
        return verify == Verify::now ? read_optimizer_state(part, config)
                                     : read_optimizer_header(part, config);
    });
    return run;
}

void read_all_moments(const std::string& dir, int step, const ModelConfig& config, const WriteMoment& write) {
    read_states(dir, step, [&](const std::string& part) { return read_moments(part, config, write); });
}

// A process that reads a part in pieces cannot verify it, so the processes divide such parts among
// themselves.
static void read_own_moments(const std::string& dir, int step, const CheckpointReader& r,
                             const std::vector<nlohmann::json>& seals) {
    int part = 0;
    read_states(dir, step, [&](const std::string& path) {
        const int index = part++;
        const bool has_seal = size_t(index) < seals.size();
        const FileSeal seal = has_seal ? seal_from_json(seals[index]) : FileSeal();
        const OptimizerState state =
            read_own_moments(path, r.config, r.share, r.write_moment, has_seal ? &seal : nullptr);
        if (has_seal && state.share.count != r.share.count && index % r.share.count == r.share.index)
            check_seal(path, seals[index]);
        return state;
    });
}

void read_checkpoint(const std::string& dir, int step, const CheckpointReader& reader, Communicator& job) {
    FileSeal model;
    std::vector<nlohmann::json> states;
    bool has_run = false;
    job.agree([&] {  // the others would wait for a process that cannot read it
        has_run = optional_file_exists(run_path(dir, step));
        if (has_run)
            verified_run(dir, step, [&](const nlohmann::json& files) {
                model = seal_from_json(files.at("model"));
                states = seals_of_states(files);
            });
    });
    read_once_per_node(
        job,
        [&](const WriteTensor& write) {
            read_model(model_path(dir, step), write, has_run ? &model : nullptr);
        },
        reader.write_tensor);
    read_own_moments(dir, step, reader, states);
}

// What the process that reads shows the others.
struct SharedChunk {
    int tensor;
    size_t offset, count;  // no elements: the end
    bool failed;
};

void read_once_per_node(Communicator& job, const std::function<void(const WriteTensor&)>& read,
                        const WriteTensor& write) {
    if (job.local_size == 1) return read(write);
    auto* const chunk = static_cast<SharedChunk*>(
        job.allocate_shared(sizeof(SharedChunk) + tensor_chunk * sizeof(float), "a part of the model"));
    float* const shared = reinterpret_cast<float*>(chunk + 1);
    std::exception_ptr error;  // the processes synchronize to the end, whatever happens
    const auto take = [&] {
        job.node_barrier();
        const SharedChunk taken = *chunk;
        if (taken.count && !error) try {
                write(taken.tensor, taken.offset, shared, taken.count);
            } catch (...) {
                error = std::current_exception();
            }
        job.node_barrier();  // from here on, the next chunk takes this one's place
        return taken;
    };
    SharedChunk last = {};
    if (job.local_rank == 0) {
        try {
            read([&](int tensor, size_t offset, const float* values, size_t count) {
                *chunk = {tensor, offset, count, false};
                std::copy_n(values, count, shared);
                take();
            });
        } catch (...) {
            error = std::current_exception();
        }
        *chunk = {0, 0, 0, error != nullptr};
        last = take();
    } else {
        do last = take();
        while (last.count);
    }
    if (error) std::rethrow_exception(error);
    if (last.failed) fail("another process of this machine could not read the model");
}

// The newest checkpoint that `check` accepts. Only what was read, or is missing, can be broken: an error of
// the system, which may pass, must not lead to an older checkpoint.
static FoundCheckpoint find_latest(const std::string& dir,
                                   const std::function<std::string(int step)>& check) {
    FoundCheckpoint found;
    for (int step : list_checkpoints(dir)) try {
            found.run = check(step);
            found.step = step;
            return found;
        } catch (const FileError& error) {
            throw FileError(
                format_string("%s; the checkpoint of step %d could not be read: try again, or "
                              "remove %s to take an older one",
                              error.what(), step, printable(done_path(dir, step)).c_str()));
        } catch (const Error& error) {
            found.broken.push_back(
                format_string("the checkpoint of step %d is broken: %s", step, error.what()));
        }
    return found;
}

FoundCheckpoint find_latest_checkpoint(const std::string& dir, const BytesRead& progress, Verify verify) {
    return find_latest(dir, [&](int step) { return check_checkpoint(dir, step, progress, verify); });
}

FoundCheckpoint find_latest_model(const std::string& dir) {
    return find_latest(dir, [&](int step) {
        if (!optional_file_exists(run_path(dir, step))) expect_no_run_file(dir, step);
        read_model_header(model_path(dir, step));
        return check_model_of_checkpoint(dir, step);
    });
}

void delete_checkpoint(const std::string& dir, int step) {
    turn_done_into_mark(dir, step);
    remove_file(model_path(dir, step));
    remove_file(run_path(dir, step));
    for (const int part : parts_of_state(dir, step)) remove_file(optimizer_part_path(dir, step, part));
    remove_file(mark_path(dir, step));
}
