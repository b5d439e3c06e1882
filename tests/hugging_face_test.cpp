// Safetensors files and Hugging Face's GPT-2: round trips, layout, and every kind of damaged file.
#include "llmc/files/hugging_face.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/real.h"
#include "llmc/data/sidecar.h"
#include "llmc/files/model_file.h"
#include "llmc/files/model_source.h"
#include "llmc/files/safetensors.h"
#include "llmc/text/tokenizer.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using nlohmann::json;
static const ModelConfig small = {6, 10, 128, 2, 2, 4};

// A value that differs between neighbours in both dimensions and is exact in bf16.
static float value_at(int tensor, size_t i) { return float(tensor % 4 * 64 + int(i % 61)) * 0.25f; }

static bool is_padding(int tensor, size_t i) { return tensor == WTE && i >= 10u * 4; }

static void read_small(int tensor, size_t offset, float* values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = is_padding(tensor, offset + i) ? 0 : value_at(tensor, offset + i);
}

static bool same_shape(const ModelConfig& a, const ModelConfig& b) {
    return a.max_seq_len == b.max_seq_len && a.vocab_size == b.vocab_size &&
           a.padded_vocab_size == b.padded_vocab_size && a.num_layers == b.num_layers &&
           a.num_heads == b.num_heads && a.channels == b.channels;
}

// Checks that every element arrives exactly once with the value that was written.
static void expect_small(const std::string& path) {
    ASSERT_TRUE(same_shape(read_model_file_header(path), small));
    std::vector<std::vector<int>> seen;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) seen.emplace_back(parameter_size(small, i));
    read_model_file(path, [&](int tensor, size_t offset, const float* values, size_t count) {
        for (size_t i = 0; i < count; i++) {
            ASSERT_EQ(values[i], is_padding(tensor, offset + i) ? 0 : value_at(tensor, offset + i))
                << parameter_info[tensor].name << " " << offset + i;
            seen[tensor][offset + i]++;
        }
    });
    for (const auto& tensor : seen)
        EXPECT_TRUE(std::all_of(tensor.begin(), tensor.end(), [](int n) { return n == 1; }));
}

// The parts of a safetensors file, to change and write back.
struct Parts {
    json header;
    std::string data;

    explicit Parts(const std::string& path) {
        const std::string bytes = read_whole_file(path);
        uint64_t length;
        memcpy(&length, bytes.data(), sizeof length);
        header = json::parse(bytes.substr(8, length));
        data = bytes.substr(8 + length);
    }
    void write(const std::string& path) const {
        const std::string text = header.dump();
        const uint64_t length = text.size();
        write_whole_file(path, {{reinterpret_cast<const char*>(&length), 8}, text, data});
    }
    // Appends a tensor of zeros.
    void add(const std::string& name, const std::vector<uint64_t>& shape) {
        uint64_t bytes = 4;
        for (uint64_t size : shape) bytes *= size;
        header[name] = {
            {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes}}};
        data.append(bytes, '\0');
    }
};

using HuggingFace = InFolder;

TEST_F(HuggingFace, RoundTripInAllTypes) {
    for (StoredType type : {StoredType::fp32, StoredType::bf16, StoredType::fp16}) {
        write_hugging_face(folder / "a/b", small, read_small, type);
        expect_small(folder / "a/b/model.safetensors");
        const size_t bytes = std::filesystem::file_size(folder / "a/b/model.safetensors");
        const size_t data = (num_parameters(small) - 118 * 4) * (type == StoredType::fp32 ? 4 : 2);
        EXPECT_GT(bytes, data);
        EXPECT_EQ((bytes - data) % 8, 0u);
    }
}

// PyTorch's Conv1D computes out[j] = sum_i in[i] * w[i][j].
TEST_F(HuggingFace, LinearWeightsAreTransposed) {
    write_hugging_face(folder.path, small, read_small);
    const SafetensorsFile file = open_safetensors(folder / "model.safetensors");
    EXPECT_EQ(file.tensors.size(), 2u + 2 * 12 + 2);
    const SafetensorsEntry& entry = file.tensors.at("h.1.attn.c_attn.weight");
    EXPECT_EQ(entry.shape, (std::vector<uint64_t>{4, 12}));
    std::vector<float> values(48);
    read_safetensors(file, "h.1.attn.c_attn.weight", 0, 48, values.data());
    for (int in = 0; in < 4; in++)
        for (int out = 0; out < 12; out++)
            EXPECT_EQ(values[in * 12 + out], value_at(QKVW, 48 + out * 4 + in)) << in << " " << out;
    std::vector<float> square(16);  // whose shape does not show the order
    read_safetensors(file, "h.1.attn.c_proj.weight", 0, 16, square.data());
    for (int in = 0; in < 4; in++)
        for (int out = 0; out < 4; out++)
            EXPECT_EQ(square[in * 4 + out], value_at(ATTPROJW, 16 + out * 4 + in)) << in << " " << out;
    EXPECT_EQ(file.tensors.at("wte.weight").shape, (std::vector<uint64_t>{10, 4}));
    EXPECT_EQ(file.tensors.at("h.0.mlp.c_proj.weight").shape, (std::vector<uint64_t>{16, 4}));
    const json config = json::parse(read_whole_file(folder / "config.json"));
    EXPECT_EQ(config["n_head"], 2);
    EXPECT_EQ(config["n_positions"], 6);
    EXPECT_EQ(config["vocab_size"], 10);
}

static void add_prefix(Parts& parts) {
    json renamed;
    for (const auto& [name, item] : parts.header.items())
        renamed[name == "__metadata__" ? name : "transformer." + name] = item;
    parts.header = renamed;
}

TEST_F(HuggingFace, PrefixHeadAndMasksAreAccepted) {
    write_hugging_face(folder.path, small, read_small);
    const std::string path = folder / "model.safetensors";
    Parts parts(path);
    add_prefix(parts);
    parts.add("transformer.h.0.attn.bias", {1, 1, 6, 6});
    // the head has its own copy of the token embedding
    const auto offsets = parts.header["transformer.wte.weight"]["data_offsets"];
    const uint64_t begin = offsets[0], end = offsets[1], at = parts.data.size();
    parts.header["lm_head.weight"] = {
        {"dtype", "F32"}, {"shape", {10, 4}}, {"data_offsets", {at, at + end - begin}}};
    parts.data += parts.data.substr(begin, end - begin);
    parts.write(path);
    expect_small(path);
    parts.data.back() ^= 1;
    parts.write(path);
    expect_error("lm_head", [&] { read_hugging_face(path, [](auto...) {}); });
}

// safetensors' save_model() stores the shared tensor under the first of its names.
TEST_F(HuggingFace, TheSharedTensorMayHaveTheHeadsName) {
    write_hugging_face(folder.path, small, read_small);
    const std::string path = folder / "model.safetensors";
    Parts parts(path);
    add_prefix(parts);
    parts.header["lm_head.weight"] = parts.header["transformer.wte.weight"];
    parts.header.erase("transformer.wte.weight");
    parts.write(path);
    expect_small(path);
}

TEST_F(HuggingFace, WithoutConfigTheHeadsAreAskedFor) {
    const ModelConfig wide = {6, 10, 128, 1, 2, 128};
    write_hugging_face(folder.path, wide,
                       [](int, size_t, float* values, size_t n) { std::fill_n(values, n, 0.0f); });
    std::filesystem::remove(folder / "config.json");
    const std::string message = message_of([&] { read_hugging_face_header(folder / "model.safetensors"); });
    EXPECT_TRUE(contains(message, "write {\"n_head\": N} to " + folder / "config.json"));
    write_whole_file(folder / "config.json", {"{\"n_head\": 4}"});
    EXPECT_EQ(read_hugging_face_header(folder / "model.safetensors").num_heads, 4);
}

// As in a copy of a cache without what its links lead to.
TEST_F(HuggingFace, ALinkThatLeadsNowhereIsNoMissingFile) {
    write_hugging_face(folder.path, small, read_small);
    Tokenizer tokenizer = open_tokenizer("bytes");
    write_hugging_face_tokenizer(folder.path, tokenizer, 6);
    write_whole_file(folder / "model_train.bin", {""});  // whose tokenizer model.json names
    const std::string aside = folder / "aside";
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json",
                             "special_tokens_map.json", "added_tokens.json", "generation_config.json",
                             "chat_template.jinja", "additional_chat_templates", "model.json"}) {
        const std::string path = folder / name;
        const bool is_there = file_exists(path);
        if (is_there) std::filesystem::rename(path, aside);
        std::filesystem::create_symlink("nowhere", path);
        expect_error("cannot open " + path + ": it is a link that leads nowhere", [&] {
            find_model(folder.path);
            tokenizer_of_shards({folder / "model_train.bin"});
        });
        std::filesystem::remove(path);
        if (is_there) std::filesystem::rename(aside, path);
    }
    EXPECT_TRUE(find_model(folder.path).tokenizer);
}

TEST_F(HuggingFace, NamesOfTheSameActivationAreAccepted) {
    write_hugging_face(folder.path, small, read_small);
    const std::string path = folder / "model.safetensors", config = folder / "config.json";
    json fields = json::parse(read_whole_file(config));
    fields["activation_function"] = "gelu_pytorch_tanh";
    write_whole_file(config, {fields.dump()});
    expect_small(path);
    fields["n_inner"] = 24;
    write_whole_file(config, {fields.dump()});
    const std::string message = message_of([&] { read_hugging_face_header(path); });
    EXPECT_TRUE(contains(message, "n_inner, the width of the MLP, is 24; only 4 * n_embd"));
}

// The small model in two files, with their index.
struct Shards {
    TemporaryFolder folder;
    json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", json::object()}};
    const std::string path = folder / "model.safetensors.index.json";

    Shards() {
        write_hugging_face(folder.path, small, read_small);
        const Parts whole(folder / "model.safetensors");
        Parts parts[2] = {whole, whole};
        size_t number = 0;
        for (Parts& part : parts) part.header = json::object(), part.data.clear();
        for (const auto& [name, entry] : whole.header.items()) {
            if (name == "__metadata__") continue;
            Parts& part = parts[number++ % 2];
            const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
            part.header[name] = entry;
            part.header[name]["data_offsets"] = {part.data.size(), part.data.size() + end - begin};
            part.data += whole.data.substr(begin, end - begin);
            index["weight_map"][name] = shard(&part - parts);
        }
        for (const Parts& part : parts) part.write(folder / shard(&part - parts));
        std::filesystem::remove(folder / "model.safetensors");
        write_index();
    }
    static std::string shard(size_t i) {
        return "model-0000" + std::to_string(i + 1) + "-of-00002.safetensors";
    }
    void write_index() const { write_whole_file(path, {index.dump()}); }
    std::string refusal() const {
        return message_of([&] { read_hugging_face_header(path); });
    }
};

TEST_F(HuggingFace, ShardsAreReadByTheirIndex) {
    Shards shards;
    expect_small(shards.path);

    const json good = shards.index;
    shards.index["weight_map"]["wte.weight"] = "../elsewhere.safetensors";
    shards.write_index();
    EXPECT_TRUE(contains(shards.refusal(), "not one of this folder"));
    for (const auto& [name, file] : good["weight_map"].items()) {
        shards.index = good;  // in the other file
        shards.index["weight_map"][name] = Shards::shard(file == Shards::shard(0));
        shards.write_index();
        EXPECT_TRUE(contains(shards.refusal(), "'" + name + "'"));
        shards.index["weight_map"].erase(name);
        shards.write_index();
        EXPECT_TRUE(contains(shards.refusal(), "does not list"));
    }
    shards.index = good;
    shards.index["weight_map"]["more"] = Shards::shard(0);
    shards.write_index();
    EXPECT_TRUE(contains(shards.refusal(), "tensor 'more' is not in"));
    shards.index = good;
    shards.write_index();
    std::filesystem::remove(shards.folder / Shards::shard(1));
    EXPECT_TRUE(contains(shards.refusal(), Shards::shard(1) + " is missing"));
}

TEST_F(HuggingFace, FilesOfPyTorchAndPointersAreNamed) {
    for (const char* start : {"PK\3\4archive", "\x80\2pickle"}) {
        write_whole_file(folder / "pytorch_model.bin", {start});
        const std::string message = message_of([&] { read_model_file_header(folder / "pytorch_model.bin"); });
        EXPECT_TRUE(contains(message, "is a file of PyTorch"));
    }
    write_whole_file(folder / "model.safetensors",
                     {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 548105171\n"});
    const std::string message = message_of([&] { read_model_file_header(folder / "model.safetensors"); });
    EXPECT_TRUE(contains(message, "git lfs pull"));
}

TEST_F(HuggingFace, OtherModelsAreRefused) {
    write_hugging_face(folder.path, small, read_small);
    const std::string path = folder / "model.safetensors", config = folder / "config.json";
    const json good = json::parse(read_whole_file(config));
    const json wrong = json::parse(R"([["model_type", "llama"], ["activation_function", "relu"],
        ["layer_norm_epsilon", 1e-6], ["n_head", 3], ["n_head", -1], ["n_head", null],
        ["n_head", 1099511627776], ["n_inner", 17], ["n_layer", 3], ["n_embd", "4"], ["n_positions", 7],
        ["vocab_size", 11], ["tie_word_embeddings", false], ["scale_attn_by_inverse_layer_idx", true]])");
    for (const json& item : wrong) {
        json fields = good;
        fields[std::string(item[0])] = item[1];
        write_whole_file(config, {fields.dump()});
        const std::string message = message_of([&] { read_hugging_face_header(path); });
        EXPECT_FALSE(message.empty()) << item;
        EXPECT_EQ(count_lines(message), 1) << message;
    }
    json many = good;
    many["n_head"] = 100000;
    write_whole_file(config, {many.dump()});
    EXPECT_EQ(message_of([&] { read_hugging_face_header(path); }),
              config + ": n_head is missing or not a valid number of heads");
    write_whole_file(config, {"[]"});
    EXPECT_FALSE(message_of([&] { read_hugging_face_header(path); }).empty());
    write_whole_file(config, {good.dump()});
    const Parts whole(path);
    for (const char* name :
         {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.1.mlp.c_proj.bias", "ln_f.bias"}) {
        Parts parts = whole;  // keep the tensor's data under an unknown name
        parts.header["other"] = parts.header[name];
        parts.header.erase(name);
        parts.write(path);
        EXPECT_FALSE(message_of([&] { read_hugging_face_header(path); }).empty()) << name;
    }
    Parts more = whole;
    more.add("score.weight", {2, 4});
    more.write(path);
    expect_error("score.weight", [&] { read_hugging_face_header(path); });
}

using Safetensors = InFolder;

TEST_F(Safetensors, DamagedFilesAreRefused) {
    write_hugging_face(folder.path, small, read_small);
    const std::string path = folder / "model.safetensors";
    const std::string good = read_whole_file(path);
    const Parts whole(path);
    auto expect_refused = [&](const std::string& what) {
        const std::string message = message_of([&] { open_safetensors(path); });
        EXPECT_TRUE(contains(message, path)) << what;
        EXPECT_EQ(count_lines(message), 1) << message;
    };
    for (size_t length : {size_t(0), size_t(7), size_t(8), size_t(100), good.size() - 1}) {
        write_whole_file(path, {good.substr(0, length)});
        expect_refused("cut to " + std::to_string(length));
    }
    write_whole_file(path, {good, "x"});
    expect_refused("one byte more");
    for (uint64_t length : {uint64_t(1), uint64_t(good.size()), uint64_t(1) << 62, ~uint64_t(0)}) {
        write_whole_file(path, {{reinterpret_cast<const char*>(&length), 8}, good.substr(8)});
        expect_refused("header of " + std::to_string(length));
    }
    const json wrong = json::parse(R"([["dtype", "F33"], ["dtype", "F16"], ["dtype", 3], ["shape", [4, 5]],
        ["shape", [-10, -4]], ["shape", "10"], ["shape", [9223372036854775808, 8]],
        ["shape", [1099511627776, 1099511627776]], ["data_offsets", [0]], ["data_offsets", [160, 0]],
        ["data_offsets", [4, 164]], ["data_offsets", [0, 9223372036854775808]],
        ["data_offsets", [0.5, 1.5]]])");
    for (const json& item : wrong) {
        Parts parts = whole;
        parts.header["wte.weight"][std::string(item[0])] = item[1];
        parts.write(path);
        expect_refused(item.dump());
    }
    Parts hole = whole;  // between two tensors, and after the last one
    hole.header = {{"a", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}},
                   {"b", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {8, 12}}}}};
    hole.data = std::string(12, '\0');
    hole.write(path);
    expect_refused("a hole");
    expect_error("leave holes", [&] { open_safetensors(path); });
    hole.header["b"]["data_offsets"] = {4, 8};
    hole.write(path);
    expect_refused("four bytes more");
    for (const json& header : {json::array(), json(3), json{{"a", 3}}}) {
        Parts parts = whole;
        parts.header = header;
        parts.write(path);
        expect_refused(header.dump());
    }
}

TEST_F(Safetensors, AllFloatTypesAreRead) {
    const std::vector<float> values = {1.5f, -2.0f, 0.0f, 1024.0f};
    const std::vector<double> doubles(values.begin(), values.end());
    const std::vector<bf16> upper = {bf16(1.5f), bf16(-2.0f), bf16(0.0f), bf16(1024.0f)};
    const std::vector<fp16> halves = {fp16(1.5f), fp16(-2.0f), fp16(0.0f), fp16(1024.0f)};
    FileWriter file(folder / "x.safetensors");
    write_safetensors_header(file, {{"d", "F64", {2, 2}},
                                    {"f", "F32", {4}},
                                    {"b", "BF16", {4}},
                                    {"h", "F16", {4}},
                                    {"i", "I32", {1}},
                                    {"none", "F32", {0, 5}},
                                    {"one", "F32", {}}});
    file.write(doubles.data(), 32);
    file.write(values.data(), 16);
    file.write(upper.data(), 8);
    file.write(halves.data(), 8);
    file.write(values.data(), 4);
    file.write(values.data(), 4);
    file.finish();
    const SafetensorsFile read = open_safetensors(folder / "x.safetensors");
    for (const char* name : {"d", "f", "b", "h"}) {
        std::vector<float> got(3);
        read_safetensors(read, name, 1, 3, got.data());
        EXPECT_EQ(got, std::vector<float>(values.begin() + 1, values.end())) << name;
    }
    float one = 0;
    read_safetensors(read, "one", 0, 1, &one);
    EXPECT_EQ(one, 1.5f);
    read_safetensors(read, "none", 0, 0, nullptr);
    expect_error("I32", [&] { read_safetensors(read, "i", 0, 1, &one); });
    EXPECT_FALSE(message_of([&] { read_safetensors(read, "f", 2, 3, &one); }).empty());
    EXPECT_FALSE(message_of([&] { read_safetensors(read, "missing", 0, 1, &one); }).empty());
}
