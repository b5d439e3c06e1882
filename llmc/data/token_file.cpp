#include "llmc/data/token_file.h"

#include "llmc/base/ceil_div.h"
#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/output.h"
#include "llmc/data/ignored_target.h"
#include "llmc/data/sidecar.h"

static const int32_t shard_magic = 20240520, shard_version = 1, mask_magic = 20260520;

std::string mask_of(const std::string& shard) {
    const std::string end(shard.ends_with(staged_suffix) ? staged_suffix : "");
    if (shard.ends_with(".bin" + end)) return shard.substr(0, shard.size() - 4 - end.size()) + ".mask" + end;
    return "";
}

bool is_mask(const std::string& path) { return begins_with(path, mask_magic); }

// Reads the shard's mask if there is one.
static void read_mask(TokenShard& shard) {
    const std::string path = mask_of(shard_itself(shard.path));
    if (path.empty() || !file_exists(path)) return;
    const File file = open_to_read(path);
    const uint64_t size = size_of(file, path), bytes = ceil_div(shard.tokens, uint64_t(8));
    int32_t header[header_ints] = {};
    if (size >= header_bytes) read_exactly(file, path, header, header_bytes);
    if (header[0] != mask_magic || header[1] != 1 || uint64_t(header[2]) != shard.tokens || header[3] < 0 ||
        size != header_bytes + bytes)
        fail("%s is not the mask of the %llu tokens of %s: prepare the data again, or remove it",
             path.c_str(), (unsigned long long)shard.tokens, shard.path.c_str());
    auto mask = std::make_shared<std::vector<uint8_t>>(bytes);
    read_exactly(file, path, mask->data(), bytes);
    shard.mask = mask;
    shard.packed = header[3];
}

void ignore_targets(const TokenShard& shard, uint64_t first, std::span<int> targets) {
    for (size_t i = 0; shard.mask && i < targets.size(); i++)
        if (!((*shard.mask)[(first + i) / 8] >> ((first + i) % 8) & 1)) targets[i] = ignored_target;
}

static std::string identity_of(const File& file, const std::string& path, const int32_t* header,
                               uint64_t bytes, const std::vector<uint8_t>* mask) {
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
    if (mask) sum.add(mask->data(), mask->size());
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
        fail("%s is not a token shard: it starts with %d instead of %d; %s makes one, --text reads text",
             path.c_str(), header[0], shard_magic, command_of("prepare_data").c_str());
    if (header[1] != shard_version)
        fail("%s is a token shard of version %d; only version %d can be read", path.c_str(), header[1],
             shard_version);
    if (header[2] < 0) fail("%s is damaged: its header says %d tokens", path.c_str(), header[2]);
    uint64_t tokens = uint64_t(header[2]), expected = header_bytes + tokens * sizeof(uint16_t);
    if (size != expected)
        fail("%s is %s: %llu bytes, but the %llu tokens of its header take %llu", path.c_str(),
             size < expected ? "truncated" : "too long", (unsigned long long)size, (unsigned long long)tokens,
             (unsigned long long)expected);
    TokenShard shard = {path, tokens, "", status_of(file, path)};  // before the content is read
    read_mask(shard);
    shard.checksum = identity_of(file, path, header, tokens * sizeof(uint16_t), shard.mask.get());
    return shard;
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
            "no token shard matches '%s': say where they are with -i or, for validation, -j (%s makes "
            "them)",
            pattern.c_str(), command_of("prepare_data").c_str());
    }
    std::vector<TokenShard> shards;
    for (const std::string& path : paths) shards.push_back(open_token_shard(path));
    check_listed_shards(pattern, shards);
    return shards;
}

std::vector<TokenShard> open_token_shards(const std::vector<std::string>& patterns) {
    std::vector<TokenShard> all;
    for (const std::string& pattern : patterns) {
        std::vector<TokenShard> shards = open_token_shards(pattern);
        std::move(shards.begin(), shards.end(), std::back_inserter(all));
    }
    return all;
}

uint64_t count_tokens(const std::vector<std::string>& patterns) {
    uint64_t tokens = 0;
    for (const TokenShard& shard : open_token_shards(patterns)) tokens += shard.tokens;
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

static std::string header_of(int32_t magic, uint64_t tokens, int packed = 0) {
    const int32_t header[header_ints] = {magic, shard_version, int32_t(tokens), packed};
    return {reinterpret_cast<const char*>(header), header_bytes};
}

TokenShardWriter::TokenShardWriter(const std::string& path) : file(path) {
    file.write(header_of(shard_magic, 0));
}

void TokenShardWriter::add(const uint16_t* more, uint64_t count, const std::vector<bool>& targets) {
    for (size_t i = 0; i < targets.size(); i++) {
        mask.resize((tokens + i) / 8 + 1);
        mask.back() |= uint8_t(targets[i] << (tokens + i) % 8);
    }
    tokens += count;
    if (tokens > max_shard_tokens)
        fail("cannot write %llu tokens to %s: a shard holds at most %llu", (unsigned long long)tokens,
             file.path.c_str(), (unsigned long long)max_shard_tokens);
    file.write(more, count * sizeof(uint16_t));
}

void TokenShardWriter::finish() {
    file.replace_start(header_of(shard_magic, tokens));
    if (!mask.empty()) mask.resize(ceil_div(tokens, uint64_t(8)));
    const std::string_view bits(reinterpret_cast<const char*>(mask.data()), mask.size());
    if (!mask.empty()) write_whole_file(mask_of(file.path), {header_of(mask_magic, tokens, packed), bits});
    file.finish();
}
