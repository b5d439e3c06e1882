// GGUF files: a reader of its own, written after the format's description, finds every value again.
#include "llmc/files/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "llmc/base/file.h"
#include "llmc/base/real.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static const ModelConfig config = {6, 300, 384, 2, 4, 32};

// A value that differs between neighbours and is exact in bf16 and fp16.
static float value_at(int tensor, size_t i) { return float(tensor % 5 * 3 + int(i % 61) - 30) * 0.25f; }

static void read_values(int tensor, size_t offset, float* values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = value_at(tensor, offset + i);
}

struct Tensor {
    std::vector<uint64_t> shape;
    uint32_t type = 0;
    uint64_t offset = 0;
};

// A whole file in memory.
struct Parsed {
    std::string bytes;
    size_t at = 0;
    std::map<std::string, std::string> values;  // of numbers and texts, printed
    std::map<std::string, Words> lists;
    std::map<std::string, Tensor> tensors;
    size_t data = 0;

    explicit Parsed(const std::string& path) : bytes(read_whole_file(path)) {
        EXPECT_EQ(bytes.substr(0, 4), "GGUF");
        at = 4;
        EXPECT_EQ(take<uint32_t>(), 3u);
        const uint64_t num_tensors = take<uint64_t>(), num_values = take<uint64_t>();
        for (uint64_t i = 0; i < num_values; i++) {
            const std::string key = take_text();
            const uint32_t type = take<uint32_t>();
            if (type != 9) {
                values[key] = take_value(type);
                continue;
            }
            const uint32_t element = take<uint32_t>();
            Words& list = lists[key];
            for (uint64_t n = take<uint64_t>(); n > 0; n--) list.push_back(take_value(element));
        }
        for (uint64_t i = 0; i < num_tensors; i++) {
            Tensor& t = tensors[take_text()];
            t.shape.resize(take<uint32_t>());
            for (uint64_t& size : t.shape) size = take<uint64_t>();
            t.type = take<uint32_t>();
            t.offset = take<uint64_t>();
        }
        data = (at + 31) / 32 * 32;
    }
    template <class Number>
    Number take() {
        Number number = {};
        memcpy(&number, bytes.substr(at, sizeof number).data(), sizeof number);
        at += sizeof number;
        return number;
    }
    std::string take_text() {
        const uint64_t size = take<uint64_t>();
        at += size;
        return bytes.substr(at - size, size);
    }
    std::string take_value(uint32_t type) {
        if (type == 4) return std::to_string(take<uint32_t>());
        if (type == 5) return std::to_string(take<int32_t>());
        if (type == 6) return format_string("%g", double(take<float>()));
        if (type == 7) return take<uint8_t>() ? "true" : "false";
        EXPECT_EQ(type, 8u);
        return take_text();
    }
    float element(const Tensor& t, size_t i) {
        size_t position = data + t.offset;
        auto read = [&]<class Number>(Number number) {
            at = position;
            number = take<Number>();
            return float(number);
        };
        if (t.type == 0) return position += i * 4, read(float());
        if (t.type == 1) return position += i * 2, read(fp16());
        if (t.type == 30) return position += i * 2, read(bf16());
        EXPECT_EQ(t.type, 8u);
        position += i / 32 * 34;
        const float scale = read(fp16());
        position += 2 + i % 32;
        return scale * read(int8_t());
    }
};

// Each tensor's llama.cpp name, and whether it is a matrix whose type may be chosen.
static const std::pair<const char*, bool> tensor_names[NUM_PARAMETER_TENSORS] = {
    {"token_embd.weight", true},  {"position_embd.weight", false}, {"attn_norm.weight", false},
    {"attn_norm.bias", false},    {"attn_qkv.weight", true},       {"attn_qkv.bias", false},
    {"attn_output.weight", true}, {"attn_output.bias", false},     {"ffn_norm.weight", false},
    {"ffn_norm.bias", false},     {"ffn_up.weight", true},         {"ffn_up.bias", false},
    {"ffn_down.weight", true},    {"ffn_down.bias", false},        {"output_norm.weight", false},
    {"output_norm.bias", false}};

static void expect_tensor(Parsed& file, const std::string& name, int tensor, size_t offset, uint32_t type) {
    ASSERT_TRUE(file.tensors.count(name)) << name;
    const Tensor& t = file.tensors[name];
    EXPECT_EQ(t.offset % 32, 0u) << name;
    ASSERT_EQ(t.type, tensor_names[tensor].second ? type : 0) << name;
    const size_t elements = t.shape[0] * (t.shape.size() > 1 ? t.shape[1] : 1);
    EXPECT_EQ(elements, tensor == WTE ? 257u * 32 : parameter_layer_size(config, tensor)) << name;
    for (size_t i = 0; i < elements; i++) {
        const float wanted = value_at(tensor, offset + i);
        // half a step of the largest value, and the rounding of the scale to fp16
        const float tolerance = t.type == 8 ? 10.5f * (1 / 254.0f + 1 / 2048.0f) : 0;
        ASSERT_LE(std::abs(file.element(t, i) - wanted), tolerance) << name << " " << i;
    }
}

using Gguf = InFolder;

TEST_F(Gguf, HoldsEveryValueInEachType) {
    Tokenizer bytes = open_tokenizer("bytes");
    const std::map<StoredType, std::pair<uint32_t, const char*>> types = {{StoredType::fp32, {0, "0"}},
                                                                          {StoredType::fp16, {1, "1"}},
                                                                          {StoredType::q8_0, {8, "7"}},
                                                                          {StoredType::bf16, {30, "32"}}};
    for (const auto& [type, ids] : types) {
        const std::string path = folder / "model.gguf";
        EXPECT_EQ(write_gguf(path, {config, read_values, bytes, "mine"}, type), 0);
        EXPECT_TRUE(is_gpt2_gguf(path));
        Parsed file(path);
        EXPECT_EQ(file.values["general.file_type"], ids.second);
        EXPECT_EQ(file.tensors.size(), 2u + 2 * 12 + 2);
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++)
            for (int layer = 0; layer < (parameter_info[tensor].per_layer ? 2 : 1); layer++) {
                std::string name = tensor_names[tensor].first;
                if (parameter_info[tensor].per_layer) name = format_string("blk.%d.", layer) + name;
                expect_tensor(file, name, tensor, layer * parameter_layer_size(config, tensor), ids.first);
            }
        EXPECT_EQ(file.tensors["blk.1.ffn_down.weight"].shape, (std::vector<uint64_t>{128, 32}));
        EXPECT_EQ(file.tensors["blk.1.attn_qkv.weight"].shape, (std::vector<uint64_t>{32, 96}));
        EXPECT_EQ(file.bytes.size() % 32, 0u);
    }
}

TEST_F(Gguf, DescribesModelAndTokenizer) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.tokens.insert(tokenizer.tokens.end() - 1, {" t", "he", " the"});
    tokenizer.end_of_text = 259;
    write_gguf(folder / "model.gguf", {config, read_values, tokenizer, "mine"}, StoredType::fp32);
    Parsed file(folder / "model.gguf");
    const std::map<std::string, std::string> wanted = {{"general.architecture", "gpt2"},
                                                       {"general.name", "mine"},
                                                       {"gpt2.context_length", "6"},
                                                       {"gpt2.embedding_length", "32"},
                                                       {"gpt2.block_count", "2"},
                                                       {"gpt2.feed_forward_length", "128"},
                                                       {"gpt2.attention.head_count", "4"},
                                                       {"gpt2.attention.layer_norm_epsilon", "1e-05"},
                                                       {"tokenizer.ggml.model", "gpt2"},
                                                       {"tokenizer.ggml.pre", "gpt-2"},
                                                       {"tokenizer.ggml.bos_token_id", "259"},
                                                       {"tokenizer.ggml.eos_token_id", "259"},
                                                       {"tokenizer.ggml.add_bos_token", "true"}};
    for (const auto& [key, value] : wanted) EXPECT_EQ(file.values[key], value) << key;
    const Words& tokens = file.lists["tokenizer.ggml.tokens"];
    ASSERT_EQ(tokens.size(), 260u);  // those that the tokenizer lacks are left out
    EXPECT_EQ(file.tensors["token_embd.weight"].shape[1], 260u);
    EXPECT_EQ(tokens['a'], "a");
    EXPECT_EQ(tokens[' '], "\u0120");
    EXPECT_EQ(tokens[259], "<|endoftext|>");
    const Words merges = {"\u0120 t", "h e", "\u0120t he"};
    EXPECT_EQ(file.lists["tokenizer.ggml.merges"], merges);
    for (int id = 0; id < 260; id++)
        EXPECT_EQ(file.lists["tokenizer.ggml.token_type"][id], id == 259 ? "3" : "1") << id;
}

// The keys are those of gguf's constants.py.
TEST_F(Gguf, KeepsTheRolesOfTokens) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.roles =
        R"({"config": {"bos_token": "a", "pad_token": "b", "unk_token": "c", "sep_token": "d",
                       "cls_token": "e", "mask_token": "f", "additional_special_tokens": ["g"],
                       "chat_template": [{"name": "default", "template": "one"},
                                         {"name": "my rag", "template": "two"}]}})";
    write_gguf(folder / "model.gguf", {config, read_values, tokenizer, "mine"}, StoredType::fp32);
    Parsed file(folder / "model.gguf");
    const std::map<std::string, std::string> ids = {
        {"bos", "97"},  {"padding", "98"}, {"unknown", "99"}, {"seperator", "100"},
        {"cls", "101"}, {"mask", "102"},   {"eos", "256"}};
    for (const auto& [name, id] : ids)
        EXPECT_EQ(file.values["tokenizer.ggml." + name + "_token_id"], id) << name;
    EXPECT_EQ(file.values["tokenizer.ggml.add_bos_token"], "false");
    EXPECT_EQ(file.values["tokenizer.chat_template"] + file.values["tokenizer.chat_template.my_rag"],
              "onetwo");
    EXPECT_EQ(file.lists["tokenizer.chat_templates"], Words{"my_rag"});
    tokenizer.roles = R"({"generation": {"pad_token_id": 9}})";
    write_gguf(folder / "model.gguf", {config, read_values, tokenizer, "mine"}, StoredType::fp32);
    EXPECT_EQ(Parsed(folder / "model.gguf").values["tokenizer.ggml.padding_token_id"], "9");
}

TEST_F(Gguf, PlainBytesHaveNoMerges) {
    Tokenizer bytes = open_tokenizer("bytes");
    write_gguf(folder / "model.gguf", {config, read_values, bytes, "mine"}, StoredType::fp32);
    Parsed file(folder / "model.gguf");
    ASSERT_TRUE(file.lists.count("tokenizer.ggml.merges"));
    EXPECT_TRUE(file.lists["tokenizer.ggml.merges"].empty());
}

TEST_F(Gguf, AddedTokensAreMarked) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.tokens.insert(tokenizer.tokens.end(), {"<|user|>", "caf\u00e9"});
    tokenizer.added = {{.id = 256, .special = true}, {.id = 257, .special = true}, {.id = 258}};
    const auto write = [&] {
        write_gguf(folder / "model.gguf", {config, read_values, tokenizer, "mine"}, StoredType::fp32);
    };
    write();
    Parsed file(folder / "model.gguf");
    EXPECT_EQ(file.lists["tokenizer.ggml.tokens"].back(), "caf\u00e9");  // not the printable bytes
    const Words types = file.lists["tokenizer.ggml.token_type"];
    EXPECT_EQ((Words{types[0], types[256], types[257], types[258]}), (Words{"1", "3", "3", "4"}));
    for (bool AddedToken::*flag : {&AddedToken::lstrip, &AddedToken::rstrip, &AddedToken::single_word}) {
        tokenizer.added[1].*flag = true;
        expect_error("'<|user|>' has ", write);
        tokenizer.added[1].*flag = false;
    }
    tokenizer.add_prefix_space = true;
    expect_error("add_prefix_space", write);
}

TEST_F(Gguf, RowsThatAreNoMultipleOfABlockAreFp16) {
    Tokenizer bytes = open_tokenizer("bytes");
    const ModelConfig narrow = {6, 257, 384, 2, 2, 24};  // only ffn_down has rows of 96
    EXPECT_EQ(write_gguf(folder / "m.gguf", {narrow, read_values, bytes, "mine"}, StoredType::q8_0), 7);
    Parsed file(folder / "m.gguf");
    EXPECT_EQ(file.tensors["blk.0.ffn_down.weight"].type, 8u);
    EXPECT_EQ(file.tensors["blk.0.ffn_up.weight"].type, 1u);
}

TEST_F(Gguf, WhatTheFileCannotHoldIsRefused) {
    Tokenizer bytes = open_tokenizer("bytes");
    const ReadTensor large = [](int tensor, size_t offset, float* values, size_t count) {
        read_values(tensor, offset, values, count);
        if (tensor == FCW) values[0] = 1e5f;
    };
    const std::string path = folder / "m.gguf";
    const auto message = [&](StoredType type) {
        return message_of([&] { write_gguf(path, {config, large, bytes, "mine"}, type); });
    };
    EXPECT_EQ(message(StoredType::fp16),
              "tensor blk.0.ffn_up.weight has the value 100000, and fp16 ends at 65504: choose --precision "
              "bf16 or fp32");
    EXPECT_FALSE(file_exists(path));
    EXPECT_EQ(message(StoredType::bf16), "");
    EXPECT_EQ(message(StoredType::q8_0), "");
    bytes.tokens[7] = "a";
    EXPECT_TRUE(contains(message(StoredType::fp32), "two tokens have the same text"));
}
