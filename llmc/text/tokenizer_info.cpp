#include "llmc/text/tokenizer_info.h"

#include <filesystem>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"
#include "llmc/text/tokenizer_roles.h"

namespace fs = std::filesystem;
using nlohmann::json;

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
    return {.name = tokenizer.is_bytes() ? "bytes" : fs::path(tokenizer.name).filename().generic_string(),
            .vocab_size = tokenizer.vocab_size(),
            .checksum = sum.text(),
            .file = tokenizer.is_bytes() ? "" : whole_name(tokenizer.name),
            .chat_template = chat_template_of(tokenizer.roles)};
}

// A file in the folder of the JSON file is recorded by its name alone, so that both can be moved.
std::string tokenizer_info_to_json(const TokenizerInfo& info, const std::string& folder) {
    const fs::path file = info.file, home = absolute_path(fs::path(folder) / "name").parent_path();
    const bool in_same_folder = file.parent_path() == home;
    json object = {{"name", printable(info.name)}, {"vocab_size", info.vocab_size}, {"xxh3", info.checksum}};
    if (!info.file.empty())
        object["file"] = printable(in_same_folder ? file.filename().generic_string() : info.file);
    if (!info.chat_template.empty()) object["chat_template"] = info.chat_template;
    return json_text(object);
}

TokenizerInfo tokenizer_info_from_json(const std::string& text, const std::string& json_path) {
    const json object = parse_json_object(text, json_path);
    try {
        TokenizerInfo info = {.name = object.at("name"),
                              .vocab_size = 0,
                              .checksum = object.at("xxh3"),
                              .file = object.value("file", std::string()),
                              .chat_template = object.value("chat_template", std::string())};
        const json& size = object.at("vocab_size");
        if (!size.is_number_unsigned() || size.get<uint64_t>() < 1 || size.get<uint64_t>() > 65536)
            fail("%s: the tokenizer's vocab_size is %s, not 1 to 65536", json_path.c_str(),
                 describe_json(size).c_str());
        info.vocab_size = size.get<int>();
        if (!info.file.empty() && fs::path(info.file).is_relative())
            info.file = generic_text(joined_path(fs::path(json_path).parent_path(), info.file));
        return info;
    } catch (const json::exception& error) {
        fail("%s does not describe a tokenizer: %s", json_path.c_str(), json_reason(error).c_str());
    }
}

TokenizerInfo keep_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
    TokenizerInfo info = info_of(tokenizer);
    if (tokenizer.is_bytes()) return info;
    const std::string copy = whole_name(path);
    if (copy != info.file || !file_exists(copy)) {  // or moved meanwhile
        if (tokenizer.hugging_face_files.empty())
            write_tokenizer(tokenizer, path);
        else
            write_whole_file(path, {tokenizer.hugging_face_files, "\n"});
    }
    info.file = copy;
    return info;
}

bool is_kept_tokenizer(const std::string& path) {
    if (is_tokenizer_file(path)) return true;
    const json files = read_json_object(path);
    return files.contains("tokenizer.json") || files.contains("merges.txt");
}

void take_chat_template(Tokenizer& tokenizer, const TokenizerInfo& info) {
    if (!info.chat_template.empty() && info.chat_template != chat_template_of(tokenizer.roles))
        tokenizer.roles = with_chat_template(tokenizer.roles, info.chat_template);
}

// --- finding the tokenizer again ---

std::optional<Tokenizer> open_recorded_tokenizer(const TokenizerInfo& info) {
    const std::vector<std::string> candidates = {
        info.file.empty() ? "bytes" : info.file,
        usual_tokenizer({generic_text(fs::path(info.file).parent_path())})};
    for (const std::string& place : candidates) {
        std::error_code error;
        const bool is_there = place == "bytes" || fs::exists(place, error);
        // such as a file in the home folder of somebody else, or a path of another system
        const bool leads_nowhere = error == std::errc::permission_denied ||
                                   error == std::errc::too_many_symbolic_link_levels ||
                                   error == std::errc::filename_too_long;
        if (error && !leads_nowhere)
            throw FileError("cannot open " + printable(place) + ": " + error.message());
        if (place.empty() || !is_there) continue;
        try {
            Tokenizer tokenizer = open_tokenizer(place);
            if (info_of(tokenizer).checksum != info.checksum) continue;
            take_chat_template(tokenizer, info);
            return tokenizer;
        } catch (const FileError&) {
            throw;
        } catch (const Error&) {
            // another file has this name now
        }
    }
    return std::nullopt;
}
