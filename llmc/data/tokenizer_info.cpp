#include "llmc/data/tokenizer_info.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/os/files.h"

namespace fs = std::filesystem;
using nlohmann::json;

static const char* list_key = "shards";
static const char* shards_key = "tokenizer_of_shards";  // make_corpus writes "tokenizer" into the same file

static bool is_bytes(const Tokenizer& tokenizer) { return tokenizer.name == "bytes"; }

std::string describe(const TokenizerInfo& info) {
    return format_string("the tokenizer %s (%d tokens)", info.name.c_str(), info.vocab_size);
}

// What the tokens alone do not say.
static void add_to_checksum(Checksum& sum, const Tokenizer& tokenizer) {
    std::vector<int> values = {tokenizer.add_prefix_space, int(tokenizer.added.size())};
    for (const AddedToken& t : tokenizer.added)
        values.insert(values.end(), {t.id, t.special, t.normalized, t.single_word, t.lstrip, t.rstrip});
    for (const Tokenizer::Merge& merge : tokenizer.given_merges.value_or(std::vector<Tokenizer::Merge>()))
        values.insert(values.end(), {merge.left, merge.right, merge.merged});
    sum.add(values.data(), values.size() * sizeof(int));
}

TokenizerInfo info_of(const Tokenizer& tokenizer) {
    Checksum sum;
    sum.add(&tokenizer.end_of_text, sizeof tokenizer.end_of_text);
    for (const std::string& token : tokenizer.tokens) {
        const auto length = uint32_t(token.size());
        sum.add(&length, sizeof length);
        sum.add(token.data(), token.size());
    }
    if (!fits_tokenizer_file(tokenizer)) add_to_checksum(sum, tokenizer);
    return {
        .name = is_bytes(tokenizer) ? "bytes" : fs::path(tokenizer.name).filename().generic_string(),
        .vocab_size = tokenizer.vocab_size(),
        .checksum = sum.text(),
        .file = is_bytes(tokenizer) ? "" : fs::absolute(tokenizer.name).lexically_normal().generic_string()};
}

// A file in the folder of the JSON file is recorded by its name alone, so that both can be moved.
std::string tokenizer_info_to_json(const TokenizerInfo& info, const std::string& folder) {
    const fs::path file = info.file, home = (fs::absolute(folder) / "name").lexically_normal().parent_path();
    const bool in_same_folder = file.parent_path() == home;
    json object = {{"name", printable(info.name)}, {"vocab_size", info.vocab_size}, {"xxh3", info.checksum}};
    if (!info.file.empty())
        object["file"] = printable(in_same_folder ? file.filename().generic_string() : info.file);
    return json_text(object);
}

TokenizerInfo tokenizer_info_from_json(const std::string& text, const std::string& json_path) {
    const json object = parse_json_object(text, json_path);
    try {
        TokenizerInfo info = {.name = object.at("name"),
                              .vocab_size = 0,
                              .checksum = object.at("xxh3"),
                              .file = object.value("file", std::string())};
        const json& size = object.at("vocab_size");
        if (!size.is_number_unsigned() || size.get<uint64_t>() < 1 || size.get<uint64_t>() > 65536)
            fail("%s: the tokenizer's vocab_size is %s, not 1 to 65536", json_path.c_str(),
                 describe_json(size).c_str());
        info.vocab_size = size.get<int>();
        if (!info.file.empty() && fs::path(info.file).is_relative())
            info.file = (fs::path(json_path).parent_path() / info.file).generic_string();
        return info;
    } catch (const json::exception& error) {
        fail("%s does not describe a tokenizer: %s", json_path.c_str(), json_reason(error).c_str());
    }
}

TokenizerInfo keep_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
    TokenizerInfo info = info_of(tokenizer);
    if (is_bytes(tokenizer)) return info;
    const std::string copy = fs::absolute(path).lexically_normal().generic_string();
    if (copy != info.file || !file_exists(copy)) {  // or moved meanwhile
        if (fits_tokenizer_file(tokenizer))
            write_tokenizer(tokenizer, path);
        else
            write_whole_file(path, {tokenizer.hugging_face_files, "\n"});
    }
    info.file = copy;
    return info;
}

// --- shards ---

bool is_sidecar(const std::string& path) {
    const json members = read_json_object(path);
    return members.empty() || members.contains(shards_key) || members.contains("nats_per_token");
}

void record_shards(const std::string& prefix, const Tokenizer& tokenizer,
                   const std::vector<TokenShard>& shards) {
    const std::string path = prefix + ".json";
    json members = file_exists(path) ? read_json_object(path) : json::object(), list = json::array();
    for (const TokenShard& shard : shards)
        list.push_back(
            {{"part", shard.path.substr(prefix.size())}, {"tokens", shard.tokens}, {"xxh3", shard.checksum}});
    const TokenizerInfo info = keep_tokenizer(tokenizer, prefix + ".tokenizer");
    const std::string folder = fs::absolute(prefix).parent_path().generic_string();
    members[shards_key] = parse_json_object(tokenizer_info_to_json(info, folder), prefix);
    members[list_key] = list;
    write_whole_file(path, {json_text(members, 2), "\n"});
}

std::string sidecar_of(const std::string& shard) {
    static const std::regex ending("(_train|_val)?(_[0-9]{6})?(\\.bin)?$");
    const std::string name = fs::path(shard).filename().generic_string();
    return (fs::path(shard).parent_path() / (std::regex_replace(name, ending, "") + ".json"))
        .generic_string();
}

// What a sidecar says; none if it is missing or some other file that has this name.
static std::optional<TokenizerInfo> read_sidecar(const std::string& path) {
    if (!file_exists(path)) return std::nullopt;
    json members;
    try {
        members = read_json_object(path);
    } catch (const Error& error) {
        warn("%s: it does not say which tokenizer made the shards", error.what());
        return std::nullopt;
    }
    if (!members.contains(shards_key)) return std::nullopt;
    TokenizerInfo info = tokenizer_info_from_json(json_text(members[shards_key]), path);
    // JSON cannot hold every file name; record_shards() writes a copy next to the sidecar
    const std::string copy = fs::path(path).replace_extension(".tokenizer").generic_string();
    if (!info.file.empty() && !file_exists(info.file) && file_exists(copy)) info.file = copy;
    return info;
}

// What NAME.json lists: the shards by their paths, which begin with `folder`. Empty if it is missing, or some
// other file that has this name.
using ShardList = std::map<std::string, TokenShard>;

static ShardList read_shard_list(const std::string& sidecar, const std::string& folder) {
    ShardList list;
    try {
        const json members = file_exists(sidecar) ? read_json_object(sidecar) : json::object();
        if (!members.contains(shards_key)) return list;
        const std::string prefix = folder + fs::path(sidecar).stem().generic_string();
        for (const json& shard : members.value(list_key, json::array())) {
            const std::string path = prefix + shard.at("part").get<std::string>();
            list[path] = {path, shard.at("tokens"), shard.at("xxh3")};
        }
    } catch (const json::exception& error) {
        fail("%s does not list shards: %s", sidecar.c_str(), json_reason(error).c_str());
    } catch (const Error&) {
        list.clear();  // read_sidecar() warns of it
    }
    return list;
}

void check_listed_shards(const std::string& pattern, const std::vector<TokenShard>& shards) {
    const char* advice =
        "prepare_data was interrupted, is running, or another program wrote the shard: run prepare_data "
        "again, or give the shards another name";
    std::map<std::string, ShardList> lists;  // by sidecar
    std::set<std::string> found;
    for (const TokenShard& shard : shards) {
        const std::string sidecar = sidecar_of(shard.path), file = fs::path(shard.path).filename().string(),
                          folder = shard.path.substr(0, shard.path.size() - file.size());
        if (!lists.count(sidecar)) lists[sidecar] = read_shard_list(sidecar, folder);
        const ShardList& list = lists[sidecar];
        if (list.empty()) continue;
        const auto listed = list.find(shard.path);
        if (listed == list.end() || listed->second.tokens != shard.tokens ||
            listed->second.checksum != shard.checksum)
            fail("%s is not one of the shards that %s lists: %s", shard.path.c_str(), sidecar.c_str(),
                 advice);
        found.insert(shard.path);
    }
    if (file_exists(pattern)) return;  // one file, whatever characters its name has
    for (const auto& [sidecar, list] : lists)
        for (const auto& [path, shard] : list)
            if (!found.count(path) && matches_pattern(pattern, path))
                fail("%s is missing, which %s lists: %s", path.c_str(), sidecar.c_str(), advice);
}

std::optional<TokenizerInfo> tokenizer_of_shards(const std::vector<std::string>& patterns) {
    std::optional<TokenizerInfo> first;
    std::string first_path;
    for (const std::string& pattern : patterns) {
        std::set<std::string> sidecars;
        for (const std::string& shard : matching_paths(pattern)) sidecars.insert(sidecar_of(shard));
        for (const std::string& path : sidecars) {
            const std::optional<TokenizerInfo> info = read_sidecar(path);
            if (!info) continue;
            if (first && first->checksum != info->checksum)
                fail("%s names %s, but %s names %s: a run reads the shards of one tokenizer",
                     first_path.c_str(), describe(*first).c_str(), path.c_str(), describe(*info).c_str());
            if (!first) first_path = path;
            first = info;
        }
    }
    return first;
}

void warn_of_bytes(const std::vector<TokenShard>& shards, int vocab_size) {
    const int bytes_vocab = 257;
    if (vocab_size <= bytes_vocab || shards.empty()) return;
    const TokenShard& shard = shards.front();
    std::vector<uint16_t> tokens(size_t(std::min<uint64_t>(shard.tokens, 1 << 20)));
    read_tokens(shard, 0, tokens.size(), tokens.data());
    if (std::any_of(tokens.begin(), tokens.end(), [](uint16_t token) { return token >= bytes_vocab; }))
        return;
    warn(
        "%s: no token reaches 257, so this is likely text as plain bytes, and the model's vocabulary of %d "
        "is for another tokenizer; --tokenizer bytes makes a model for bytes",
        shard.path.c_str(), vocab_size);
}

// --- finding the tokenizer again ---

std::optional<Tokenizer> open_recorded_tokenizer(const TokenizerInfo& info) {
    std::vector<std::string> places = {info.file.empty() ? "bytes" : info.file,
                                       usual_tokenizer({fs::path(info.file).parent_path().generic_string()})};
    for (const std::string& place : places) {
        std::error_code error;
        if (place.empty() || (place != "bytes" && !fs::exists(place, error))) continue;
        try {
            Tokenizer tokenizer = open_tokenizer(place);
            if (info_of(tokenizer).checksum == info.checksum) return tokenizer;
        } catch (const Error&) {
            // another file has this name now
        }
    }
    return std::nullopt;
}
