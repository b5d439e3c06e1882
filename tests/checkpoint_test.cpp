// Checkpoint files: exact bytes, round trips, a reference file, and every kind of damaged file.
#include "llmc/files/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static const ModelConfig small = {6, 10, 16, 2, 2, 4};

// A value that identifies its position; exact in bf16 for the model tensors (kind 0).
static float value_at(int kind, int tensor, size_t i) {
    return float(kind * 100 + tensor) + float(i % 7) * 0.125f;
}

static void read_small(int tensor, size_t offset, float* values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = value_at(0, tensor, offset + i);
}

static void read_small_moment(Moment moment, int tensor, size_t offset, float* values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = value_at(1 + moment, tensor, offset + i);
}

static OptimizerState small_state(bool master, bool shuffled) {
    OptimizerState state;
    state.use_master_weights = master;
    state.step = 1234;
    state.rng_state = 0x123456789abcdef0;
    state.rng_state_last_update = 13371337;
    state.data.should_shuffle = shuffled;
    state.data.current_shard = 1;
    state.data.current_sample = 2;
    if (!shuffled) return state;
    state.data.shard_indices = {1, 0};
    state.data.intra_shard_indices = {2, 0, 3, 1};
    state.data.shuffle_random.next32();
    return state;
}

template <typename Number>
static Number at(const std::string& bytes, size_t offset) {
    Number value{};
    if (offset + sizeof value <= bytes.size()) memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

static void poke(std::string& bytes, size_t offset, int32_t value) {
    memcpy(&bytes[offset], &value, sizeof value);
}

// Checks that every element arrives exactly once with the value that was written.
static void expect_model(const std::string& path) {
    size_t seen = 0;
    read_model(path, [&](int tensor, size_t offset, const float* values, size_t count) {
        for (size_t i = 0; i < count; i++) ASSERT_EQ(values[i], value_at(0, tensor, offset + i));
        seen += count;
    });
    EXPECT_EQ(seen, num_parameters(small));
}

using Checkpoints = InFolder;

TEST_F(Checkpoints, ModelBytes) {
    write_model(folder / "m.bin", small, read_small);
    std::string bytes = read_whole_file(folder / "m.bin");
    ASSERT_EQ(bytes.size(), 1024 + 4 * num_parameters(small));
    int32_t expected[] = {20240326, 3, 6, 10, 2, 2, 4, 16, 0};
    for (int i = 0; i < 9; i++) EXPECT_EQ(at<int32_t>(bytes, 4 * i), expected[i]) << "header int " << i;
    EXPECT_EQ(at<float>(bytes, 1024), value_at(0, WTE, 0));
    EXPECT_EQ(at<float>(bytes, 1024 + 4 * 16 * 4), value_at(0, WPE, 0));
    EXPECT_EQ(at<float>(bytes, bytes.size() - 4), value_at(0, LNFB, 3));
    EXPECT_FALSE(std::filesystem::exists(temporary_of(folder / "m.bin")));
    expect_model(folder / "m.bin");
    write_model(folder / "m.bin", small, read_small, true);
    bytes = read_whole_file(folder / "m.bin");
    EXPECT_EQ(bytes.size(), 1024 + 2 * num_parameters(small));
    EXPECT_EQ(at<int32_t>(bytes, 4), 5);
    expect_model(folder / "m.bin");
}

// Every 16-bit pattern in a bf16 file survives a round trip bit for bit, also through an fp32 file.
TEST_F(Checkpoints, Bf16FilesSurviveReadingAndWriting) {
    const ModelConfig config = {6, 4096, 4096, 2, 2, 16};
    ASSERT_GE(parameter_size(config, WTE), 65536u);
    write_model(folder / "m.bin", config, read_small, true);
    std::string bytes = read_whole_file(folder / "m.bin");
    for (uint32_t i = 0; i < 65536; i++) {
        const bool nan = (i & 0x7fff) > 0x7f80;
        const uint16_t pattern = uint16_t(nan ? i | 0x40 : i);  // a signalling NaN becomes a quiet one
        memcpy(&bytes[1024 + 2 * i], &pattern, 2);
    }
    write_whole_file(folder / "m.bin", {bytes});
    auto copy = [&](const std::string& from, const std::string& to, bool in_bf16) {
        std::vector<std::vector<float>> tensors;
        for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) tensors.emplace_back(parameter_size(config, i));
        read_model(from, [&](int tensor, size_t offset, const float* values, size_t count) {
            std::copy_n(values, count, tensors[tensor].begin() + offset);
        });
        auto read = [&](int tensor, size_t offset, float* values, size_t count) {
            std::copy_n(tensors[tensor].begin() + offset, count, values);
        };
        write_model(to, config, read, in_bf16);
    };
    copy(folder / "m.bin", folder / "again.bin", true);
    EXPECT_EQ(read_whole_file(folder / "again.bin"), bytes);
    copy(folder / "m.bin", folder / "fp32.bin", false);
    EXPECT_EQ(at<int32_t>(read_whole_file(folder / "fp32.bin"), 4), 3);
    copy(folder / "fp32.bin", folder / "back.bin", true);
    EXPECT_EQ(read_whole_file(folder / "back.bin"), bytes);
}

TEST_F(Checkpoints, LargeTensorsAreReadInChunks) {
    ModelConfig config = {1, 1100000, 1100000, 1, 1, 4};  // wte has 4.4 million elements, a chunk at most 4.2
    size_t pieces = 0;
    write_model(folder / "m.bin", config, [&](int tensor, size_t offset, float* values, size_t count) {
        EXPECT_LE(count, tensor_chunk);
        pieces += tensor == WTE;
        for (size_t i = 0; i < count; i++) values[i] = float((offset + i) % 1000003);
    });
    EXPECT_EQ(pieces, 2u);
    read_model(folder / "m.bin", [&](int, size_t offset, const float* values, size_t count) {
        for (size_t i = 0; i < count; i++) ASSERT_EQ(values[i], float((offset + i) % 1000003));
    });
}

TEST_F(Checkpoints, DamagedModelsAreRefused) {
    write_model(folder / "good.bin", small, read_small);
    const std::string good = read_whole_file(folder / "good.bin");
    auto refuses = [&](const std::string& bytes, const std::string& because) {
        write_whole_file(folder / "bad.bin", {bytes});
        std::string message = message_of([&] { read_model_header(folder / "bad.bin"); });
        EXPECT_TRUE(contains(message, because));
        EXPECT_TRUE(contains(message, "bad.bin"));
        EXPECT_EQ(
            message_of([&] { read_model(folder / "bad.bin", [](int, size_t, const float*, size_t) {}); }),
            message);
    };
    refuses("", "too short");
    refuses(good.substr(0, 1023), "too short");
    refuses(good.substr(0, good.size() - 1), "truncated");
    refuses(good + "x", "too long");
    struct Damage {
        int index;
        int32_t value;
        const char* because;
    } damages[] = {{0, 20240520, "is not an llm.c model"},
                   {1, 1, "version 1"},
                   {1, 4, "version 4"},
                   {2, 0, "max_seq_len"},
                   {3, -5, "vocab_size"},
                   {3, 17, "padded_vocab_size"},
                   {4, 0, "num_layers"},
                   {4, 0x7fffffff, "num_layers"},
                   {5, 0, "num_heads"},
                   {5, 3, "multiple of heads"},
                   {6, -1, "channels"},
                   {7, 0, "padded_vocab_size"},
                   {4, 1000, "truncated"},
                   {2, 5, "too long"}};
    for (const Damage& damage : damages) {
        std::string bytes = good;
        poke(bytes, 4 * damage.index, damage.value);
        refuses(bytes, damage.because);
    }
    expect_error("none.bin", [&] { read_model_header(folder / "none.bin"); });
    EXPECT_THROW(read_model_header(folder.path), Error);
}

TEST_F(Checkpoints, OptimizerStateRoundTrip) {
    for (bool master : {false, true}) {
        for (bool shuffled : {false, true}) {
            OptimizerState state = small_state(master, shuffled);
            write_optimizer_state(folder / "s.bin", small, state, read_small_moment);
            OptimizerState loaded = read_optimizer_state(folder / "s.bin", small);
            EXPECT_EQ(loaded.use_master_weights, master);
            EXPECT_EQ(loaded.step, state.step);
            EXPECT_EQ(loaded.rng_state, state.rng_state);
            EXPECT_EQ(loaded.rng_state_last_update, state.rng_state_last_update);
            EXPECT_EQ(loaded.data.should_shuffle, shuffled);
            EXPECT_EQ(loaded.data.current_shard, 1u);
            EXPECT_EQ(loaded.data.current_sample, 2u);
            EXPECT_EQ(loaded.data.shard_indices, state.data.shard_indices);
            EXPECT_EQ(loaded.data.intra_shard_indices, state.data.intra_shard_indices);
            if (shuffled) {
                EXPECT_EQ(loaded.data.shuffle_random.next32(), state.data.shuffle_random.next32());
            }
            size_t seen[3] = {};
            read_moments(folder / "s.bin", small,
                         [&](Moment moment, int tensor, size_t offset, const float* values, size_t count) {
                             for (size_t i = 0; i < count; i++)
                                 ASSERT_EQ(values[i], value_at(1 + moment, tensor, offset + i));
                             seen[moment] += count;
                         });
            EXPECT_EQ(seen[MOMENT_M], num_parameters(small));
            EXPECT_EQ(seen[MOMENT_V], num_parameters(small));
            EXPECT_EQ(seen[MASTER_WEIGHTS], master ? num_parameters(small) : 0);
        }
    }
}

TEST_F(Checkpoints, OptimizerStateBytes) {
    write_optimizer_state(folder / "s.bin", small, small_state(true, true), read_small_moment);
    std::string bytes = read_whole_file(folder / "s.bin");
    size_t moments = 4 * num_parameters(small), order = 1024 + 3 * moments;
    ASSERT_EQ(bytes.size(), order + 8 + 2 * 4 + 8 + 4 * 4 + 2520);
    EXPECT_EQ(at<int32_t>(bytes, 0), 20240527);
    EXPECT_EQ(at<int32_t>(bytes, 4), 1);
    EXPECT_EQ(at<int32_t>(bytes, 8), 1);   // processes
    EXPECT_EQ(at<int32_t>(bytes, 12), 0);  // rank
    EXPECT_EQ(at<int32_t>(bytes, 16), 1);  // master weights
    EXPECT_EQ(at<int32_t>(bytes, 20), 1);  // shuffle
    EXPECT_EQ(at<int32_t>(bytes, 40), 1234);
    EXPECT_EQ(at<uint64_t>(bytes, 80), 0x123456789abcdef0u);
    EXPECT_EQ(at<uint64_t>(bytes, 88), 13371337u);
    EXPECT_EQ(at<uint64_t>(bytes, 120), 1u);
    EXPECT_EQ(at<uint64_t>(bytes, 128), 2u);
    EXPECT_EQ(at<float>(bytes, 1024 + moments), value_at(1 + MOMENT_V, WTE, 0));
    EXPECT_EQ(at<float>(bytes, 1024 + 2 * moments), value_at(1 + MASTER_WEIGHTS, WTE, 0));
    EXPECT_EQ(at<uint64_t>(bytes, order), 2u);
    EXPECT_EQ(at<int32_t>(bytes, order + 8), 1);
    EXPECT_EQ(at<uint64_t>(bytes, order + 16), 4u);
    EXPECT_EQ(at<int32_t>(bytes, order + 24), 2);
    size_t generator = order + 40;
    EXPECT_EQ(at<int32_t>(bytes, generator + 8), 624);
    EXPECT_EQ(at<uint32_t>(bytes, generator + 12), 1u);
    EXPECT_EQ(at<uint32_t>(bytes, generator + 2516), 0x9908b0dfu);
    write_optimizer_state(folder / "fresh.bin", small, OptimizerState(), read_small_moment);
    bytes = read_whole_file(folder / "fresh.bin");
    EXPECT_EQ(at<uint64_t>(bytes, 80), 13371337u);  // llm.c's first rng_state
    EXPECT_EQ(at<uint64_t>(bytes, 88), 13371337u);
    EXPECT_EQ(at<uint64_t>(bytes, 128), 0u);  // no sample has been drawn yet
}

// As processes with ZeRO write it. The tensors of this model have odd sizes for 3 and 5 parts.
TEST_F(Checkpoints, PartsOfAnOptimizerState) {
    for (const int count : {2, 3, 5}) {
        std::map<std::tuple<int, int, size_t>, float> found;
        for (int part = 0; part < count; part++) {
            OptimizerState state = small_state(true, true);
            state.share = {part, count};
            write_optimizer_state(folder / "s.bin", small, state, read_small_moment);
            const OptimizerState loaded = read_optimizer_state(folder / "s.bin", small);
            EXPECT_EQ(loaded.share.index, part);
            EXPECT_EQ(loaded.share.count, count);
            EXPECT_EQ(loaded.data.intra_shard_indices, state.data.intra_shard_indices);
            read_moments(folder / "s.bin", small,
                         [&](Moment moment, int tensor, size_t offset, const float* values, size_t count_) {
                             for (size_t i = 0; i < count_; i++) {
                                 EXPECT_EQ(values[i], value_at(1 + moment, tensor, offset + i));
                                 EXPECT_TRUE(found.emplace(std::tuple(moment, tensor, offset + i), 0).second);
                             }
                         });
        }
        EXPECT_EQ(found.size(), 3 * num_parameters(small)) << count;
    }
}

// llm.c's layout: of each layer, an equal part.
TEST_F(Checkpoints, BytesOfAPart) {
    OptimizerState state = small_state(false, false);
    state.share = {1, 2};
    write_optimizer_state(folder / "s.bin", small, state, read_small_moment);
    const std::string bytes = read_whole_file(folder / "s.bin");
    ASSERT_EQ(bytes.size(), 1024 + 8 * num_parameters(small) / 2);
    EXPECT_EQ(at<int32_t>(bytes, 8), 2);
    EXPECT_EQ(at<int32_t>(bytes, 12), 1);
    size_t offset = 1024;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
        const size_t n = parameter_layer_size(small, tensor);
        for (size_t layer = 0; layer < parameter_size(small, tensor); layer += n)
            for (size_t i = n / 2; i < n; i++, offset += 4)
                ASSERT_EQ(at<float>(bytes, offset), value_at(1, tensor, layer + i));
    }
}

// Without ZeRO, each of llm.c's processes writes everything; its files do not say which they are: 0. A part
// is as long as a whole state if the order of its data takes as much as the other moments.
TEST_F(Checkpoints, APartIsToldFromAWholeState) {
    const auto read_back = [&](const OptimizerState& state, int processes, int extent) {
        write_optimizer_state(folder / "s.bin", small, state, read_small_moment);
        std::string bytes = read_whole_file(folder / "s.bin");
        poke(bytes, 8, processes);
        if (extent >= 0) poke(bytes, 160, extent);
        write_whole_file(folder / "s.bin", {bytes});
        return read_optimizer_state(folder / "s.bin", small);
    };
    for (const int extent : {1, 0})
        EXPECT_EQ(read_back(small_state(true, true), 4, extent).share.count, 1) << extent;
    OptimizerState part = small_state(true, false);
    part.share = {1, 2};
    EXPECT_EQ(read_back(part, 2, 0).share.count, 2);
    part = small_state(true, true);
    part.share = {1, 2};
    part.data.intra_shard_indices.resize(3 * num_parameters(small));
    const OptimizerState loaded = read_back(part, 2, -1);
    ASSERT_GT(std::filesystem::file_size(folder / "s.bin"), 1024 + 12 * num_parameters(small));
    EXPECT_EQ(loaded.share.index, 1);
    EXPECT_EQ(loaded.share.count, 2);
    EXPECT_EQ(loaded.data.intra_shard_indices, part.data.intra_shard_indices);
}

// The message names the part that has it.
TEST_F(Checkpoints, PartThatIsNotFiniteIsRefused) {
    OptimizerState state = small_state(true, false);
    write_model(model_path(folder.path, state.step), small, read_small);
    const size_t last = parameter_size(small, WTE) - 1;
    for (const int part : {0, 1}) {
        state.share = {part, 2};
        write_optimizer_state(optimizer_part_path(folder.path, state.step, part), small, state,
                              [&](Moment moment, int tensor, size_t offset, float* values, size_t count) {
                                  read_small_moment(moment, tensor, offset, values, count);
                                  if (moment == MOMENT_V && tensor == WTE && offset + count == last + 1)
                                      values[count - 1] = NAN;
                              });
    }
    const std::string message =
        message_of([&] { read_all_moments(folder.path, state.step, small, [](auto...) {}); });
    const std::string path = optimizer_part_path(folder.path, state.step, 1);
    EXPECT_EQ(message.find(path + ": moment v of wte has the value nan"), 0u) << message;
}

TEST_F(Checkpoints, PartsThatDoNotBelongTogetherAreRefused) {
    const std::string dir = folder.path;
    OptimizerState state = small_state(false, false);
    write_model(model_path(dir, state.step), small, read_small);
    for (const int part : {0, 1, 2}) {
        state.share = {part, 3};
        write_optimizer_state(optimizer_part_path(dir, state.step, part), small, state, read_small_moment);
    }
    auto refusal = [&] { return message_of([&] { check_checkpoint(dir, state.step); }); };
    EXPECT_EQ(refusal(), "");
    const std::string second = optimizer_part_path(dir, state.step, 1);
    write_whole_file(second, {read_whole_file(optimizer_part_path(dir, state.step, 2))});
    EXPECT_EQ(refusal(), second + " is part 2 of 3 of an optimizer's state, instead of part 1 of 3");
    std::filesystem::remove(second);
    EXPECT_TRUE(contains(refusal(), "cannot open " + second));
    delete_checkpoint(dir, state.step);
    EXPECT_TRUE(names_in(dir).empty());
}

TEST_F(Checkpoints, DamagedStatesAreRefused) {
    write_optimizer_state(folder / "good.bin", small, small_state(false, true), read_small_moment);
    const std::string good = read_whole_file(folder / "good.bin");
    auto refuses = [&](const std::string& bytes, const std::string& because) {
        write_whole_file(folder / "bad.bin", {bytes});
        std::string message = message_of([&] { read_optimizer_state(folder / "bad.bin", small); });
        EXPECT_TRUE(contains(message, because));
        EXPECT_TRUE(contains(message, "bad.bin"));
    };
    size_t order = 1024 + 8 * num_parameters(small);
    refuses("", "too short");
    refuses(good.substr(0, 2000), "truncated");
    refuses(good + "x", "too long");
    for (size_t length : {order, order + 7, order + 12, order + 17, order + 39, good.size() - 1})
        refuses(good.substr(0, length), "truncated");
    struct Damage {
        size_t offset;
        int32_t value;
        const char* because;
    } damages[] = {{0, 20240326, "is not an llm.c optimizer state"},
                   {4, 3, "version 3"},
                   {8, 0, "process 0 of 0"},
                   {8, 1409302530, "process 0 of 1409302530"},
                   {12, 1, "process 1 of 1"},
                   {12, -1, "process -1 of 1"},
                   {16, 2, "field 4"},
                   {20, -1, "field 5"},
                   {40, -1, "step"},
                   {160, 3, "field 40"},
                   {160, -1, "field 40"},
                   {16, 1, "truncated"},
                   {20, 0, "too long"},
                   {order, -1, "truncated"},
                   {order + 4, -1, "truncated"},
                   {order + 16, 0x7fffffff, "truncated"},
                   {order + 16, 3, "damaged"},
                   {order + 48, 1000, "damaged"}};
    for (const Damage& damage : damages) {
        std::string bytes = good;
        poke(bytes, damage.offset, damage.value);
        refuses(bytes, damage.because);
    }
    ModelConfig wider = small;
    wider.channels = 8;
    EXPECT_THROW(read_optimizer_state(folder / "good.bin", wider), Error);
    ModelConfig shorter = small;
    shorter.max_seq_len = 5;
    EXPECT_THROW(read_moments(folder / "good.bin", shorter, nullptr), Error);
}

TEST_F(Checkpoints, DirectoryOfCheckpoints) {
    std::string dir = folder / "runs/one";
    EXPECT_EQ(find_latest_checkpoint(dir).step, -1);
    for (int step : {20, 100, 3}) {
        OptimizerState state = small_state(false, false);
        state.step = step;
        write_checkpoint(dir, {small, state, read_small, read_small_moment, false, "{}"});
    }
    EXPECT_TRUE(std::filesystem::exists(dir + "/model_00000100.bin"));
    EXPECT_TRUE(std::filesystem::exists(dir + "/state_00000100_00000.bin"));
    EXPECT_EQ(std::filesystem::file_size(dir + "/DONE_00000100"), 0u);
    EXPECT_EQ(list_checkpoints(dir), (std::vector<int>{100, 20, 3}));
    write_whole_file(dir + "/DONE_00000500", {});  // its files are missing
    write_whole_file(dir + "/DONE_final", {});
    write_whole_file(dir + "/DONE_00000007.bak", {});
    EXPECT_EQ(find_latest_checkpoint(dir).step, 100);
    delete_checkpoint(dir, 100);
    EXPECT_FALSE(std::filesystem::exists(dir + "/model_00000100.bin"));
    EXPECT_FALSE(std::filesystem::exists(dir + "/state_00000100_00000.bin"));
    EXPECT_EQ(find_latest_checkpoint(dir).step, 20);
    delete_checkpoint(dir, 100);  // repeating it is not an error
}

// Each file's checksum is compared, also if its structure is valid; so is the step in the state's header.
TEST_F(Checkpoints, ChangedAndExchangedFilesAreRefused) {
    const std::string dir = folder.path;
    for (int step : {1, 2}) {
        OptimizerState state = small_state(false, false);
        state.step = step;
        write_checkpoint(dir, {small, state, read_small, read_small_moment, false, "{}"});
    }
    auto refusal = [&] { return message_of([&] { check_checkpoint(dir, 2); }); };
    for (const std::string& path : {model_path(dir, 2), optimizer_path(dir, 2)}) {
        const std::string good = read_whole_file(path);
        std::string bad = good;
        bad[1024 + 40] ^= 1;  // in a value
        write_whole_file(path, {bad});
        EXPECT_EQ(refusal(), path + " is damaged: its checksum does not match its content");
        write_whole_file(path, {good});
        EXPECT_EQ(refusal(), "");
    }
    std::filesystem::remove(run_path(dir, 2));  // with its checksums; step 1 has such a file
    EXPECT_TRUE(contains(refusal(), "run_00000002.json is missing, which the run had"));
    std::filesystem::remove(run_path(dir, 1));  // as in a folder of llm.c's
    write_whole_file(optimizer_path(dir, 2), {read_whole_file(optimizer_path(dir, 1))});
    EXPECT_EQ(refusal(), optimizer_path(dir, 2) + " belongs to step 1");
}

TEST_F(Checkpoints, FailedWriteLeavesNoDoneAndNoDebris) {
    OptimizerState state = small_state(false, false);
    write_checkpoint(folder.path, {small, state, read_small, read_small_moment, false, "{}"});
    auto broken = [](int, size_t, float*, size_t) { fail("the device is gone"); };
    EXPECT_THROW(write_checkpoint(folder.path, {small, state, broken, read_small_moment, false, "{}"}),
                 Error);
    EXPECT_EQ(find_latest_checkpoint(folder.path).step, -1);
    EXPECT_FALSE(std::filesystem::exists(temporary_of(model_path(folder.path, state.step))));
    expect_model(model_path(folder.path, state.step));  // the old file is intact
    write_whole_file(folder / "file", {"x"});
    EXPECT_THROW(
        write_checkpoint(folder / "file", {small, state, read_small, read_small_moment, false, "{}"}), Error);
}
