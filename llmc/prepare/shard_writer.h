// Writes token shards for prepare_data. They appear under their names together, when all are complete.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/warning.h"
#include "llmc/data/token_file.h"

// Complete shards that still have temporary names. What is not renamed is removed.
struct StagedShards {
    std::vector<TokenShard> shards = {};  // with their final paths
    std::vector<std::string> temporary = {};
    size_t renamed = 0;

    StagedShards() = default;
    StagedShards(const StagedShards&) = delete;
    ~StagedShards() {
        for (; renamed < shards.size(); renamed++) try {
                remove_file(temporary[renamed]);
            } catch (const Error&) {
                // the error that led here is the one to report
            }
    }
    void add(const std::string& file, const std::string& path, uint64_t tokens) {
        temporary.push_back(file);
        shards.push_back({path, tokens, ""});  // from now on it is removed after an error
        shards.back().checksum = open_token_shard(file).checksum;
    }
    void rename_all() {
        for (; renamed < shards.size(); renamed++) {
            const TokenShard& shard = shards[renamed];
            rename_file(temporary[renamed], shard.path);
            print_line(stdout, "%s: %llu tokens", shard.path.c_str(), (unsigned long long)shard.tokens);
        }
    }
};

// Writes tokens to shards PREFIX.bin or, if there are more than `limit`, PREFIX_000000.bin and so on. The
// first shard's name is known when it is complete.
struct ShardWriter {
    StagedShards& staged;
    std::string prefix;
    uint64_t limit;
    uint64_t total = 0;
    size_t written = 0;
    std::unique_ptr<TokenShardWriter> shard = nullptr;

    std::string numbered() const { return prefix + format_string("_%06zu.bin", written); }
    void finish_shard(const std::string& path) {
        shard->finish();
        staged.add(shard->file.path, path, shard->tokens);
        written++;
        shard = nullptr;
    }
    void add(const uint16_t* tokens, size_t count) {
        total += count;
        while (count > 0) {
            if (shard && shard->tokens == limit) finish_shard(numbered());
            if (!shard) shard = std::make_unique<TokenShardWriter>(numbered() + ".new");
            const size_t some = std::min(count, size_t(limit - shard->tokens));
            shard->add(tokens, some);
            tokens += some;
            count -= some;
        }
    }
    void finish() {
        if (shard) finish_shard(written ? numbered() : prefix + ".bin");
    }
};
