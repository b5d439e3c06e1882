// Hugging Face's GPT-2: see hugging_face.h. Tensor names and config.json's fields follow GPT2Model and
// GPT2Config of the transformers library.
#include "llmc/files/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/files/safetensors.h"

using nlohmann::json;

// Hugging Face's name of each parameter tensor, in the order of ParameterTensor. Names of a layer's tensors
// are prefixed with "h.<layer>.".
struct TensorName {
    const char* name;
    bool transposed;
};
static const TensorName hugging_face_names[NUM_PARAMETER_TENSORS] = {
    {"wte.weight", false},        {"wpe.weight", false},        {"ln_1.weight", false},
    {"ln_1.bias", false},         {"attn.c_attn.weight", true}, {"attn.c_attn.bias", false},
    {"attn.c_proj.weight", true}, {"attn.c_proj.bias", false},  {"ln_2.weight", false},
    {"ln_2.bias", false},         {"mlp.c_fc.weight", true},    {"mlp.c_fc.bias", false},
    {"mlp.c_proj.weight", true},  {"mlp.c_proj.bias", false},   {"ln_f.weight", false},
    {"ln_f.bias", false}};

static std::string full_name(int tensor, int layer) {
    return parameter_info[tensor].per_layer ? format_string("h.%d.%s", layer, hugging_face_names[tensor].name)
                                            : hugging_face_names[tensor].name;
}

// Calls visit(tensor, layer, name) for all tensors, layer by layer.
template <class Visit>
static void for_each_tensor(const ModelConfig& config, Visit visit) {
    for (int tensor : {WTE, WPE}) visit(tensor, 0, full_name(tensor, 0));
    for (int layer = 0; layer < config.num_layers; layer++)
        for (int tensor = LN1W; tensor <= FCPROJB; tensor++) visit(tensor, layer, full_name(tensor, layer));
    for (int tensor : {LNFW, LNFB}) visit(tensor, 0, full_name(tensor, 0));
}

// The tensor's shape in the file; linear weights are (in, out).
static std::vector<uint64_t> shape_of(const ModelConfig& config, int tensor) {
    const uint64_t C = config.channels;
    switch (tensor) {
        case WTE:
            return {uint64_t(config.vocab_size), C};
        case WPE:
            return {uint64_t(config.max_seq_len), C};
        case QKVW:
            return {C, 3 * C};
        case ATTPROJW:
            return {C, C};
        case FCW:
            return {C, 4 * C};
        case FCPROJW:
            return {4 * C, C};
        default:
            return {uint64_t(parameter_layer_size(config, tensor))};
    }
}

// --- reading ---

struct Model {
    SafetensorsFile file;
    std::string prefix;  // of its tensors' names
    ModelConfig config;
};

// The size of a dimension, or 0 if there is no such tensor. A size that does not fit an int becomes one that
// validate() rejects.
static int dimension(const Model& model, const std::string& name, size_t index) {
    auto found = model.file.tensors.find(model.prefix + name);
    if (found == model.file.tensors.end() || found->second.shape.size() <= index) return 0;
    return int(std::min<uint64_t>(found->second.shape[index], 1 << 30));
}

// Error if config.json has the field with another value than the only one supported.
static void expect_field(const json& fields, const char* key, const json& wanted, const std::string& path) {
    auto found = fields.find(key);
    if (found != fields.end() && *found != wanted)
        fail("%s: %s is %s; only %s is supported", path.c_str(), key, describe_json(*found).c_str(),
             describe_json(wanted).c_str());
}

// Error if config.json has the field with another value than the tensors.
static void expect_size(const json& fields, const char* key, int64_t size, const std::string& path) {
    auto found = fields.find(key);
    if (found != fields.end() && !found->is_null() && *found != size)
        fail("%s: %s is %s, but the tensors have %lld; are these files of one model, and complete?",
             path.c_str(), key, describe_json(*found).c_str(), (long long)size);
}

// The names that transformers has for GPT-2's approximation of GELU by tanh.
static void check_activation(const json& fields, const std::string& path) {
    const json name = fields.value("activation_function", json("gelu_new"));
    for (const char* same : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"})
        if (name == same) return;
    fail("%s: activation_function is %s; only \"gelu_new\", also called \"gelu_pytorch_tanh\", is supported",
         path.c_str(), describe_json(name).c_str());
}

// Checks config.json and returns the number of heads.
static int read_config(const std::string& path, const ModelConfig& config) {
    const json fields = parse_json_object(read_whole_file(path, 1 << 20), path);
    expect_field(fields, "model_type", "gpt2", path);
    check_activation(fields, path);
    expect_field(fields, "layer_norm_epsilon", 1e-5, path);
    expect_field(fields, "scale_attn_weights", true, path);
    expect_field(fields, "scale_attn_by_inverse_layer_idx", false, path);
    expect_field(fields, "tie_word_embeddings", true, path);
    expect_field(fields, "add_cross_attention", false, path);
    const json inner = fields.value("n_inner", json());
    if (!inner.is_null() && inner != 4 * int64_t(config.channels))
        fail("%s: n_inner, the width of the MLP, is %s; only 4 * n_embd, here %lld, is supported",
             path.c_str(), describe_json(inner).c_str(), 4 * (long long)config.channels);
    expect_size(fields, "n_layer", config.num_layers, path);
    expect_size(fields, "n_embd", config.channels, path);
    expect_size(fields, "n_positions", config.max_seq_len, path);
    expect_size(fields, "vocab_size", config.vocab_size, path);
    auto heads = fields.find("n_head");
    if (heads == fields.end() || !heads->is_number_unsigned() || heads->get<uint64_t>() > 1 << 16)
        fail("%s: n_head is missing or not a valid number of heads", path.c_str());
    return heads->get<int>();
}

static int find_heads(const std::string& path, const ModelConfig& config) {
    const auto config_file = std::filesystem::path(path).parent_path() / "config.json";
    if (std::filesystem::exists(config_file)) return read_config(config_file.generic_string(), config);
    fail(
        "%s: the tensors do not say how many heads the model has: write {\"n_head\": N} to %s (all of "
        "OpenAI's "
        "GPT-2 models have %d channels per head)",
        path.c_str(), config_file.generic_string().c_str(), 64);
}

static bool is_ignored(const std::string& name) {
    // masks that old versions stored; and the head's weights, which check_head() compares
    return name == "lm_head.weight" || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

static void check_tensors(const Model& model) {
    std::set<std::string> known;
    for_each_tensor(model.config, [&](int tensor, int, const std::string& name) {
        auto found = model.file.tensors.find(model.prefix + name);
        if (found == model.file.tensors.end())
            fail("%s has no tensor '%s': it is not a GPT-2 in Hugging Face's format", model.file.path.c_str(),
                 name.c_str());
        const std::vector<uint64_t>& shape = found->second.shape;
        if (tensor == FCW && shape.size() == 2 && shape[1] != 4 * uint64_t(model.config.channels))
            fail("%s: tensor '%s' makes an MLP %llu wide; only 4 times the channels, here %d, is supported",
                 model.file.path.c_str(), name.c_str(), (unsigned long long)shape[1],
                 4 * model.config.channels);
        if (shape != shape_of(model.config, tensor))
            fail("%s: the shape of tensor '%s' does not match the other tensors", model.file.path.c_str(),
                 name.c_str());
        known.insert(found->first);
    });
    for (const auto& [name, entry] : model.file.tensors)
        if (!known.count(name) && !is_ignored(name))
            fail("%s has a tensor '%s', which GPT-2 does not have", model.file.path.c_str(), name.c_str());
}

// Error if the file stores the head's weights and they differ from the token embedding's.
static void check_head(const Model& model) {
    const std::string head = "lm_head.weight", embedding = model.prefix + "wte.weight";
    auto found = model.file.tensors.find(head);
    if (found == model.file.tensors.end()) return;
    const uint64_t size = model.file.tensors.at(embedding).elements();
    bool same = found->second.shape == model.file.tensors.at(embedding).shape;
    std::vector<float> a(std::min<uint64_t>(size, tensor_chunk)), b(a.size());
    for (uint64_t at = 0; same && at < size; at += a.size()) {
        const uint64_t count = std::min<uint64_t>(a.size(), size - at);
        read_safetensors(model.file, head, at, count, a.data());
        read_safetensors(model.file, embedding, at, count, b.data());
        same = std::equal(a.begin(), a.begin() + count, b.begin());
    }
    if (!same)
        fail(
            "%s: the head's weights (%s) differ from the token embedding's, which GPT-2 shares with the head",
            model.file.path.c_str(), head.c_str());
}

static Model open_model(const std::string& path) {
    Model model = {open_safetensors(path), "", {}};
    auto& tensors = model.file.tensors;
    if (tensors.count("transformer.wpe.weight")) model.prefix = "transformer.";
    // safetensors' save_model() stores a shared tensor under one of its names only
    if (const std::string embedding = model.prefix + "wte.weight"; !tensors.count(embedding))
        if (auto head = tensors.extract("lm_head.weight")) {
            head.key() = embedding;
            tensors.insert(std::move(head));
        }
    ModelConfig& config = model.config;
    set_vocab_size(config, dimension(model, "wte.weight", 0));
    config.channels = dimension(model, "wte.weight", 1);
    config.max_seq_len = dimension(model, "wpe.weight", 0);
    if (config.channels == 0 || config.max_seq_len == 0)
        fail("%s has no tensors wte.weight and wpe.weight: it is not a GPT-2 in Hugging Face's format",
             path.c_str());
    while (dimension(model, full_name(LN1W, config.num_layers), 0)) config.num_layers++;
    config.num_heads = find_heads(path, config);
    validate(config, path);
    check_tensors(model);
    return model;
}

ModelConfig read_hugging_face_header(const std::string& path) { return open_model(path).config; }

// Transposes (rows, columns) to (columns, rows), in blocks that fit in cache.
static std::vector<float> transpose(const std::vector<float>& from, size_t rows, size_t columns) {
    std::vector<float> to(from.size());
    const size_t block = 32;
#pragma omp parallel for
    for (size_t r0 = 0; r0 < rows; r0 += block)
        for (size_t c0 = 0; c0 < columns; c0 += block)
            for (size_t r = r0; r < std::min(rows, r0 + block); r++)
                for (size_t c = c0; c < std::min(columns, c0 + block); c++)
                    to[c * rows + r] = from[r * columns + c];
    return to;
}

static void write_in_pieces(const WriteTensor& write, int tensor, size_t offset, const float* values,
                            size_t count) {
    for (size_t at = 0; at < count; at += tensor_chunk)
        write(tensor, offset + at, values + at, std::min(tensor_chunk, count - at));
}

void read_hugging_face(const std::string& path, const WriteTensor& write) {
    const Model model = open_model(path);
    check_head(model);
    const ModelConfig& config = model.config;
    for_each_tensor(config, [&](int tensor, int layer, const std::string& name) {
        const SafetensorsEntry& entry = model.file.tensors.at(model.prefix + name);
        const size_t offset = layer * parameter_layer_size(config, tensor), size = entry.elements();
        const size_t piece = hugging_face_names[tensor].transposed ? size : std::min(size, tensor_chunk);
        std::vector<float> values(piece);
        for (size_t at = 0; at < size; at += piece) {
            const size_t count = std::min(piece, size - at);
            read_safetensors(model.file, model.prefix + name, at, count, values.data());
            if (hugging_face_names[tensor].transposed)
                values = transpose(values, entry.shape[0], entry.shape[1]);
            write_in_pieces(write, tensor, offset + at, values.data(), count);
        }
    });
    const size_t real = size_t(config.vocab_size) * config.channels;
    const std::vector<float> padding(parameter_size(config, WTE) - real);
    write_in_pieces(write, WTE, real, padding.data(), padding.size());
}

// --- writing ---

// The type's names in model.safetensors and config.json.
static const char* safetensors_type(StoredType type) {
    if (type == StoredType::q8_0) fail("safetensors files have no type q8_0");
    return type == StoredType::fp32 ? "F32" : type == StoredType::bf16 ? "BF16" : "F16";
}
static const char* torch_type(StoredType type) {
    return type == StoredType::fp32 ? "float32" : type == StoredType::bf16 ? "bfloat16" : "float16";
}

static std::string config_json(const ModelConfig& config, StoredType type, int end_of_text) {
    const JsonMembers fields = {{"architectures", json::array({"GPT2LMHeadModel"})},
                                {"model_type", "gpt2"},
                                {"activation_function", "gelu_new"},
                                {"attn_pdrop", 0.0},
                                {"embd_pdrop", 0.0},
                                {"resid_pdrop", 0.0},
                                {"bos_token_id", end_of_text},
                                {"eos_token_id", end_of_text},
                                {"initializer_range", 0.02},
                                {"layer_norm_epsilon", 1e-5},
                                {"n_ctx", config.max_seq_len},
                                {"n_positions", config.max_seq_len},
                                {"n_embd", config.channels},
                                {"n_head", config.num_heads},
                                {"n_layer", config.num_layers},
                                {"vocab_size", config.vocab_size},
                                {"tie_word_embeddings", true},
                                {"torch_dtype", torch_type(type)}};
    return json_text(fields, 2) + "\n";
}

static std::string generation_config_json(int end_of_text) {
    const JsonMembers fields = {
        {"bos_token_id", end_of_text}, {"eos_token_id", end_of_text}, {"pad_token_id", end_of_text}};
    return json_text(fields, 2) + "\n";
}

// Reads a tensor in pieces, or as a whole if it is to be transposed, and writes it in the file's shape.
static void write_tensor(FileWriter& file, const ReadTensor& read, const SafetensorsItem& item, int tensor,
                         size_t offset, StoredType type) {
    const size_t size = item.shape[0] * (item.shape.size() > 1 ? item.shape[1] : 1);
    std::vector<float> values(hugging_face_names[tensor].transposed ? size : std::min(size, tensor_chunk));
    for (size_t at = 0; at < size; at += values.size()) {
        values.resize(std::min(values.size(), size - at));
        for (size_t i = 0; i < values.size(); i += tensor_chunk)
            read(tensor, offset + at + i, values.data() + i, std::min(tensor_chunk, values.size() - i));
        if (hugging_face_names[tensor].transposed) values = transpose(values, item.shape[1], item.shape[0]);
        write_values(file, type, values.data(), values.size(), item.name);
    }
}

void write_hugging_face(const std::string& dir, const ModelConfig& config, const ReadTensor& read,
                        StoredType type, int end_of_text) {
    validate(config, dir);
    create_folders(dir);
    if (end_of_text < 0) end_of_text = config.vocab_size - 1;
    std::vector<SafetensorsItem> items;
    for_each_tensor(config, [&](int tensor, int, const std::string& name) {
        items.push_back({name, safetensors_type(type), shape_of(config, tensor)});
    });
    FileWriter file(dir + "/model.safetensors");
    write_safetensors_header(file, items);
    size_t next = 0;
    for_each_tensor(config, [&](int tensor, int layer, const std::string&) {
        write_tensor(file, read, items[next++], tensor, layer * parameter_layer_size(config, tensor), type);
    });
    file.finish();
    write_whole_file(dir + "/generation_config.json", {generation_config_json(end_of_text)});
    write_whole_file(dir + "/config.json", {config_json(config, type, end_of_text)});
}
