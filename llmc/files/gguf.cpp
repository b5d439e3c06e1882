#include "llmc/files/gguf.h"

#include <algorithm>
#include <map>
#include <string>

#include "llmc/base/error.h"
#include "llmc/files/model_tensors.h"
#include "llmc/text/tokenizer_roles.h"
#include "shaders/args.h"

// --- the format ---

static const uint64_t alignment = 32;  // of tensors; the format's default

// Types of metadata.
enum GgufValue : uint32_t { UINT32 = 4, INT32 = 5, FLOAT32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

template <class Number>
static void append(std::string& to, const Number& number) {
    static_assert(std::is_arithmetic_v<Number>);
    to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

static void append(std::string& to, const std::string& text) {
    append(to, uint64_t(text.size()));
    to += text;
}

// Key-value pairs as the file holds them.
struct Metadata {
    std::string bytes;
    uint64_t count = 0;

    void add_uint(const char* key, uint32_t value) { append(start(key, UINT32), value); }
    void add_float(const char* key, float value) { append(start(key, FLOAT32), value); }
    void add_bool(const char* key, bool value) { append(start(key, BOOL), uint8_t(value)); }
    void add_text(const char* key, const std::string& value) { append(start(key, STRING), value); }
    template <class Element>
    void add_array(const char* key, GgufValue type, const std::vector<Element>& values) {
        append(start(key, ARRAY), uint32_t(type));
        append(bytes, uint64_t(values.size()));
        for (const Element& value : values) append(bytes, value);
    }

   private:
    std::string& start(const std::string& key, GgufValue type) {
        count++;
        append(bytes, key);
        append(bytes, uint32_t(type));
        return bytes;
    }
};

struct TensorItem : ModelTensor {
    StoredType type;
    uint64_t bytes() const { return stored_bytes(type, elements); }
};

// In the order of StoredType: ggml's types of tensors, and llama.cpp's llama_ftype.
static const uint32_t ggml_types[] = {0, 30, 1, 8}, file_types[] = {0, 32, 1, 7};

static void pad(FileWriter& file, uint64_t size) {
    file.write(std::string((alignment - size % alignment) % alignment, '\0'));
}

static void write_header(FileWriter& file, const Metadata& metadata, const std::vector<TensorItem>& items) {
    std::string header = "GGUF";
    append(header, uint32_t(3));
    append(header, uint64_t(items.size()));
    append(header, metadata.count);
    header += metadata.bytes;
    uint64_t at = 0;
    for (const TensorItem& item : items) {
        append(header, item.name);
        append(header, uint32_t(item.shape.size()));
        for (auto size = item.shape.rbegin(); size != item.shape.rend(); size++) append(header, *size);
        append(header, ggml_types[int(item.type)]);
        append(header, at);
        at += (item.bytes() + alignment - 1) / alignment * alignment;
    }
    file.write(header);
    pad(file, header.size());
}

// --- GPT-2 ---

// llama.cpp's name of each parameter tensor, in the order of ParameterTensor.
static const char* const gguf_names[NUM_PARAMETER_TENSORS] = {
    "token_embd.weight", "position_embd.weight", "attn_norm.weight",   "attn_norm.bias",
    "attn_qkv.weight",   "attn_qkv.bias",        "attn_output.weight", "attn_output.bias",
    "ffn_norm.weight",   "ffn_norm.bias",        "ffn_up.weight",      "ffn_up.bias",
    "ffn_down.weight",   "ffn_down.bias",        "output_norm.weight", "output_norm.bias"};

static std::vector<TensorItem> list_items(const GgufModel& model, StoredType type) {
    ModelConfig config = model.config;
    config.vocab_size = model.tokenizer.vocab_size();  // other rows of wte are left out
    std::vector<TensorItem> items;
    for (const ModelTensor& t : list_tensors(config, gguf_names, "blk.")) {
        const bool has_type = t.shape.size() == 2 && t.tensor != WPE;
        const bool fits = type != StoredType::q8_0 || t.shape.back() % q8_0_block == 0;
        items.push_back({t, !has_type ? StoredType::fp32 : fits ? type : StoredType::fp16});
    }
    return items;
}

static void add_model(Metadata& metadata, const GgufModel& model, StoredType type) {
    const ModelConfig& config = model.config;
    metadata.add_text("general.architecture", "gpt2");
    metadata.add_text("general.type", "model");
    metadata.add_text("general.name", printable(model.name));
    metadata.add_uint("general.file_type", file_types[int(type)]);
    metadata.add_uint("general.quantization_version", 2);
    metadata.add_uint("gpt2.context_length", config.max_seq_len);
    metadata.add_uint("gpt2.embedding_length", config.channels);
    metadata.add_uint("gpt2.block_count", config.num_layers);
    metadata.add_uint("gpt2.feed_forward_length", 4 * config.channels);
    metadata.add_uint("gpt2.attention.head_count", config.num_heads);
    metadata.add_float("gpt2.attention.layer_norm_epsilon", LAYERNORM_EPSILON);
}

// llama.cpp finds added tokens in a text, too, but has no fields for what a tokenizer does with spaces.
static void refuse_spaces(const Tokenizer& tokenizer) {
    const char* advice = "which GGUF cannot say: use --export hf";
    if (tokenizer.add_prefix_space)
        fail("%s puts a space before each text (add_prefix_space), %s", tokenizer.name.c_str(), advice);
    for (const AddedToken& t : tokenizer.added)
        if (t.lstrip || t.rstrip || t.single_word)
            fail("%s: the added token '%s' has %s, %s", tokenizer.name.c_str(),
                 printable(tokenizer.tokens[t.id]).c_str(),
                 t.lstrip   ? "lstrip"
                 : t.rstrip ? "rstrip"
                            : "single_word",
                 advice);
}

// A text begins with end-of-text, as in generate, unless bos_token is another token.
static void add_token_roles(Metadata& metadata, const Tokenizer& tokenizer) {
    static const std::map<std::string, const char*> names = {
        {"bos_token", "bos"},       {"pad_token", "padding"}, {"unk_token", "unknown"},
        {"sep_token", "seperator"}, {"cls_token", "cls"},     {"mask_token", "mask"}};  // as GGUF spells it
    std::map<std::string, int> ids = {{"bos", tokenizer.end_of_text}, {"eos", tokenizer.end_of_text}};
    JsonMembers roles;
    add_roles(roles, tokenizer.roles, "config");
    for (const auto& [role, value] : roles) {
        const auto name = names.find(role);
        const auto token = std::find(tokenizer.tokens.begin(), tokenizer.tokens.end(),
                                     value.is_string() ? value.get<std::string>() : "");
        if (name != names.end() && token != tokenizer.tokens.end())
            ids[name->second] = int(token - tokenizer.tokens.begin());
    }
    JsonMembers generation = {{"pad_token_id", {}}};
    add_roles(generation, tokenizer.roles, "generation");
    if (const nlohmann::json& pad = generation[0].second;
        pad.is_number_unsigned() && pad < tokenizer.tokens.size())
        ids.try_emplace("padding", pad.get<int>());
    for (const auto& [name, id] : ids)
        metadata.add_uint(("tokenizer.ggml." + name + "_token_id").c_str(), uint32_t(id));
    metadata.add_bool("tokenizer.ggml.add_bos_token", ids["bos"] == tokenizer.end_of_text);
}

// A list of chat templates: the default one has its own key. Names are spelled as gguf's writer does.
static void add_templates(Metadata& metadata, const Tokenizer& tokenizer) {
    if (const std::string chat = chat_template_of(tokenizer.roles); !chat.empty())
        metadata.add_text("tokenizer.chat_template", chat);
    JsonMembers all = {{"chat_template", {}}};
    add_roles(all, tokenizer.roles, "config");
    std::vector<std::string> names;
    for (const nlohmann::json& named : all[0].second.is_array() ? all[0].second : nlohmann::json::array()) {
        if (!named.is_object()) continue;
        const nlohmann::json name = named.value("name", nlohmann::json()),
                             text = named.value("template", nlohmann::json());
        if (!name.is_string() || name == "default" || !text.is_string()) continue;
        std::string key = name;
        std::ranges::replace_if(
            key, [](unsigned char c) { return c >= 0x80 || !isalnum(c); }, '_');
        if (key.empty() || std::ranges::count(names, key)) continue;
        names.push_back(key);
        metadata.add_text(("tokenizer.chat_template." + key).c_str(), text);
    }
    if (!names.empty()) metadata.add_array("tokenizer.chat_templates", STRING, names);
}

// Plain bytes are a byte-level BPE without merges.
static void add_tokenizer(Metadata& metadata, Tokenizer& tokenizer) {
    refuse_spaces(tokenizer);
    const int32_t normal = 1, control = 3, user_defined = 4;  // llama.cpp's llama_token_type
    std::vector<int32_t> types(tokenizer.vocab_size(), normal);
    for (const AddedToken& t : tokenizer.added) types[t.id] = t.special ? control : user_defined;
    types[tokenizer.end_of_text] = control;
    const TokenTexts texts = spell_tokens(tokenizer);
    metadata.add_text("tokenizer.ggml.model", "gpt2");
    metadata.add_text("tokenizer.ggml.pre", "gpt-2");
    metadata.add_array("tokenizer.ggml.tokens", STRING, texts.tokens);
    metadata.add_array("tokenizer.ggml.token_type", INT32, types);
    metadata.add_array("tokenizer.ggml.merges", STRING, texts.merges);
    add_templates(metadata, tokenizer);
    add_token_roles(metadata, tokenizer);
}

int write_gguf(const std::string& path, const GgufModel& model, StoredType type) {
    validate(model.config, path);
    Metadata metadata;
    add_model(metadata, model, type);
    add_tokenizer(metadata, model.tokenizer);
    const std::vector<TensorItem> items = list_items(model, type);
    FileWriter file(path, Target::named);
    write_header(file, metadata, items);
    for (const TensorItem& item : items) {
        write_tensor(file, model.read, item, item.type, false);
        pad(file, item.bytes());
    }
    file.finish();
    return int(std::count_if(items.begin(), items.end(), [&](const TensorItem& item) {
        return type == StoredType::q8_0 && item.type == StoredType::fp16;
    }));
}

bool is_gpt2_gguf(const std::string& path) {
    Metadata first;
    first.add_text("general.architecture", "gpt2");
    const size_t counts = 2 * sizeof(uint64_t);  // of tensors and metadata, between the version and these
    const size_t bytes = 4 + sizeof(uint32_t) + counts + first.bytes.size();
    const std::string begin = first_bytes(path, bytes);
    return begin.size() == bytes && begin.starts_with("GGUF") && begin.ends_with(first.bytes);
}
