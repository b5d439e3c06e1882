// The parts of the seeds that the fuzz programs need, too.
#pragma once
#include <cstring>
#include <string>

#include "llmc/files/checkpoint.h"
#include "llmc/launchpad/device_cache.h"
#include "llmc/run/run_state.h"

// The model that the optimizer states belong to.
inline const ModelConfig seed_config = {4, 6, 8, 1, 2, 4};

// A token shard of 18 tokens.
inline std::string seed_shard() {
    const int32_t header[256] = {20240520, 1, 18};
    std::string bytes(sizeof header + 36, '\1');
    memcpy(bytes.data(), header, sizeof header);
    return bytes;
}

inline void fill_seed(int tensor, size_t offset, float* values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = float(tensor) + 0.25f * float((offset + i) % 5);
}

// Writes a checkpoint of step seed_step to the folder.
inline const int seed_step = 7;
inline void write_seed_checkpoint(const std::string& folder) {
    RunState run;
    run.precision = "fp16";
    run.shards = {{"a.bin", 18}, {"b.bin", 40}};
    run.chunk_tokens = 4;
    for (int i = 0; i < 5; i++) run.judge.judge(2.5f, 0.5f, 1);
    OptimizerState state;
    state.step = seed_step;
    const ReadMoment fill_moment = [](Moment, int tensor, size_t offset, float* values, size_t count) {
        fill_seed(tensor, offset, values, count);
    };
    write_checkpoint(folder, {seed_config, state, fill_seed, fill_moment, false, run_state_to_json(run)});
}

// The device that the cached pipelines belong to.
inline const VkPhysicalDeviceProperties seed_device = [] {
    VkPhysicalDeviceProperties device = {};
    device.vendorID = 0x10005;
    for (uint8_t& byte : device.pipelineCacheUUID) byte = uint8_t(&byte - device.pipelineCacheUUID);
    return device;
}();
