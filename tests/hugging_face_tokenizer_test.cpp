// Tokenizers of Hugging Face: token ids equal those of transformers for random files, and what is not
// implemented is refused by name.
#include <gtest/gtest.h>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_info.h"
#include "llmc/text/tokenizer_roles.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using nlohmann::json;
using Tokens = std::vector<uint16_t>;

static Tokens encode(Tokenizer& tokenizer, const std::string& text, AddedTokens found = AddedTokens::all) {
    Tokens tokens;
    tokenizer.encode(text, tokens, found);
    return tokens;
}

// Compares one tokenizer of random_tokenizers.py. Returns whether it was accepted.
static void compare(const std::string& folder) {
    const json expected = parse_json_object(read_whole_file(folder + "/expected.json"), folder);
    const std::string refused = expected.at("refused");
    if (!refused.empty()) {
        const std::string message = message_of([&] { open_tokenizer(folder); });
        EXPECT_TRUE(contains(message, refused)) << folder;
        return;
    }
    Tokenizer tokenizer = open_tokenizer(folder);
    EXPECT_EQ(tokenizer.end_of_text, expected.at("end_of_text").get<int>()) << folder;
    // a copy, as it is kept beside shards and checkpoints, has the same tokens
    const TokenizerInfo kept = keep_tokenizer(tokenizer, folder + "/copy.tokenizer");
    Tokenizer copy = open_tokenizer(folder + "/copy.tokenizer");
    EXPECT_EQ(info_of(copy).checksum, kept.checksum) << folder;
    for (size_t i = 0; i < expected.at("texts").size(); i++) {
        const std::string text = expected["texts"][i];
        const Tokens ids = expected["ids"][i];
        EXPECT_EQ(encode(tokenizer, text), ids) << folder << ": " << text;
        EXPECT_EQ(encode(copy, text), ids) << folder << ": " << text;
    }
}

// A folder with the files of a small tokenizer: end-of-text is token 0, the bytes are 1 to 256, then two
// merges, which are not in the order of their ids, and an added token.
struct SmallTokenizer {
    TemporaryFolder folder;
    json whole, config = {{"tokenizer_class", "GPT2Tokenizer"}};

    SmallTokenizer() {
        json vocab = {{"<|endoftext|>", 0}, {"ab", 257}, {"bc", 258}};
        for (int byte = 0; byte < 256; byte++) vocab[encode_printable(std::string(1, char(byte)))] = 1 + byte;
        json end = added(0, "<|endoftext|>"), user = added(259, "<|user|>");
        end["special"] = user["special"] = true;
        whole = {{"added_tokens", json::array({end, user})},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                 {"post_processor", nullptr},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"b c", "a b"}}}}};
    }
    static json added(int id, const std::string& text) {
        return {{"id", id}, {"content", text}, {"normalized", false}, {"special", false}};
    }
    Tokenizer open() const {
        write_whole_file(folder / "tokenizer.json", {json_text(whole)});
        write_whole_file(folder / "tokenizer_config.json", {json_text(config)});
        return open_tokenizer(folder.path);
    }
    std::string refusal() const {
        return message_of([&] { open(); });
    }
};

TEST(HuggingFaceTokenizer, ReadsAddedTokensAndMergesInTheirOrder) {
    SmallTokenizer small;
    Tokenizer tokenizer = small.open();
    EXPECT_EQ(tokenizer.vocab_size(), 260);
    EXPECT_EQ(tokenizer.end_of_text, 0);
    EXPECT_EQ(encode(tokenizer, "abc"), (Tokens{98, 258}));  // the merge of b and c comes first
    EXPECT_EQ(encode(tokenizer, "ab<|user|>c<|endoftext|>"), (Tokens{257, 259, 100, 0}));
    EXPECT_EQ(encode(tokenizer, "<|user|>", AddedTokens::none).size(), 8u);
    EXPECT_EQ(tokenizer.decode(259), "<|user|>");

    small.whole["added_tokens"][1]["lstrip"] = small.whole["added_tokens"][1]["single_word"] = true;
    tokenizer = small.open();
    EXPECT_EQ(encode(tokenizer, "b \t<|user|> c"), (Tokens{99, 259, 33, 100}));
    EXPECT_EQ(encode(tokenizer, "b<|user|>").size(), 9u);

    small.whole["pre_tokenizer"]["add_prefix_space"] = true;
    small.config["add_prefix_space"] = true;
    tokenizer = small.open();
    EXPECT_EQ(encode(tokenizer, "b"), (Tokens{33, 99}));
    EXPECT_EQ(encode(tokenizer, " b <|user|> c"), (Tokens{33, 99, 259, 33, 100}));
}

TEST(HuggingFaceTokenizer, FilesOfTextMayHaveCrlfAndNoVersion) {
    SmallTokenizer small;
    json vocab = small.whole["model"]["vocab"];
    write_whole_file(small.folder / "vocab.json", {json_text(vocab)});
    for (const char* merges :
         {"#version: 0.2\nb c\na b\n", "b c\na b", "#version: 0.2\r\nb c\r\na b\r\n\r\n"}) {
        write_whole_file(small.folder / "merges.txt", {merges});
        Tokenizer tokenizer = open_tokenizer(small.folder / "vocab.json");
        EXPECT_EQ(encode(tokenizer, "abc"), (Tokens{98, 258})) << merges;
        EXPECT_EQ(tokenizer.end_of_text, 0);
    }
    write_whole_file(small.folder / "merges.txt", {"b c\n"});
    const std::string message = message_of([&] { open_tokenizer(small.folder / "vocab.json"); });
    EXPECT_TRUE(contains(message, "no merge makes token 257, 'ab'"));
}

TEST(HuggingFaceTokenizer, ATokenOfOneFileThatNoMergeMakesIsNeverUsed) {
    SmallTokenizer small;
    small.whole["model"]["merges"] = {"b c"};
    Tokenizer tokenizer = small.open();
    EXPECT_EQ(encode(tokenizer, "abc"), (Tokens{98, 258}));
    EXPECT_EQ(encode(tokenizer, "ab"), (Tokens{98, 99}));
    EXPECT_EQ(tokenizer.tokens[257], "ab");
}

TEST(HuggingFaceTokenizer, WhatIsNotImplementedIsRefusedByName) {
    struct Case {
        const char *pointer, *value, *named;
    } cases[] = {
        {"/normalizer", R"({"type": "Lowercase"})", "the normalizer \"Lowercase\""},
        {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})",
         "the normalizer \"NFC\""},
        {"/pre_tokenizer", R"({"type": "Digits", "individual_digits": true})",
         "the pre-tokenizer \"Digits\""},
        {"/pre_tokenizer", "null", "no pre-tokenizer"},
        {"/pre_tokenizer/use_regex", "false", "use_regex false"},
        {"/post_processor", R"({"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 2]})",
         "BertProcessing"},
        {"/decoder", R"({"type": "WordPiece"})", "the decoder \"WordPiece\""},
        {"/model/type", "\"Unigram\"", "a model with type \"Unigram\""},
        {"/model/dropout", "0.1", "a model with dropout 0.1"},
        {"/model/byte_fallback", "true", "byte_fallback true"},
        {"/model/ignore_merges", "true", "ignore_merges true"},
        {"/model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
        {"/added_tokens/1/id", "300", "has the id 300"},
        {"/added_tokens/1/id", "-1", "id of an added token is -1"},
        {"/pre_tokenizer/add_prefix_space", "true", "make them agree"},
    };
    for (const Case& c : cases) {
        SmallTokenizer small;
        small.whole[json::json_pointer(c.pointer)] = json::parse(c.value);
        const std::string message = small.refusal();
        EXPECT_TRUE(contains(message, c.named)) << c.pointer;
        EXPECT_EQ(count_lines(message), 1) << message;
    }
    for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{
             {"tokenizer_class", "BertTokenizer"}, {"add_bos_token", true}, {"split_special_tokens", true}}) {
        SmallTokenizer small;
        small.config[key] = value;
        EXPECT_TRUE(contains(small.refusal(), key));
    }
    SmallTokenizer small;
    small.config["added_tokens_decoder"] = {{"0", small.whole["added_tokens"][0]}};
    EXPECT_TRUE(contains(small.refusal(), "'<|user|>'"));
}

// What an export says of a tokenizer whose files say this, as transformers joins them.
TEST(HuggingFaceTokenizer, RolesAreThoseOfAllFilesTogether) {
    struct Case {
        const char *config, *map, *generation, *roles;
    } cases[] = {
        {R"({"clean_up_tokenization_spaces": false})", "{}", R"({"bos_token_id": 0, "eos_token_id": 0})",
         "{}"},
        {R"({"pad_token": null, "additional_special_tokens": []})",
         R"({"pad_token": "<|user|>", "additional_special_tokens": ["<|user|>"]})", "{}",
         R"({"config": {"pad_token": "<|user|>", "additional_special_tokens": ["<|user|>"]},
             "generation": {"pad_token_id": 259}})"},
        {R"({"additional_special_tokens": ["<|user|>"]})",
         R"({"additional_special_tokens": ["<|endoftext|>", "<|user|>"]})", "{}",
         R"({"config": {"additional_special_tokens": ["<|user|>", "<|endoftext|>"]}})"},
        {R"({"eos_token": "<|endoftext|>"})", R"({"eos_token": "<|user|>"})", "{}",
         R"({"config": {"bos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
             "generation": {"bos_token_id": 0}})"},
        {R"({"added_tokens_decoder": {"0": {"content": "<|endoftext|>", "normalized": false, "special": true},
             "259": {"content": "<|user|>", "normalized": false, "special": true}}})",
         R"({"pad_token": "<|user|>"})", "{}", "{}"},
        {R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": {"content": "<|endoftext|>"}})", "{}",
         "{}", R"({"config": {"bos_token": null, "unk_token": null}})"},
        {R"({"bos_token": null, "clean_up_tokenization_spaces": true, "errors": "ignore", "vocab_file": "v",
             "name_or_path": "p", "model_specific_special_tokens": {"a_token": "<|user|>"}})",
         "{}", "{}",
         R"({"config": {"bos_token": null, "clean_up_tokenization_spaces": true, "errors": "ignore",
             "model_specific_special_tokens": {"a_token": "<|user|>"}}})"},
        {"{}", "{}", R"({"bos_token_id": 0, "eos_token_id": [0, 259]})",
         R"({"generation": {"eos_token_id": [0, 259]}})"},
        {"{}", "{}", R"({"eos_token_id": 65})", R"({"generation": {"eos_token_id": 65}})"}};
    for (const Case& c : cases) {
        SmallTokenizer small;
        small.config.update(json::parse(c.config));
        write_whole_file(small.folder / "special_tokens_map.json", {c.map});
        write_whole_file(small.folder / "generation_config.json", {c.generation});
        const std::string roles = small.open().roles;
        EXPECT_EQ(json::parse(roles.empty() ? "{}" : roles), json::parse(c.roles))
            << c.config << c.generation;
    }
    SmallTokenizer of_model;  // without generation_config.json
    write_whole_file(of_model.folder / "config.json", {R"({"eos_token_id": 259, "n_head": 2, "top_k": 9})"});
    EXPECT_EQ(json::parse(of_model.open().roles),
              json::parse(R"({"generation": {"eos_token_id": 259, "top_k": 9}})"));
    EXPECT_EQ(ends_of_text(of_model.open()), (std::set<int64_t>{0, 259}));
    SmallTokenizer small;
    small.whole["truncation"] = {{"max_length", 8}};
    small.whole["padding"] = {{"pad_id", 0}};
    Tokenizer tokenizer = small.open();
    keep_tokenizer(tokenizer, small.folder / "copy.tokenizer");
    for (Tokenizer kept : {tokenizer, open_tokenizer(small.folder / "copy.tokenizer")})
        for (const char* key : {"truncation", "padding"})
            EXPECT_EQ(json::parse(text_of_tokenizer_json(kept))[key], small.whole[key]);
}

// In every file that lists added tokens; templates are texts, too.
TEST(HuggingFaceTokenizer, AddedTokensAreTextsOfAtMost255Bytes) {
    for (const std::string& text : {std::string(), std::string(256, 'x')}) {
        SmallTokenizer small;
        small.whole["added_tokens"][1]["content"] = text;
        EXPECT_TRUE(contains(small.refusal(), "not 1 to 255"));
        SmallTokenizer listed;
        write_whole_file(listed.folder / "added_tokens.json", {json_text({{text, 260}})});
        EXPECT_TRUE(contains(listed.refusal(), "(added_tokens.json) has an added token of"));
        SmallTokenizer configured;
        configured.config["pad_token"] = text;
        EXPECT_TRUE(contains(configured.refusal(), "not 1 to 255"));
    }
    SmallTokenizer without;
    without.config["extra_special_tokens"] = {{"a_token", nullptr}};
    EXPECT_TRUE(contains(without.refusal(), "(tokenizer_config.json): an added token is null, not a text"));
    write_whole_file(without.folder / "special_tokens_map.json", {R"({"pad_token": 5})"});
    EXPECT_TRUE(contains(without.refusal(), "(special_tokens_map.json): an added token is 5"));
    SmallTokenizer latin;
    write_whole_file(latin.folder / "chat_template.jinja", {"{{ '\xe9' }}"});
    EXPECT_EQ(latin.refusal(), latin.folder / "chat_template.jinja" + " is not UTF-8");
}

TEST(HuggingFaceTokenizer, RandomOnesEqualTransformers) {
    const char* named = getenv("LLMC_TEST_PYTHON");
    const std::string python = named ? named : "python3";
    if (!program_succeeds({python, "-c", "import transformers"}))
        GTEST_SKIP() << python << " has no transformers library; LLMC_TEST_PYTHON names another Python";
    TemporaryFolder folder;
    const char* count = getenv("LLMC_TEST_TOKENIZERS");
    const int tokenizers = count ? atoi(count) : 60;
    expect_ok(run_program(
        {python, SOURCE_DIR "/tests/random_tokenizers.py", folder.path, std::to_string(tokenizers), "1"}));
    for (int i = 0; i < tokenizers; i++) {
        SCOPED_TRACE(i);
        EXPECT_NO_THROW(compare(folder / std::to_string(i)));
    }
}
