#include "llmc/files/optimizer_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "llmc/base/error.h"
#include "llmc/files/model_file.h"

static constexpr int32_t state_magic = 20240527;

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
    CURRENT_SAMPLE = 32,
    EXTENT = 40  // not llm.c's, which leaves it 0 and ignores it
};
enum Extent { EXTENT_UNKNOWN, EXTENT_WHOLE, EXTENT_PART };

static uint64_t get64(const int32_t* header, StateField field) {
    uint64_t value;
    memcpy(&value, header + field, sizeof value);
    return value;
}

static void set64(int32_t* header, StateField field, uint64_t value) {
    memcpy(header + field, &value, sizeof value);
}

uint64_t moment_bytes(const ModelConfig& config, bool use_master_weights, const OptimizerShare& share) {
    uint64_t elements = 0;
    for (const Shard& s : ownership_of(config, share.kind, share.count).owned_by(share.index))
        for (const Moment moment : {MOMENT_M, MOMENT_V, MASTER_WEIGHTS})
            if (has_moment(share.kind, moment, s.tensor) && (moment != MASTER_WEIGHTS || use_master_weights))
                elements += s.count;
    return elements * sizeof(float);
}

// Reads a count and that many int32. `left` is the number of bytes to the end of the file; it is updated.
static std::vector<int32_t> read_indices(const File& file, const std::string& path, uint64_t& left) {
    uint64_t count = 0;
    if (left >= sizeof count) read_exactly(file, path, &count, sizeof count);
    if (left < sizeof count || count > (left - sizeof count) / sizeof(int32_t))
        fail("%s is truncated or damaged: the order of its data ends too early", path.c_str());
    std::vector<int32_t> values(count);
    read_exactly(file, path, values.data(), count * sizeof(int32_t));
    left -= sizeof count + count * sizeof(int32_t);
    return values;
}

static OptimizerKind kind_of_version(int version, const std::string& path) {
    if (const auto kind = optimizer_of_state(version)) return *kind;
    std::string readable;
    for (const OptimizerInfo& info : all_optimizers())
        readable += format_string("%s%d (%s)", readable.empty() ? "" : ", ", info.state_version, info.name);
    fail("%s is an optimizer state of version %d; only these versions can be read: %s", path.c_str(), version,
         readable.c_str());
}

static OptimizerState check_state_header(const File& file, const std::string& path,
                                         const ModelConfig& config) {
    int32_t header[header_ints];
    read_header(file, path, header, state_magic, "an llm.c optimizer state");
    const OptimizerKind kind = kind_of_version(header[1], path);
    const OptimizerShare share = {header[PROCESS_RANK], header[NUM_PROCESSES], kind};
    if (share.index < 0 || share.index >= share.count || share.count > max_processes)
        fail("%s is damaged: its header says process %d of %d", path.c_str(), share.index, share.count);
    for (StateField flag : {USE_MASTER_WEIGHTS, SHOULD_SHUFFLE}) {
        if (header[flag] != 0 && header[flag] != 1)
            fail("%s is damaged: header field %d is %d instead of 0 or 1", path.c_str(), flag, header[flag]);
    }
    if (header[STEP] < 0) fail("%s is damaged: its step is %d", path.c_str(), header[STEP]);
    const int extent = header[EXTENT];
    if (extent < EXTENT_UNKNOWN || extent > EXTENT_PART)
        fail("%s is damaged: header field %d is %d instead of 0, 1 or 2", path.c_str(), EXTENT, extent);
    OptimizerState state;
    state.share.kind = kind;
    state.use_master_weights = header[USE_MASTER_WEIGHTS];
    state.step = header[STEP];
    state.rng_state = get64(header, RNG_STATE);
    state.rng_state_last_update = get64(header, RNG_STATE_LAST_UPDATE);
    state.data.should_shuffle = header[SHOULD_SHUFFLE];
    state.data.current_shard = get64(header, CURRENT_SHARD);
    state.data.current_sample = get64(header, CURRENT_SAMPLE);
    // without ZeRO, each process of llm.c writes the whole state; its files leave EXTENT 0, so their length
    // decides
    const uint64_t size = size_of(file, path);
    const bool too_short =
        size < header_bytes + moment_bytes(config, state.use_master_weights, {.kind = kind});
    if (extent == EXTENT_PART || (extent == EXTENT_UNKNOWN && too_short)) state.share = share;
    const uint64_t least = header_bytes + moment_bytes(config, state.use_master_weights, state.share);
    if (size < least)
        fail(
            "%s is truncated or belongs to another model: it has %llu bytes, but the moments of %llu "
            "parameters alone take %llu%s",
            path.c_str(), (unsigned long long)size, (unsigned long long)num_parameters(config),
            (unsigned long long)least,
            state.share.count > 1 ? format_string(" in one of %d files", share.count).c_str() : "");
    return state;
}

static OptimizerState check_state(const File& file, const std::string& path, const ModelConfig& config) {
    OptimizerState state = check_state_header(file, path, config);
    uint64_t moments = moment_bytes(config, state.use_master_weights, state.share);
    uint64_t left = size_of(file, path) - header_bytes - moments;
    seek(file, path, header_bytes + moments);
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
    if (left != 0)
        fail("%s is too long or belongs to another model: %llu bytes follow its end", path.c_str(),
             (unsigned long long)left);
    return state;
}

OptimizerState read_optimizer_state(const std::string& path, const ModelConfig& config) {
    return check_state(open_to_read(path), path, config);
}

// A second moment is a mean of squares. A first moment of more than 1e22 is a mean of gradients whose squares
// are no finite numbers.
static void check_possible(const TensorPart& part, const std::string& path, Moment moment) {
    const bool is_second = moment == MOMENT_V;
    const float* end = part.values + part.count;
    const float* found = std::find_if(
        part.values, end, [&](float value) { return is_second ? value < 0 : std::abs(value) > 1e22f; });
    if (found != end)
        fail(
            "%s: moment %s of %s has the value %g at element %zu, and cannot %s: the file is damaged; use an "
            "earlier one",
            path.c_str(), is_second ? "v" : "m", parameter_info[part.tensor].name, double(*found),
            part.offset + size_t(found - part.values), is_second ? "be negative" : "be that large");
}

OptimizerState read_optimizer_header(const std::string& path, const ModelConfig& config) {
    return check_state_header(open_to_read(path), path, config);
}

static void check_moment(const TensorPart& part, const std::string& path, const ModelConfig& config,
                         Moment moment) {
    static constexpr const char* names[] = {"moment m of", "moment v of", "master weights of"};
    check_finite(part, path, config, names[moment]);
    if (moment != MASTER_WEIGHTS) check_possible(part, path, moment);
}

// Reads all moments of an open file. Leaves it behind them.
static void read_content(ContentCheck& content, const OptimizerState& state, const ModelConfig& config,
                         const WriteMoment& write) {
    std::vector<float> values(std::min(tensor_chunk, num_parameters(config)));
    for (Moment moment : {MOMENT_M, MOMENT_V, MASTER_WEIGHTS}) {
        if (moment == MASTER_WEIGHTS && !state.use_master_weights) break;
        for_each_chunk(config, state.share, moment, [&](int tensor, size_t offset, size_t count) {
            content.read(values.data(), count * sizeof(float));
            const TensorPart part = {tensor, offset, values.data(), count};
            check_moment(part, content.path, config, moment);
            write(moment, tensor, offset, values.data(), count);
        });
    }
}

OptimizerState read_moments(const std::string& path, const ModelConfig& config, const WriteMoment& write) {
    const File file = open_to_read(path);
    const OptimizerState state = check_state(file, path, config);
    ContentCheck content(file, path, nullptr);
    read_content(content, state, config, write);
    return state;
}

// Reads the elements that `reader` owns from a file that has them among others.
static void read_owned(const File& file, const std::string& path, const OptimizerState& state,
                       const ModelConfig& config, const OptimizerShare& reader, const WriteMoment& write) {
    const Ownership owned = ownership_of(config, reader.kind, reader.count);
    std::vector<float> values(std::min(tensor_chunk, num_parameters(config)));
    uint64_t begin = header_bytes;  // of the chunk in the file
    for (Moment moment : {MOMENT_M, MOMENT_V, MASTER_WEIGHTS}) {
        if (moment == MASTER_WEIGHTS && !state.use_master_weights) break;
        for_each_chunk(config, state.share, moment, [&](int tensor, size_t offset, size_t count) {
            for (const Shard& s : owned.within({tensor, offset, count})) {
                if (s.owner != reader.index) continue;
                seek(file, path, begin + (s.first - offset) * sizeof(float));
                read_exactly(file, path, values.data(), s.count * sizeof(float));
                check_moment({tensor, s.first, values.data(), s.count}, path, config, moment);
                write(moment, tensor, s.first, values.data(), s.count);
            }
            begin += count * sizeof(float);
        });
    }
}

OptimizerState read_own_moments(const std::string& path, const ModelConfig& config,
                                const OptimizerShare& reader, const WriteMoment& write,
                                const FileSeal* seal) {
    const File file = open_to_read(path);
    const OptimizerState state = check_state_header(file, path, config);
    if (state.share.count != reader.count || state.share.kind != reader.kind)
        read_owned(file, path, state, config, reader, write);
    else if (state.share.index == reader.index) {
        ContentCheck content(file, path, seal);
        read_content(content, state, config, write);
        content.finish();
    }
    return state;
}

static void write_indices(SealedWriter& file, const std::vector<int32_t>& values) {
    uint64_t count = values.size();
    file.write(&count, sizeof count);
    file.write(values.data(), count * sizeof(int32_t));
}

FileSeal write_optimizer_state(const std::string& path, const ModelConfig& config,
                               const OptimizerState& state, const ReadMoment& read) {
    int32_t header[header_ints] = {state_magic, optimizer_info(state.share.kind).state_version};
    header[NUM_PROCESSES] = state.share.count;
    header[PROCESS_RANK] = state.share.index;
    header[USE_MASTER_WEIGHTS] = state.use_master_weights;
    header[SHOULD_SHUFFLE] = state.data.should_shuffle;
    header[STEP] = state.step;
    header[EXTENT] = state.share.count > 1 ? EXTENT_PART : EXTENT_WHOLE;
    set64(header, RNG_STATE, state.rng_state);
    set64(header, RNG_STATE_LAST_UPDATE, state.rng_state_last_update);
    set64(header, CURRENT_SHARD, state.data.current_shard);
    set64(header, CURRENT_SAMPLE, state.data.current_sample);
    SealedWriter file(path);
    file.write(header, header_bytes);
    std::vector<float> values(std::min(tensor_chunk, num_parameters(config)));
    for (Moment moment : {MOMENT_M, MOMENT_V, MASTER_WEIGHTS}) {
        if (moment == MASTER_WEIGHTS && !state.use_master_weights) break;
        for_each_chunk(config, state.share, moment, [&](int tensor, size_t offset, size_t count) {
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
