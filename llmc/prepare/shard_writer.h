// Writes token shards for prepare_data. They appear under their names together, when all are complete.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/warning.h"
#include "llmc/data/token_file.h"

// Complete shards that still have temporary names. What is not published is removed.
struct StagedShards {
    std::vector<TokenShard> shards = {};  // with their final paths
    size_t published = 0;

    static std::string temporary(const std::string& path) { return path + ".new"; }

    StagedShards() = default;
    StagedShards(const StagedShards&) = delete;
    ~StagedShards() {
        for (; published < shards.size(); published++) try {
                remove_file(temporary(shards[published].path));
            } catch (const Error&) {
                // the error that led here is the one to report
            }
    }
    void add(const std::string& path, const std::vector<uint16_t>& tokens) {
        write_token_shard(temporary(path), tokens.data(), tokens.size());
        shards.push_back({path, tokens.size(), ""});  // from now on it is removed after an error
        shards.back().checksum = open_token_shard(temporary(path)).checksum;
    }
    void publish() {
        for (; published < shards.size(); published++) {
            const TokenShard& shard = shards[published];
            rename_file(temporary(shard.path), shard.path);
            print_line(stdout, "%s: %llu tokens", shard.path.c_str(), (unsigned long long)shard.tokens);
        }
    }
};

// Collects tokens in shards PREFIX.bin or, if there are more than `limit`, PREFIX_000000.bin and so on. The
// first shard stays in memory until its name is known.
struct ShardWriter {
    StagedShards& staged;
    std::string prefix;
    uint64_t limit;
    uint64_t total = 0;
    size_t written = 0;
    std::vector<uint16_t> waiting = {};

    void flush(const std::string& path) {
        staged.add(path, waiting);
        written++;
        waiting.clear();
    }
    std::string numbered() const { return prefix + format_string("_%06zu.bin", written); }

    void add(const uint16_t* tokens, size_t count) {
        total += count;
        while (count > 0) {
            if (waiting.size() == limit) flush(numbered());
            const size_t some = std::min(count, size_t(limit - waiting.size()));
            waiting.insert(waiting.end(), tokens, tokens + some);
            tokens += some;
            count -= some;
        }
    }
    void finish() {
        if (total > 0) flush(written ? numbered() : prefix + ".bin");
    }
};
