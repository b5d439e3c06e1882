// Hugging Face's GPT-2: see hugging_face.h. Tensor names and config.json's fields follow GPT2Model and
// GPT2Config of the transformers library.
#include "llmc/files/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/paths.h"
#include "llmc/files/model_tensors.h"
#include "llmc/files/safetensors.h"
#include "llmc/text/tokenizer_roles.h"

using nlohmann::json;

static const char* const split_key = "document_split";
static const double json_epsilon = 1e-5;  // LAYERNORM_EPSILON as JSON has it, which is no float's value

// Hugging Face's name of each parameter tensor, in the order of ParameterTensor.
static const char* const tensor_names[NUM_PARAMETER_TENSORS] = {
    "wte.weight",         "wpe.weight",       "ln_1.weight",        "ln_1.bias",
    "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight",        "ln_2.bias",        "mlp.c_fc.weight",    "mlp.c_fc.bias",
    "mlp.c_proj.weight",  "mlp.c_proj.bias",  "ln_f.weight",        "ln_f.bias"};

static std::vector<ModelTensor> list_tensors(const ModelConfig& config) {
    return list_tensors(config, tensor_names, "h.");
}

// The tensor's shape in the file; linear weights are (in, out).
static std::vector<uint64_t> stored_shape(const ModelTensor& t) {
    return t.is_linear() ? std::vector<uint64_t>{t.shape[1], t.shape[0]} : t.shape;
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
    const json fields = read_json_object(path, 1 << 20);
    const JsonMembers supported = {{"model_type", "gpt2"},        {"layer_norm_epsilon", json_epsilon},
                                   {"scale_attn_weights", true},  {"scale_attn_by_inverse_layer_idx", false},
                                   {"tie_word_embeddings", true}, {"add_cross_attention", false}};
    for (const auto& [key, wanted] : supported)
        if (const json found = fields.value(key, wanted); found != wanted)
            fail("%s: %s is %s; only %s is supported", path.c_str(), key.c_str(),
                 describe_json(found).c_str(), describe_json(wanted).c_str());
    check_activation(fields, path);
    const json inner = fields.value("n_inner", json());
    if (!inner.is_null() && inner != 4 * int64_t(config.channels))
        fail("%s: n_inner, the width of the MLP, is %s; only 4 * n_embd, here %lld, is supported",
             path.c_str(), describe_json(inner).c_str(), 4 * (long long)config.channels);
    const JsonMembers sizes = {{"n_layer", config.num_layers},
                               {"n_embd", config.channels},
                               {"n_positions", config.max_seq_len},
                               {"vocab_size", config.vocab_size}};
    for (const auto& [key, size] : sizes)
        if (const json found = fields.value(key, json()); !found.is_null() && found != size)
            fail("%s: %s is %s, but the tensors have %d; are these files of one model, and complete?",
                 path.c_str(), key.c_str(), describe_json(found).c_str(), size.get<int>());
    auto heads = fields.find("n_head");
    if (heads == fields.end() || !heads->is_number_unsigned() || heads->get<uint64_t>() > 1 << 16)
        fail("%s: n_head is missing or not a valid number of heads", path.c_str());
    return heads->get<int>();
}

static std::string config_beside(const std::string& path) {
    return generic_text(std::filesystem::path(path).parent_path() / "config.json");
}

static int find_heads(const std::string& path, const ModelConfig& config) {
    const std::string config_file = config_beside(path);
    if (optional_file_exists(config_file)) return read_config(config_file, config);
    fail(
        "%s: the tensors do not say how many heads the model has: write {\"n_head\": N} to %s (all of "
        "OpenAI's GPT-2 models have 64 channels per head)",
        path.c_str(), config_file.c_str());
}

std::string split_of_hugging_face(const std::string& path) {
    const std::string config_file = config_beside(path);
    if (!optional_file_exists(config_file)) return "";
    const json split = read_json_object(config_file, 1 << 20).value(split_key, json());
    return split.is_string() ? split.get<std::string>() : "";
}

static void check_tensors(const Model& model) {
    std::set<std::string> known;
    for (const ModelTensor& t : list_tensors(model.config)) {
        auto found = model.file.tensors.find(model.prefix + t.name);
        if (found == model.file.tensors.end())
            fail("%s has no tensor '%s': it is not a GPT-2 in Hugging Face's format", model.file.path.c_str(),
                 t.name.c_str());
        const std::vector<uint64_t>& shape = found->second.shape;
        if (t.tensor == FCW && shape.size() == 2 && shape[1] != 4 * uint64_t(model.config.channels))
            fail("%s: tensor '%s' makes an MLP %llu wide; only 4 times the channels, here %d, is supported",
                 model.file.path.c_str(), t.name.c_str(), (unsigned long long)shape[1],
                 4 * model.config.channels);
        if (shape != stored_shape(t))
            fail("%s: the shape of tensor '%s' does not match the other tensors", model.file.path.c_str(),
                 t.name.c_str());
        known.insert(found->first);
    }
    for (const auto& [name, entry] : model.file.tensors) {
        const bool is_mask =
            name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");  // of old ones
        if (!known.count(name) && !is_mask && name != "lm_head.weight")  // which check_head() compares
            fail("%s has a tensor '%s', which GPT-2 does not have", model.file.path.c_str(), name.c_str());
    }
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
    while (dimension(model, format_string("h.%d.ln_1.weight", config.num_layers), 0)) config.num_layers++;
    config.num_heads = find_heads(path, config);
    validate(config, path);
    check_tensors(model);
    return model;
}

ModelConfig read_hugging_face_header(const std::string& path) { return open_model(path).config; }

void read_hugging_face(const std::string& path, const WriteTensor& write) {
    const Model model = open_model(path);
    check_head(model);
    const ModelConfig& config = model.config;
    for (const ModelTensor& t : list_tensors(config)) {
        const size_t piece = t.is_linear() ? t.elements : std::min(t.elements, tensor_chunk);
        std::vector<float> values(piece);
        for (size_t at = 0; at < t.elements; at += piece) {
            const size_t count = std::min(piece, t.elements - at);
            read_safetensors(model.file, model.prefix + t.name, at, count, values.data());
            if (t.is_linear()) values = transpose(values, t.shape[1], t.shape[0]);
            write_in_chunks(write, t.tensor, t.offset + at, values.data(), count);
        }
    }
    const size_t real = size_t(config.vocab_size) * config.channels;
    const std::vector<float> padding(parameter_size(config, WTE) - real);
    write_in_chunks(write, WTE, real, padding.data(), padding.size());
}

// --- writing ---

// In the order of StoredType, without q8_0: the names in model.safetensors and config.json.
static const char* const safetensors_types[] = {"F32", "BF16", "F16"};
static const char* const torch_types[] = {"float32", "bfloat16", "float16"};

static std::string config_json(const ModelConfig& config, StoredType type, const JsonMembers& generation,
                               const std::string& split) {
    JsonMembers fields = {{"architectures", json::array({"GPT2LMHeadModel"})},
                          {"model_type", "gpt2"},
                          {"activation_function", "gelu_new"},
                          {"attn_pdrop", 0.0},
                          {"embd_pdrop", 0.0},
                          {"resid_pdrop", 0.0},
                          {"initializer_range", 0.02},
                          {"layer_norm_epsilon", json_epsilon},
                          {"n_ctx", config.max_seq_len},
                          {"n_positions", config.max_seq_len},
                          {"n_embd", config.channels},
                          {"n_head", config.num_heads},
                          {"n_layer", config.num_layers},
                          {"vocab_size", config.vocab_size},
                          {"tie_word_embeddings", true},
                          {"torch_dtype", torch_types[int(type)]}};
    for (const auto& [key, value] : generation)
        if (key == "bos_token_id" || key == "eos_token_id" || key == "pad_token_id")
            fields.emplace_back(key, value);
    if (!split.empty()) fields.emplace_back(split_key, split);
    return json_text(fields, 2) + "\n";
}

static JsonMembers generation_config(int end_of_text, const std::string& roles) {
    JsonMembers fields = {
        {"bos_token_id", end_of_text}, {"eos_token_id", end_of_text}, {"pad_token_id", end_of_text}};
    add_roles(fields, roles, "generation");
    return fields;
}

void write_hugging_face(const std::string& dir, const ModelConfig& config, const ReadTensor& read,
                        StoredType type, int end_of_text, const std::string& roles,
                        const std::string& split) {
    validate(config, dir);
    if (type == StoredType::q8_0) fail("%s: safetensors files hold no q8_0: use gguf", dir.c_str());
    create_folders(dir);
    if (end_of_text < 0) end_of_text = config.vocab_size - 1;
    std::vector<SafetensorsItem> items;
    const std::vector<ModelTensor> tensors = list_tensors(config);
    for (const ModelTensor& t : tensors)
        items.push_back({t.name, safetensors_types[int(type)], stored_shape(t)});
    FileWriter file(dir + "/model.safetensors");
    write_safetensors_header(file, items);
    for (const ModelTensor& t : tensors) write_tensor(file, read, t, type, true);
    file.finish();
    const JsonMembers generation = generation_config(end_of_text, roles);
    write_whole_file(dir + "/generation_config.json", {json_text(generation, 2), "\n"});
    write_whole_file(dir + "/config.json", {config_json(config, type, generation, split)});
}
