// Reading a byte-level BPE tokenizer from Hugging Face's files. Declared in tokenizer.h.
//
// tokenizer.json, or vocab.json and merges.txt, have the vocabulary. tokenizer_config.json,
// special_tokens_map.json and added_tokens.json in the same folder add tokens and name those that end or pad
// a text. The result is what transformers makes of the files; where its versions or classes disagree about
// them, or where they ask for something else, they are refused.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/paths.h"
#include "llmc/base/utf8.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_roles.h"

namespace fs = std::filesystem;
using nlohmann::json;

static const char *tokenizer_json = "tokenizer.json", *vocab_json = "vocab.json", *merges_txt = "merges.txt",
                  *config_json = "tokenizer_config.json", *special_json = "special_tokens_map.json",
                  *added_json = "added_tokens.json", *generation_json = "generation_config.json",
                  *template_file = "chat_template.jinja";

// --- the files ---

// The files of a tokenizer by their usual names: JSON, merges.txt as a string. A copy of a tokenizer is this
// object as text.
struct TokenizerFiles {
    std::string path;  // for messages
    json contents = json::object();

    bool has(const char* name) const { return contents.contains(name); }
    // A member of a file; null if the file or the member is missing.
    const json& member(const char* file, const char* key) const {
        static const json none;
        const auto found = contents.find(file);
        if (found == contents.end() || !found->contains(key)) return none;
        return (*found)[key];
    }
    // The path of a file, for messages.
    std::string path_of(const char* name) const {
        return fs::path(path).filename() == name ? path : path + " (" + name + ")";
    }
};

// merges.txt of vocab.json, MODEL-merges.txt of MODEL-vocab.json, vocab.bpe of encoder.json.
static std::string merges_beside(const fs::path& vocab) {
    std::string name = vocab.filename().generic_string();
    if (name == "encoder.json") return generic_text(vocab.parent_path() / "vocab.bpe");
    name = name.ends_with(vocab_json) ? name.substr(0, name.size() - std::string(vocab_json).size()) : "";
    return generic_text(vocab.parent_path() / (name + merges_txt));
}

// The vocabulary's file in a folder.
static fs::path vocabulary_in(const fs::path& folder) {
    for (const char* name : {tokenizer_json, vocab_json})
        if (optional_file_exists(generic_text(folder / name))) return folder / name;
    fail("%s has neither tokenizer.json nor vocab.json: it is not the folder of a tokenizer",
         generic_text(folder).c_str());
}

static std::string read_utf8(const std::string& path) {
    std::string text = read_whole_file(path, max_json_bytes);
    if (find_not_utf8(text) != text.npos) fail("%s is not UTF-8", path.c_str());
    return text;
}

// What config.json says of generation: transformers takes it where generation_config.json is missing.
static json generation_of_model(const std::string& path) {
    const json model = read_json_object(path);
    json generation = json::object();
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "do_sample", "max_length",
                            "min_length", "no_repeat_ngram_size", "num_beams", "repetition_penalty",
                            "suppress_tokens", "temperature", "top_k", "top_p"})
        if (model.contains(key)) generation[key] = model[key];
    return generation;
}

static TokenizerFiles load_files(const std::string& name) {
    const fs::path path = fs::is_directory(name) ? vocabulary_in(name) : fs::path(name);
    TokenizerFiles files = {generic_text(path)};
    json whole = read_json_object(generic_text(path));
    if (whole.contains(tokenizer_json) || whole.contains(merges_txt)) {  // a copy
        files.contents = std::move(whole);
        return files;
    }
    const bool has_model = whole.contains("model") && whole["model"].is_object();
    files.contents[has_model ? tokenizer_json : vocab_json] = std::move(whole);
    if (!has_model) {
        const std::string merges = merges_beside(path);
        if (!optional_file_exists(merges))
            fail("%s: its merges are missing: there is no %s", generic_text(path).c_str(), merges.c_str());
        files.contents[merges_txt] = read_utf8(merges);
    }
    for (const char* extra : {config_json, special_json, added_json, generation_json}) {
        const std::string file = generic_text(path.parent_path() / extra);
        if (optional_file_exists(file)) files.contents[extra] = read_json_object(file);
    }
    if (const std::string text = generic_text(path.parent_path() / template_file); optional_file_exists(text))
        files.contents[template_file] = read_utf8(text);
    if (const std::string more = generic_text(path.parent_path() / "additional_chat_templates");
        optional_file_exists(more) && is_folder(more))
        fail("%s: a tokenizer with several chat templates cannot be used: remove the folder", more.c_str());
    // transformers takes GPT-2's class and its defaults if the model's config.json is all there is
    const std::string model = generic_text(path.parent_path() / "config.json");
    if (!optional_file_exists(model)) return files;
    if (!files.has(config_json)) files.contents[config_json] = json::object();
    if (!files.has(generation_json)) files.contents[generation_json] = generation_of_model(model);
    return files;
}

// --- what is refused ---

[[noreturn]] static void refuse(const TokenizerFiles& files, const char* file, const std::string& what) {
    fail("%s asks for %s, which this program does not do", files.path_of(file).c_str(), what.c_str());
}

// A part of tokenizer.json, for messages: its type, or of a sequence the types of its parts.
static std::string type_of(const json& part) {
    if (!part.is_object()) return describe_json(part);
    return part.contains("type") ? describe_json(part["type"]) : "one without a type";
}

static bool is_type(const json& part, const char* type) {
    return part.is_object() && part.contains("type") && part["type"] == type;
}

// The parts of a pipeline's stage, of which a Sequence has several.
static std::vector<json> parts_of(const json& stage, const char* list) {
    if (stage.is_null()) return {};
    if (!is_type(stage, "Sequence")) return {stage};
    std::vector<json> parts;
    for (const json& part : stage.at(list))
        for (const json& inner : parts_of(part, list)) parts.push_back(inner);
    return parts;
}

// Whether a post-processor adds no token to a text.
static bool adds_nothing(const json& processor) {
    if (is_type(processor, "ByteLevel")) return true;
    if (!is_type(processor, "TemplateProcessing")) return false;
    const json& single = processor.at("single");
    return single.is_array() && single.size() == 1 && single[0].is_object() && single[0].contains("Sequence");
}

// Returns add_prefix_space of the pre-tokenizer.
static bool check_pipeline(const TokenizerFiles& files) {
    for (const json& part : parts_of(files.member(tokenizer_json, "normalizer"), "normalizers"))
        refuse(files, tokenizer_json, "the normalizer " + type_of(part));
    for (const json& part : parts_of(files.member(tokenizer_json, "post_processor"), "processors"))
        if (!adds_nothing(part)) refuse(files, tokenizer_json, "the post-processor " + type_of(part));
    for (const json& part : parts_of(files.member(tokenizer_json, "decoder"), "decoders"))
        if (!is_type(part, "ByteLevel")) refuse(files, tokenizer_json, "the decoder " + type_of(part));
    const std::vector<json> splits = parts_of(files.member(tokenizer_json, "pre_tokenizer"), "pretokenizers");
    for (const json& part : splits)
        if (!is_type(part, "ByteLevel")) refuse(files, tokenizer_json, "the pre-tokenizer " + type_of(part));
    if (splits.size() != 1)
        refuse(files, tokenizer_json,
               splits.empty() ? "no pre-tokenizer, not ByteLevel" : "two pre-tokenizers");
    if (!splits[0].value("use_regex", true))
        refuse(files, tokenizer_json, "the pre-tokenizer ByteLevel with use_regex false");
    return splits[0].value("add_prefix_space", true);
}

// Refuses members of tokenizer.json's model that change what it does.
static void check_model(const TokenizerFiles& files) {
    for (const auto& [key, value] : files.member(tokenizer_json, "model").items()) {
        const bool is_off = value.is_null() || value == false || value == "" || value == 0;
        const bool is_usual = key == "vocab" || key == "merges" || key == "unk_token" || key == "fuse_unk";
        if (key == "type" ? value != "BPE" : !is_usual && !is_off)
            refuse(files, tokenizer_json, "a model with " + key + " " + describe_json(value));
    }
    for (const auto& [key, value] : files.contents[tokenizer_json].items())
        if (key != "version" && key != "truncation" && key != "padding" && key != "added_tokens" &&
            key != "normalizer" && key != "pre_tokenizer" && key != "post_processor" && key != "decoder" &&
            key != "model")
            refuse(files, tokenizer_json, "'" + key + "'");
}

// The classes of transformers whose rules are known.
enum class TokenizerClass { gpt2, generic, unnamed };

static TokenizerClass check_config(const TokenizerFiles& files) {
    if (!files.has(config_json) && files.has(tokenizer_json)) return TokenizerClass::unnamed;
    for (const char* key : {"add_bos_token", "add_eos_token", "split_special_tokens"})
        if (const json& value = files.member(config_json, key); !value.is_null() && value != false)
            refuse(files, config_json, std::string(key) + " " + describe_json(value));
    if (!files.member(config_json, "auto_map").is_null())
        refuse(files, config_json, "code of its own (auto_map)");
    const json& name = files.member(config_json, "tokenizer_class");
    if (name.is_null() || name == "GPT2Tokenizer" || name == "GPT2TokenizerFast") return TokenizerClass::gpt2;
    const bool is_generic = name == "PreTrainedTokenizerFast" || name == "TokenizersBackend";
    if (!is_generic || !files.has(tokenizer_json))
        refuse(files, config_json, "the tokenizer_class " + describe_json(name));
    return TokenizerClass::generic;
}

static bool find_prefix_space(const TokenizerFiles& files, TokenizerClass type) {
    const json& asked = files.member(config_json, "add_prefix_space");
    const bool in_config = asked.is_boolean() && asked.get<bool>();
    if (!files.has(tokenizer_json)) return in_config;
    const bool in_pipeline = check_pipeline(files);
    const bool config_counts = type == TokenizerClass::gpt2 || !asked.is_null();
    if (config_counts && in_config != in_pipeline)
        fail("%s: add_prefix_space is %s in tokenizer.json and %s in tokenizer_config.json: make them agree",
             files.path.c_str(), in_pipeline ? "true" : "false",
             asked.is_null() ? "not given, so false," : describe_json(asked).c_str());
    return in_pipeline;
}

// --- added tokens ---

// An added token before its id is known (-1), or with the id that the files state.
struct NamedToken {
    std::string text;
    AddedToken token;

    bool operator==(const NamedToken&) const = default;
};

// A token in any of the files: its text, or an object with flags.
static NamedToken read_token(const json& value, bool special, const std::string& where) {
    NamedToken named = {.text = "", .token = {.id = -1, .special = special}};
    if (value.is_string()) {
        named.text = value.get<std::string>();
    } else {
        if (!value.is_object() || !value.value("content", json()).is_string())
            fail("%s: an added token is %s, not a text or an object with one", where.c_str(),
                 describe_json(value).c_str());
        named.text = value["content"];
        named.token = {.id = -1,
                       .special = value.value("special", special),
                       .normalized = value.value("normalized", !special),
                       .single_word = value.value("single_word", false),
                       .lstrip = value.value("lstrip", false),
                       .rstrip = value.value("rstrip", false)};
    }
    const size_t longest = 255;  // of a token in llm.c's file
    if (named.text.empty() || named.text.size() > longest)
        fail("%s has an added token of %zu bytes, not 1 to %zu", where.c_str(), named.text.size(), longest);
    return named;
}

static int read_id(const json& value, const std::string& where) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > 65535)
        fail("%s: the id of an added token is %s, not 0 to 65535", where.c_str(),
             describe_json(value).c_str());
    return value.get<int>();
}

// The tokens that transformers knows by name, such as eos_token, in the order in which it adds them.
struct SpecialTokens {
    std::vector<NamedToken> all;
    std::optional<std::string> end_of_text;
};

// The joined configuration with the defaults of the class.
static json full_config(const TokenizerFiles& files, TokenizerClass type) {
    json names = joined_config(files.contents);
    for (const char* key : {"bos_token", "eos_token", "unk_token"})
        if (type != TokenizerClass::unnamed && !names.contains(key))
            names[key] = type == TokenizerClass::gpt2 ? json("<|endoftext|>") : json();
    return names;
}

static SpecialTokens read_special_tokens(const TokenizerFiles& files, const json& names) {
    SpecialTokens special;
    const auto add = [&](const std::string& key, const json& value) {
        const bool is_in_map = !files.member(special_json, key.c_str()).is_null();
        const std::string where = files.path_of(is_in_map ? special_json : config_json);
        special.all.push_back(read_token(value, true, where));
    };
    const std::vector<std::string> usual = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};
    for (const std::string& key : usual) {
        const json value = names.value(key, json());
        if (value.is_null()) continue;
        add(key, value);
        if (key == "eos_token") special.end_of_text = special.all.back().text;
    }
    for (const auto& [key, value] : names.items())
        if (key.ends_with("_token") && value.is_string() &&
            std::find(usual.begin(), usual.end(), key) == usual.end())
            add(key, value);
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"})
        if (const json list = names.value(key, json()); list.is_array() || list.is_object())
            for (const json& value : list) add(key, value);
    return special;
}

// The added tokens that the files list with their ids.
using ListedTokens = std::map<int, NamedToken>;

static void list_token(ListedTokens& listed, NamedToken token, const std::string& where) {
    const auto [found, is_new] = listed.emplace(token.token.id, token);
    if (!is_new && found->second != token)
        fail("%s: token %d is '%s' in one file and '%s' in another, or their flags differ: make them agree",
             where.c_str(), token.token.id, found->second.text.c_str(), token.text.c_str());
}

static ListedTokens read_listed_tokens(const TokenizerFiles& files, const SpecialTokens& special) {
    ListedTokens listed;
    const auto list = [&](const char* file, const json& item, const json& id) {
        NamedToken token = read_token(item, false, files.path_of(file));
        token.token.id = read_id(id, files.path_of(file));
        list_token(listed, token, files.path);
    };
    for (const json& item : files.member(tokenizer_json, "added_tokens"))
        list(tokenizer_json, item, item.at("id"));
    const json& decoder = files.member(config_json, "added_tokens_decoder");
    for (const auto& [id, item] : decoder.items()) list(config_json, item, json::parse(id, nullptr, false));
    if (!decoder.is_null()) {
        for (const auto& [id, token] : listed)
            if (!decoder.contains(std::to_string(id)))
                fail(
                    "%s: tokenizer.json has the added token '%s' and tokenizer_config.json does not: make "
                    "them agree",
                    files.path.c_str(), token.text.c_str());
    } else if (files.has(added_json)) {
        for (const auto& item : files.contents[added_json].items()) {
            const std::string& text = item.key();
            const bool is_special = std::any_of(special.all.begin(), special.all.end(),
                                                [&](const NamedToken& named) { return named.text == text; });
            NamedToken token = read_token(text, is_special, files.path_of(added_json));
            token.token.id = read_id(item.value(), files.path_of(added_json));
            token.token.normalized = !is_special;
            if (!listed.count(token.token.id) || listed[token.token.id].text != text)
                list_token(listed, token, files.path);
        }
    }
    return listed;
}

// --- the vocabulary ---

// The tokens' texts as the files spell them, with their ids. Ids are 0 to the number of tokens - 1.
using Vocabulary = std::unordered_map<std::string, int>;

static Vocabulary read_vocabulary(const json& ids, const std::string& path) {
    if (!ids.is_object() || ids.empty()) fail("%s has no tokens", path.c_str());
    if (ids.size() > 65536) fail("%s has %zu tokens, more than 65536", path.c_str(), ids.size());
    Vocabulary vocabulary;
    std::vector<bool> used(ids.size());
    for (const auto& [text, id] : ids.items()) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= ids.size() || used[id.get<size_t>()])
            fail("%s: the id of \"%s\" is not in 0 to %zu or is used twice", path.c_str(), text.c_str(),
                 ids.size() - 1);
        if (text.empty()) fail("%s has a token without text", path.c_str());
        used[id.get<size_t>()] = true;
        vocabulary[text] = id.get<int>();
    }
    return vocabulary;
}

// Gives the added tokens their ids as the tokenizers library does: the vocabulary's, or the next ones.
static std::vector<NamedToken> add_tokens(Vocabulary& vocabulary, const ListedTokens& listed,
                                          const SpecialTokens& special, const std::string& path) {
    std::vector<NamedToken> added;
    std::vector<NamedToken> wanted;
    for (const auto& [id, token] : listed) wanted.push_back(token);
    wanted.insert(wanted.end(), special.all.begin(), special.all.end());
    for (NamedToken token : wanted) {
        const auto same_text = [&](const NamedToken& other) { return other.text == token.text; };
        if (std::any_of(added.begin(), added.end(), same_text)) continue;
        const int id = vocabulary.emplace(token.text, int(vocabulary.size())).first->second;
        if (token.token.id >= 0 && token.token.id != id)
            fail("%s: the added token '%s' has the id %d, but the tokenizers library would give it %d",
                 path.c_str(), token.text.c_str(), token.token.id, id);
        token.token.id = id;
        added.push_back(token);
    }
    if (vocabulary.size() > 65536)
        fail("%s has %zu tokens, more than 65536", path.c_str(), vocabulary.size());
    return added;
}

// --- merges ---

// A merge as the files spell it: two tokens, left and right.
using SpelledMerge = std::pair<std::string, std::string>;

// tokenizer.json spells a merge as "left right" or, since 2024, as ["left", "right"].
static SpelledMerge spelled_merge(const json& merge, const std::string& where) {
    if (merge.is_array() && merge.size() == 2) return {merge[0], merge[1]};
    const std::string pair = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = pair.find(' ');
    if (space == pair.npos || pair.find(' ', space + 1) != pair.npos)
        fail("%s: a merge is %s, not two tokens and a space between them", where.c_str(),
             describe_json(merge).c_str());
    return {pair.substr(0, space), pair.substr(space + 1)};
}

// The merges of merges.txt or vocab.bpe, a pair per line; #version is a comment.
static std::vector<SpelledMerge> read_merges(std::string_view text, const std::string& path) {
    std::vector<SpelledMerge> merges;
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    size_t number = 0;
    for (std::string line : lines_of(text)) {
        number++;
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty() || line.starts_with("#version")) continue;
        merges.push_back(spelled_merge(json(line), path + ": line " + std::to_string(number)));
    }
    return merges;
}

static std::vector<Tokenizer::Merge> find_merges(const TokenizerFiles& files, const Vocabulary& vocabulary) {
    const bool as_text = files.has(merges_txt);
    const std::string where = as_text ? "the merges of " + files.path : files.path;
    std::vector<SpelledMerge> spelled;
    if (as_text)
        spelled = read_merges(files.contents[merges_txt].get_ref<const std::string&>(), where);
    else
        for (const json& merge : files.member(tokenizer_json, "model").at("merges"))
            spelled.push_back(spelled_merge(merge, where));
    std::vector<Tokenizer::Merge> merges;
    for (const SpelledMerge& merge : spelled) {
        const std::string &left = merge.first, &right = merge.second;
        const auto id_of = [&](const std::string& text) {
            const auto found = vocabulary.find(text);
            if (found == vocabulary.end())
                fail(
                    "%s: the merge of '%s' and '%s' needs the token '%s', which is not in the vocabulary: do "
                    "the files match?",
                    where.c_str(), left.c_str(), right.c_str(), text.c_str());
            return found->second;
        };
        merges.push_back({id_of(left), id_of(right), id_of(left + right)});
    }
    return merges;
}

// Fills in the tokens' bytes. An added token is its text; the others spell bytes. Merges from a file of their
// own must make all of these, or the file belongs to another vocabulary. In tokenizer.json, a token that no
// merge makes is one that is never used.
static void fill_tokens(Tokenizer& tokenizer, const TokenizerFiles& files, const Vocabulary& vocabulary,
                        const std::vector<NamedToken>& added) {
    const bool must_be_merged = files.has(merges_txt);
    tokenizer.tokens.resize(vocabulary.size());
    std::vector<bool> is_added(vocabulary.size()), is_merged(vocabulary.size());
    for (const NamedToken& token : added) is_added[token.token.id] = true;
    for (const Tokenizer::Merge& merge : *tokenizer.given_merges)
        is_merged[merge.left] = is_merged[merge.right] = is_merged[merge.merged] = true;
    for (const auto& [text, id] : vocabulary) {
        std::string& bytes = tokenizer.tokens[id];
        bytes = is_added[id] && !is_merged[id] ? text : decode_printable(text, tokenizer.name);
        if (is_added[id] && bytes != text)
            fail("%s: the added token '%s' is also a token of the vocabulary that stands for other bytes",
                 tokenizer.name.c_str(), text.c_str());
        // <s> and [PAD] are in vocabularies without being added tokens
        if (must_be_merged && bytes.size() > 1 && !is_added[id] && !is_merged[id] && bytes[0] != '<' &&
            bytes[0] != '[')
            fail("%s: no merge makes token %d, '%s': do the files match?", tokenizer.name.c_str(), id,
                 text.c_str());
    }
}

// --- the tokenizer ---

static int find_end_of_text(const Vocabulary& vocabulary, const SpecialTokens& special,
                            const TokenizerFiles& files) {
    const std::string text = special.end_of_text.value_or("<|endoftext|>");
    const auto found = vocabulary.find(text);
    if (found == vocabulary.end())
        fail(
            "%s has no token <|endoftext|>: name the token that ends a text in tokenizer_config.json beside "
            "it, as in {\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"</s>\"}",
            files.path.c_str());
    return found->second;
}

// Drops merges that can be recovered from the tokens, so that the tokenizer is the same as from llm.c's file.
static void drop_usual_merges(Tokenizer& tokenizer) {
    Tokenizer usual;
    usual.tokens = tokenizer.tokens;
    usual.end_of_text = tokenizer.end_of_text;
    usual.name = tokenizer.name;
    if (usual.merges() == *tokenizer.given_merges) tokenizer.given_merges.reset();
}

static Tokenizer make_tokenizer(const TokenizerFiles& files) try {
    const TokenizerClass type = check_config(files);
    if (files.has(tokenizer_json)) check_model(files);
    Tokenizer tokenizer;
    tokenizer.name = files.path;
    tokenizer.add_prefix_space = find_prefix_space(files, type);
    const json& ids = files.has(vocab_json) ? files.contents[vocab_json]
                                            : files.member(tokenizer_json, "model").at("vocab");
    Vocabulary vocabulary = read_vocabulary(ids, files.path);
    const json config = full_config(files, type);
    const SpecialTokens special = read_special_tokens(files, config);
    const std::vector<NamedToken> added =
        add_tokens(vocabulary, read_listed_tokens(files, special), special, files.path);
    tokenizer.end_of_text = find_end_of_text(vocabulary, special, files);
    for (const NamedToken& token : added) tokenizer.added.push_back(token.token);
    tokenizer.given_merges = find_merges(files, vocabulary);
    fill_tokens(tokenizer, files, vocabulary, added);
    drop_usual_merges(tokenizer);
    const json roles = roles_of(files.contents, config, tokenizer);
    if (!roles.empty()) tokenizer.roles = json_text(roles);
    if (!fits_tokenizer_file(tokenizer) || !roles.empty())
        tokenizer.hugging_face_files = json_text(files.contents);
    return tokenizer;
} catch (const json::exception& error) {
    fail("%s is not a tokenizer like GPT-2's: %s", files.path.c_str(), json_reason(error).c_str());
}

Tokenizer finish_tokenizer(Tokenizer tokenizer) {
    TokenizerFiles files = {tokenizer.name};
    drop_usual_merges(tokenizer);
    if (!fits_tokenizer_file(tokenizer)) {
        files.contents[tokenizer_json] = json::parse(text_of_tokenizer_json(tokenizer));
        tokenizer.hugging_face_files = json_text(files.contents);
    }
    return tokenizer;
}

Tokenizer read_hugging_face_tokenizer(const std::string& path) { return make_tokenizer(load_files(path)); }
