// A tokenizer's files for other programs. Declared in tokenizer.h. The fields of tokenizer.json are those
// that the tokenizers library writes for GPT-2.
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_roles.h"

using nlohmann::json;

TokenTexts spell_tokens(Tokenizer& tokenizer) {
    TokenTexts texts;
    std::set<std::string> known;
    std::set<int> added;
    for (const AddedToken& t : tokenizer.added) added.insert(t.id);
    for (int id = 0; id < tokenizer.vocab_size();
         id++) {  // an added token is its text; the others spell bytes
        const std::string& token = tokenizer.tokens[id];
        texts.tokens.push_back(added.contains(id) ? token : encode_printable(token));
        if (!known.insert(texts.tokens.back()).second)
            fail("%s: two tokens have the same text as token %d, which other programs' files cannot express",
                 tokenizer.name.c_str(), id);
    }
    for (const Tokenizer::Merge& m : tokenizer.merges())
        texts.merges.push_back(texts.tokens[m.left] + " " + texts.tokens[m.right]);
    return texts;
}

static json byte_level(bool add_prefix_space, bool trim_offsets) {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", add_prefix_space},
            {"trim_offsets", trim_offsets},
            {"use_regex", true}};
}

static json ids_of(const TokenTexts& texts) {
    json ids = json::object();
    for (size_t id = 0; id < texts.tokens.size(); id++) ids[texts.tokens[id]] = id;
    return ids;
}

std::string text_of_tokenizer_json(Tokenizer& tokenizer) {
    const TokenTexts texts = spell_tokens(tokenizer);
    std::vector<AddedToken> tokens = tokenizer.added;
    if (tokens.empty()) tokens = {{.id = tokenizer.end_of_text, .special = true}};
    json added = json::array();
    for (const AddedToken& t : tokens)
        added.push_back({{"id", t.id},
                         {"content", texts.tokens[t.id]},
                         {"single_word", t.single_word},
                         {"lstrip", t.lstrip},
                         {"rstrip", t.rstrip},
                         {"normalized", t.normalized},
                         {"special", t.special}});
    const bool prefix = tokenizer.add_prefix_space;
    const json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", ""},
                        {"end_of_word_suffix", ""},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", ids_of(texts)},
                        {"merges", texts.merges}};
    JsonMembers all = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", added},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", byte_level(prefix, true)},
                       {"post_processor", byte_level(prefix, false)},
                       {"decoder", byte_level(prefix, true)},
                       {"model", model}};
    add_roles(all, tokenizer.roles, "tokenizer");
    return json_text(all, 1) + "\n";
}

bool is_tokenizer_json(const std::string& path) {
    const json whole = read_json_object(path);
    return whole.contains("model") && whole.contains("added_tokens");
}

static std::string tokenizer_config(const Tokenizer& tokenizer, const std::string& end, int max_seq_len) {
    JsonMembers config = {{"tokenizer_class", "GPT2Tokenizer"},
                          {"add_prefix_space", tokenizer.add_prefix_space},
                          {"bos_token", end},
                          {"eos_token", end},
                          {"unk_token", end},
                          {"clean_up_tokenization_spaces", false},
                          {"model_max_length", max_seq_len}};
    add_roles(config, tokenizer.roles, "config");
    return json_text(config, 2) + "\n";
}

void write_hugging_face_tokenizer(const std::string& folder, Tokenizer& tokenizer, int max_seq_len) {
    const TokenTexts texts = spell_tokens(tokenizer);
    std::string merges = "#version: 0.2\n";
    for (const std::string& merge : texts.merges) merges += merge + "\n";
    write_whole_file(folder + "/tokenizer.json", {text_of_tokenizer_json(tokenizer)});
    write_whole_file(folder + "/vocab.json", {json_text(ids_of(texts)), "\n"});
    write_whole_file(folder + "/merges.txt", {merges});
    write_whole_file(folder + "/tokenizer_config.json",
                     {tokenizer_config(tokenizer, texts.tokens[tokenizer.end_of_text], max_seq_len)});
}
