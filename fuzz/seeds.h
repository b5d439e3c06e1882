// What the seeds are made of, where a fuzz program must know it too.
#pragma once
#include <cstring>
#include <string>

#include "llmc/model_config.h"

// The model of the optimizer states that are read.
inline const ModelConfig seed_config = {4, 6, 8, 1, 2, 4};

// A token shard of 18 tokens.
inline std::string seed_shard() {
    const int32_t header[256] = {20240520, 1, 18};
    std::string bytes(sizeof header + 36, '\1');
    memcpy(bytes.data(), header, sizeof header);
    return bytes;
}
