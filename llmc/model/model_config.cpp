// Descriptors, checks and tensor sizes of a GPT-2 model. The depths and widths of llm.c's descriptors come
// from the GPT-2 and GPT-3 papers; d60, d72 and d84 are llm.c's own.
#include "llmc/model/model_config.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "llmc/base/error.h"

static constexpr Dimension one, channels = {1, &ModelConfig::channels};
static constexpr Dimension channels3 = {3, channels.of}, channels4 = {4, channels.of};
static constexpr Dimension positions = {1, &ModelConfig::max_seq_len};
static constexpr Dimension vocabulary = {1, &ModelConfig::padded_vocab_size};

// (clang-format would break the columns.)
// clang-format off
const ParameterInfo parameter_info[NUM_PARAMETER_TENSORS] = {
    {"wte",      false, vocabulary, channels},
    {"wpe",      false, positions,  channels},
    {"ln1w",     true,  one,        channels},
    {"ln1b",     true,  one,        channels},
    {"qkvw",     true,  channels3,  channels},
    {"qkvb",     true,  one,        channels3},
    {"attprojw", true,  channels,   channels},
    {"attprojb", true,  one,        channels},
    {"ln2w",     true,  one,        channels},
    {"ln2b",     true,  one,        channels},
    {"fcw",      true,  channels4,  channels},
    {"fcb",      true,  one,        channels4},
    {"fcprojw",  true,  channels,   channels4},
    {"fcprojb",  true,  one,        channels},
    {"lnfw",     false, one,        channels},
    {"lnfb",     false, one,        channels},
};
// clang-format on

struct NamedShape {
    const char* name;
    int max_seq_len, layers, heads, channels;
};
static const NamedShape named_shapes[] = {
    {"gpt2:d6", 1024, 6, 6, 384},       {"gpt2:d12", 1024, 12, 12, 768},
    {"gpt2:d24", 1024, 24, 16, 1024},   {"gpt2:d36", 1024, 36, 20, 1280},
    {"gpt2:d48", 1024, 48, 25, 1600},   {"gpt2:d60", 1024, 60, 30, 1920},
    {"gpt2:d72", 1024, 72, 30, 2880},   {"gpt2:d84", 1024, 84, 36, 3456},
    {"gpt3:c384", 2048, 6, 6, 384},     {"gpt3:c768", 2048, 12, 12, 768},
    {"gpt3:c1024", 2048, 24, 16, 1024}, {"gpt3:c1536", 2048, 24, 16, 1536},
    {"gpt3:c2048", 2048, 24, 16, 2048}, {"gpt3:c2560", 2048, 32, 32, 2560},
    {"gpt3:c4096", 2048, 32, 32, 4096}, {"gpt3:c12288", 2048, 96, 96, 12288},
};
static constexpr int gpt2_vocab = 50257, gpt2_positions = 1024, most_depth = 84;

[[noreturn]] static void reject(const std::string& text, const std::string& why) {
    std::string widths;
    for (const NamedShape& shape : named_shapes)
        if (const std::string name = shape.name; name.starts_with("gpt3:"))
            widths += (widths.empty() ? "" : ", ") + name.substr(5);
    fail(
        "model '%s': %s; accepted are a run's folder, a checkpoint file ending in .bin, d1 to d%d, such as "
        "d12, gpt3:cN with cN one of %s, and "
        "custom:layers=4,heads=4,channels=128[,max_seq_len=256][,vocab=257]",
        text.c_str(), why.c_str(), most_depth, widths.c_str());
}

struct CustomField {
    std::string_view name;
    int* value;
    bool seen = false;
};

// Parses one NAME=NUMBER of a custom descriptor into the field of that name.
static void read_custom_item(const std::string& text, std::string_view item, std::span<CustomField> fields) {
    size_t equals = item.find('=');
    auto field = std::find_if(fields.begin(), fields.end(), [&](const CustomField& candidate) {
        return candidate.name == item.substr(0, equals);
    });
    std::string shown(item);
    if (field == fields.end() || equals == item.npos) reject(text, "'" + shown + "' is unknown");
    if (field->seen) reject(text, std::string(field->name) + " is given twice");
    field->seen = true;
    const char* end = item.data() + item.size();
    auto [stop, error] = std::from_chars(item.data() + equals + 1, end, *field->value);
    if (error != std::errc() || stop != end) reject(text, "'" + shown + "' needs an integer");
}

static ModelConfig parse_custom(const std::string& text) {
    ModelConfig config = {gpt2_positions, gpt2_vocab, 0, 0, 0, 0};
    CustomField fields[] = {{"layers", &config.num_layers},
                            {"heads", &config.num_heads},
                            {"channels", &config.channels},
                            {"max_seq_len", &config.max_seq_len},
                            {"vocab", &config.vocab_size}};
    std::string_view rest = std::string_view(text).substr(strlen("custom:"));
    while (!rest.empty()) {
        std::string_view item = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), item.size() + 1));
        read_custom_item(text, item, fields);
    }
    for (const CustomField& field : fields) {
        const bool may_be_missing = field.name == "vocab" || field.name == "max_seq_len";
        if (!field.seen && !may_be_missing) reject(text, std::string(field.name) + " is missing");
    }
    set_vocab_size(config, config.vocab_size);
    return config;
}

static ModelConfig config_of(const NamedShape& shape) {
    ModelConfig config = {shape.max_seq_len, 0, 0, shape.layers, shape.heads, shape.channels};
    set_vocab_size(config, gpt2_vocab);
    return config;
}

// A model of so many layers: the named one, else channels between its neighbours', in heads of 64. No
// channels: it has too many layers.
static NamedShape shape_of_depth(int depth) {
    NamedShape before = {"", gpt2_positions, 0, 0, 0};
    for (const NamedShape& shape : named_shapes) {
        if (!std::string_view(shape.name).starts_with("gpt2:")) continue;
        if (depth == shape.layers) return shape;
        if (depth > shape.layers) {
            before = shape;
            continue;
        }
        const int wider = shape.channels - before.channels, deeper = shape.layers - before.layers;
        const int heads = std::max(1, (before.channels + wider * (depth - before.layers) / deeper) / 64);
        return {"", gpt2_positions, depth, heads, 64 * heads};
    }
    return {};
}

// N of dN or gpt2:dN; 0: it is something else.
static int depth_of(std::string_view text) {
    if (text.starts_with("gpt2:")) text.remove_prefix(5);
    if (!text.starts_with('d')) return 0;
    int depth = 0;
    const auto [stop, error] = std::from_chars(text.data() + 1, text.data() + text.size(), depth);
    const bool is_number = error == std::errc() && stop == text.data() + text.size() && text[1] != '0';
    return is_number && depth > 0 ? depth : 0;
}

ModelConfig parse_descriptor(const std::string& text) {
    if (text.starts_with("custom:")) {
        ModelConfig config = parse_custom(text);
        validate(config, "model '" + text + "'");
        return config;
    }
    for (const NamedShape& shape : named_shapes)
        if (text == shape.name) return config_of(shape);
    const NamedShape shape = shape_of_depth(depth_of(text));
    if (depth_of(text) < 1 || !shape.channels) reject(text, "unknown");
    return config_of(shape);
}

void set_vocab_size(ModelConfig& config, int vocab_size) {
    config.vocab_size = vocab_size;
    config.padded_vocab_size = int((int64_t(vocab_size) + 127) / 128 * 128);
}

void validate(const ModelConfig& config, const std::string& where) {
    // The upper bounds are far beyond any GPT; they limit a tensor to 2^44 elements.
    struct Bound {
        const char* name;
        int value, most;
    } bounds[] = {{"max_seq_len", config.max_seq_len, 1 << 20},
                  {"vocab_size", config.vocab_size, 1 << 24},
                  {"padded_vocab_size", config.padded_vocab_size, 1 << 24},
                  {"num_layers", config.num_layers, 1 << 10},
                  {"num_heads", config.num_heads, 1 << 16},
                  {"channels", config.channels, 1 << 16}};
    for (const Bound& bound : bounds) {
        if (bound.value < 1 || bound.value > bound.most)
            fail("%s: %s is %d, but must be from 1 to %d", where.c_str(), bound.name, bound.value,
                 bound.most);
    }
    if (config.channels % config.num_heads != 0)
        fail("%s: channels (%d) must be a multiple of heads (%d)", where.c_str(), config.channels,
             config.num_heads);
    const int most_head_channels = 128;  // of the attention layer
    if (config.channels / config.num_heads > most_head_channels)
        fail("%s: heads of %d channels are too large, at most %d are supported: use more heads",
             where.c_str(), config.channels / config.num_heads, most_head_channels);
    if (config.padded_vocab_size < config.vocab_size)
        fail("%s: padded_vocab_size (%d) is less than vocab_size (%d)", where.c_str(),
             config.padded_vocab_size, config.vocab_size);
}

size_t parameter_layer_size(const ModelConfig& config, int tensor) {
    return parameter_info[tensor].rows.in(config)*parameter_info[tensor].columns.in(config);
}

size_t parameter_size(const ModelConfig& config, int tensor) {
    return parameter_layer_size(config, tensor) * (parameter_info[tensor].per_layer ? config.num_layers : 1);
}

size_t num_parameters(const ModelConfig& config) {
    size_t sum = 0;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) sum += parameter_size(config, tensor);
    return sum;
}

void write_in_chunks(const WriteTensor& write, int tensor, size_t offset, const float* values, size_t count) {
    for (size_t done = 0; done < count; done += tensor_chunk)
        write(tensor, offset + done, values + done, std::min(tensor_chunk, count - done));
}
