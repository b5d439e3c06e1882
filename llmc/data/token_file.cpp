#include "llmc/data/token_file.h"

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/output.h"
#include "llmc/data/sidecar.h"
#include "llmc/text/tokenizer_info.h"

static const int32_t shard_magic = 20240520, shard_version = 1;

static std::string identity_of(const File& file, const std::string& path, const int32_t* header,
                               uint64_t bytes) {
    Checksum sum;
    sum.add(header, header_bytes);
    const uint64_t sample = bytes <= 1 << 20 ? bytes : 4096, last = bytes - sample;
    std::vector<char> piece(sample);
    for (uint64_t i = 0; i < 4 && sample > 0; i++) {
        if (last == 0 && i > 0) break;
        seek(file, path, header_bytes + last * i / 3);
        read_exactly(file, path, piece.data(), sample);
        sum.add(piece.data(), sample);
    }
    return sum.text();
}

bool is_token_shard(const std::string& path) { return begins_with(path, shard_magic); }

TokenShard open_token_shard(const std::string& path) {
    File file = open_to_read(path);
    uint64_t size = size_of(file, path);
    int32_t header[header_ints];
    if (size < header_bytes)
        fail("%s is too short for a token shard: %llu bytes, the header alone has %llu", path.c_str(),
             (unsigned long long)size, (unsigned long long)header_bytes);
    read_exactly(file, path, header, header_bytes);
    if (header[0] != shard_magic)
        fail("%s is not a token shard: it starts with %d instead of %d; make one with prepare_data",
             path.c_str(), header[0], shard_magic);
    if (header[1] != shard_version)
        fail("%s is a token shard of version %d; only version %d can be read", path.c_str(), header[1],
             shard_version);
    if (header[2] < 0) fail("%s is damaged: its header says %d tokens", path.c_str(), header[2]);
    uint64_t tokens = uint64_t(header[2]), expected = header_bytes + tokens * sizeof(uint16_t);
    if (size != expected)
        fail("%s is %s: %llu bytes, but the %llu tokens of its header take %llu", path.c_str(),
             size < expected ? "truncated" : "too long", (unsigned long long)size, (unsigned long long)tokens,
             (unsigned long long)expected);
    const FileStatus status = status_of(file, path);  // before the content is read
    return {path, tokens, identity_of(file, path, header, tokens * sizeof(uint16_t)), status};
}

std::vector<std::string> shard_paths(const std::string& pattern) {
    std::vector<std::string> paths = matching_paths(pattern);
    if (paths == std::vector{pattern}) paths[0] = path_as_listed(pattern);
    return paths;
}

std::vector<TokenShard> open_token_shards(const std::string& pattern) {
    const std::vector<std::string> paths = shard_paths(pattern);
    if (paths.empty()) {
        refuse_unreachable(pattern);
        fail(
            "no token shard matches '%s': say where they are with -i or, for validation, -j (prepare_data "
            "makes them)",
            pattern.c_str());
    }
    std::vector<TokenShard> shards;
    for (const std::string& path : paths) shards.push_back(open_token_shard(path));
    check_listed_shards(pattern, shards);
    return shards;
}

uint64_t count_tokens(const std::string& pattern) {
    uint64_t tokens = 0;
    for (const TokenShard& shard : open_token_shards(pattern)) tokens += shard.tokens;
    return tokens;
}

void check_tokens(const TokenShard& shard, uint64_t first, std::span<const uint16_t> tokens, int vocab_size) {
    for (size_t i = 0; i < tokens.size(); i++)
        if (tokens[i] >= vocab_size)
            fail(
                "%s: token %llu is %d, but the model's vocabulary has %d; is the shard for another "
                "tokenizer?",
                shard.path.c_str(), (unsigned long long)(first + i), tokens[i], vocab_size);
}

void read_tokens(const TokenShard& shard, uint64_t first, uint64_t count, uint16_t* out) {
    if (count > shard.tokens || first > shard.tokens - count)
        fail("cannot read tokens %llu to %llu of %s, which has %llu", (unsigned long long)first,
             (unsigned long long)(first + count), shard.path.c_str(), (unsigned long long)shard.tokens);
    if (count == 0) return;  // out may be null
    File file = open_to_read(shard.path);
    if (status_of(file, shard.path) != shard.status &&
        open_token_shard(shard.path).checksum != shard.checksum)
        fail("%s has changed since it was opened; restore it and resume, or start a new run",
             shard.path.c_str());
    setvbuf(file.get(), nullptr, _IONBF, 0);  // one direct read; a buffer would read too much and copy
    seek(file, shard.path, header_bytes + first * sizeof(uint16_t));
    if (read_some(file, shard.path, out, count * sizeof(uint16_t)) != count * sizeof(uint16_t))
        fail("%s ends before token %llu: it has changed since it was opened", shard.path.c_str(),
             (unsigned long long)(first + count));
}

static std::string header_of(uint64_t tokens) {
    const int32_t header[header_ints] = {shard_magic, shard_version, int32_t(tokens)};
    return {reinterpret_cast<const char*>(header), header_bytes};
}

TokenShardWriter::TokenShardWriter(const std::string& path) : file(path) { file.write(header_of(0)); }

void TokenShardWriter::add(const uint16_t* more, uint64_t count) {
    tokens += count;
    if (tokens > max_shard_tokens)
        fail("cannot write %llu tokens to %s: a shard holds at most %llu", (unsigned long long)tokens,
             file.path.c_str(), (unsigned long long)max_shard_tokens);
    file.write(more, count * sizeof(uint16_t));
}

void TokenShardWriter::finish() {
    file.replace_start(header_of(tokens));
    file.finish();
}
