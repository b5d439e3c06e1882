#include "llmc/data/sidecar.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"

namespace fs = std::filesystem;
using nlohmann::json;

static const char* list_key = "shards";
static const char* replaced_key = "replaced_shards";
static const char* shards_key = "tokenizer_of_shards";  // make_corpus writes "tokenizer" into the same file

bool is_sidecar(const std::string& path) {
    const json members = read_json_object(path);
    return members.empty() || members.contains(shards_key) || members.contains("nats_per_token");
}

void record_shards(const std::string& prefix, const Tokenizer& tokenizer,
                   const std::vector<TokenShard>& shards, const std::set<std::string>& replaced) {
    const std::string path = prefix + ".json";
    json members = file_exists(path) ? read_json_object(path) : json::object(), list = json::array();
    for (const TokenShard& shard : shards)
        list.push_back({{"part", shard.path.substr(prefix.size())},
                        {"tokens", shard.tokens},
                        {"xxh3", shard.checksum},
                        {"mask", shard.mask != nullptr}});
    const TokenizerInfo info = keep_tokenizer(tokenizer, prefix + ".tokenizer");
    const std::string folder = generic_text(absolute_path(prefix).parent_path());
    members[shards_key] = parse_json_object(tokenizer_info_to_json(info, folder), prefix);
    members[list_key] = list;
    members.erase(replaced_key);
    for (const std::string& file : replaced) members[replaced_key].push_back(file.substr(prefix.size()));
    write_whole_file(path, {json_text(members, 2), "\n"});
}

std::string sidecar_of(const std::string& shard) {
    static const std::regex ending("(_train|_val)?(_[0-9]{6})?(\\.bin)?$");
    const std::string name = fs::path(shard).filename().generic_string();
    return generic_text(fs::path(shard).parent_path() / (std::regex_replace(name, ending, "") + ".json"));
}

std::string shard_itself(const std::string& shard) {
    const auto has_files = [](const std::string& path) {
        return file_exists(sidecar_of(path)) || file_exists(mask_of(path));
    };
    std::error_code nowhere;
    if (!is_link(shard) || has_files(shard)) return shard;
    const std::string target = generic_text(fs::canonical(shard, nowhere));
    return !target.empty() && has_files(target) ? target : shard;
}

// What a sidecar says; none if it is missing or some other file that has this name.
static std::optional<TokenizerInfo> read_sidecar(const std::string& path) {
    if (!optional_file_exists(path)) return std::nullopt;
    json members;
    try {
        members = read_json_object(path);
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        warn("%s: it does not say which tokenizer made the shards", error.what());
        return std::nullopt;
    }
    if (!members.contains(shards_key)) return std::nullopt;
    TokenizerInfo info = tokenizer_info_from_json(json_text(members[shards_key]), path);
    // JSON cannot hold every file name; record_shards() writes a copy next to the sidecar
    const std::string copy = generic_text(fs::path(path).replace_extension(".tokenizer"));
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
            if (shard.value("mask", false)) list[path].mask = std::make_shared<std::vector<uint8_t>>();
        }
    } catch (const json::exception& error) {
        fail("%s does not list shards: %s", sidecar.c_str(), json_reason(error).c_str());
    } catch (const FileError&) {
        throw;
    } catch (const Error&) {
        list.clear();  // read_sidecar() warns of it
    }
    return list;
}

std::set<std::string> own_shards(const std::string& prefix) {
    const std::string sidecar = prefix + ".json";
    std::set<std::string> own;
    for (const auto& [path, shard] : read_shard_list(sidecar, prefix.substr(0, prefix.rfind('/') + 1)))
        own.insert({path, mask_of(path)});
    const json members = file_exists(sidecar) ? read_json_object(sidecar) : json::object();
    for (const json& part : members.value(replaced_key, json()))
        if (part.is_string()) own.insert(prefix + part.get<std::string>());
    return own;
}

void check_listed_shards(const std::string& pattern, const std::vector<TokenShard>& shards) {
    const std::string program = command_of("prepare_data");
    const std::string advice = program +
                               " was interrupted, is running, or another program wrote the shard: run " +
                               program + " again, or give the shards another name";
    std::map<std::string, ShardList> lists;  // by sidecar
    std::set<std::string> found;
    for (const TokenShard& shard : shards) {
        const std::string path = shard_itself(shard.path), sidecar = sidecar_of(path),
                          file = fs::path(path).filename().string(),
                          folder = path.substr(0, path.size() - file.size());
        if (!lists.count(sidecar)) lists[sidecar] = read_shard_list(sidecar, folder);
        const ShardList& list = lists[sidecar];
        if (list.empty()) continue;
        const auto listed = list.find(path);
        if (listed != list.end() && listed->second.mask && !shard.mask)
            fail("%s is missing, which says which tokens of %s are answers: restore it, or run %s again",
                 mask_of(path).c_str(), shard.path.c_str(), program.c_str());
        if (listed == list.end() || listed->second.tokens != shard.tokens ||
            listed->second.checksum != shard.checksum)
            fail("%s is not one of the shards that %s lists: %s", shard.path.c_str(), sidecar.c_str(),
                 advice.c_str());
        found.insert(path);
    }
    if (file_exists(pattern)) return;  // one file, whatever characters its name has
    for (const auto& [sidecar, list] : lists)
        for (const auto& [path, shard] : list)
            if (!found.count(path) && matches_pattern(pattern, path))
                fail("%s is missing, which %s lists: %s", path.c_str(), sidecar.c_str(), advice.c_str());
}

std::optional<TokenizerInfo> tokenizer_of_shards(const std::vector<std::string>& patterns) {
    std::optional<TokenizerInfo> first;
    std::string first_path;
    for (const std::string& pattern : patterns) {
        std::set<std::string> sidecars;
        for (const std::string& shard : shard_paths(pattern))
            sidecars.insert(sidecar_of(shard_itself(shard)));
        for (const std::string& path : sidecars) {
            const std::optional<TokenizerInfo> info = read_sidecar(path);
            if (!info) continue;
            if (first && first->checksum != info->checksum)
                fail("%s names %s, but %s names %s: a run reads the shards of one tokenizer",
                     first_path.c_str(), describe(*first).c_str(), path.c_str(), describe(*info).c_str());
            if (!first) first_path = path;
            const std::string template_before = first ? first->chat_template : "";
            first = info;
            if (first->chat_template.empty()) first->chat_template = template_before;
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
