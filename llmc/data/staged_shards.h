// Token shards that appear under their names together, when all are complete.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/output.h"
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
                remove_file(mask_of(temporary[renamed]));
            } catch (const Error&) {
                // the error that led here is the one to report
            }
    }
    static void move(const std::string& file, const std::string& path) {
        const std::string mask = mask_of(file), to = mask_of(path);
        if (file_exists(mask))
            rename_file(mask, to);
        else if (file_exists(to))
            remove_file(to);
        rename_file(file, path);
    }
    void finish(TokenShardWriter& shard, const std::string& path) {
        temporary.push_back(shard.file.path);
        shards.push_back({path, shard.tokens, ""});  // from now on it is removed after an error
        shard.finish();
        const TokenShard opened = open_token_shard(shard.file.path);
        shards.back().checksum = opened.checksum;
        shards.back().mask = opened.mask;
        shards.back().packed = opened.packed;
    }
    void rename_all() {
        for (; renamed < shards.size(); renamed++) {
            const TokenShard& shard = shards[renamed];
            const char* old = file_exists(shard.path) ? ", instead of an earlier shard" : "";
            move(temporary[renamed], shard.path);
            print_line(stdout, "%s: %llu tokens%s", shard.path.c_str(), (unsigned long long)shard.tokens,
                       old);
        }
    }
};

// Writes tokens to shards PREFIX.bin or, if there are more than `limit`, PREFIX_000000.bin and so on. The
// first shard's name is known when it is complete.
struct ShardWriter {
    StagedShards& staged;
    std::string prefix;
    uint64_t limit;
    int packed = 0;  // of questions and answers
    uint64_t total = 0;
    size_t written = 0;
    std::unique_ptr<TokenShardWriter> shard = nullptr;

    std::string numbered() const { return prefix + format_string("_%06zu.bin", written); }
    void finish_shard(const std::string& path) {
        staged.finish(*shard, path);
        written++;
        shard = nullptr;
    }
    void add(std::span<const uint16_t> tokens, std::vector<bool> targets = {}) {
        total += tokens.size();
        while (!tokens.empty()) {
            if (shard && shard->tokens == limit) finish_shard(numbered());
            if (!shard) shard = std::make_unique<TokenShardWriter>(numbered() + std::string(staged_suffix));
            shard->packed = packed;
            const size_t some = std::min(tokens.size(), size_t(limit - shard->tokens));
            const auto end = targets.begin() + long(targets.empty() ? 0 : some);
            shard->add(tokens.data(), some, {targets.begin(), end});
            targets.erase(targets.begin(), end);
            tokens = tokens.subspan(some);
        }
    }
    void finish() {
        if (shard) finish_shard(written ? numbered() : prefix + ".bin");
    }
};
