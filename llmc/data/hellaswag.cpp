#include "llmc/data/hellaswag.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/output.h"

static const int32_t hellaswag_magic = 20240522, hellaswag_version = 1;
static const uint16_t start_of_example = 65535;
static const size_t fixed_words = 6;  // per example: start, bytes, number, label, 4, context length

// Reads the words of one example, one after the other.
struct ExampleReader {
    std::span<const uint16_t> words;
    const std::string& path;
    size_t number;
    int vocab_size;

    uint16_t next() {
        if (words.empty()) fail("%s: example %zu ends too early", path.c_str(), number);
        const uint16_t word = words[0];
        words = words.subspan(1);
        return word;
    }
    void expect(const char* what, int wanted) {
        const int found = next();
        if (found != wanted)
            fail("%s: example %zu: %s is %d instead of %d", path.c_str(), number, what, found, wanted);
    }
    std::vector<uint16_t> tokens(const char* what) {
        const size_t length = next();
        if (length == 0 || length > words.size())
            fail("%s: example %zu: %s would have %zu tokens", path.c_str(), number, what, length);
        std::vector<uint16_t> values(words.begin(), words.begin() + length);
        words = words.subspan(length);
        for (uint16_t token : values)
            if (token >= vocab_size)
                fail(
                    "%s: example %zu has token %d, but the model's vocabulary has %d; is the file for "
                    "another tokenizer?",
                    path.c_str(), number, token, vocab_size);
        return values;
    }
};

// Reads one example and removes it from the words.
static HellaSwagExample read_example(std::span<const uint16_t>& words, const std::string& path, size_t number,
                                     size_t longest_bytes, int vocab_size) {
    ExampleReader reader = {words, path, number, vocab_size};
    reader.expect("its start", start_of_example);
    const size_t bytes = reader.next();
    if (bytes % 2 || bytes / 2 > words.size() || bytes > longest_bytes)
        fail("%s: example %zu would have %zu bytes", path.c_str(), number, bytes);
    reader.words = words.first(bytes / 2).subspan(std::min<size_t>(2, bytes / 2));
    words = words.subspan(bytes / 2);
    HellaSwagExample example;
    reader.expect("its number", int(number));
    example.label = reader.next();
    if (example.label > 3) fail("%s: example %zu: its label is %d", path.c_str(), number, example.label);
    reader.expect("the number of endings", 4);
    example.context = reader.tokens("the context");
    for (auto& ending : example.endings) ending = reader.tokens("an ending");
    if (!reader.words.empty()) fail("%s: example %zu is too long", path.c_str(), number);
    return example;
}

std::vector<HellaSwagExample> read_hellaswag(const std::string& path, int vocab_size) {
    const std::string bytes = read_whole_file(path, header_bytes + (uint64_t(1) << 32));
    int32_t header[header_ints];
    if (bytes.size() < header_bytes) fail("%s is too short for a HellaSwag file", path.c_str());
    memcpy(header, bytes.data(), header_bytes);
    if (header[0] != hellaswag_magic)
        fail("%s is not a HellaSwag file: it starts with %d instead of %d; make one with '%s hellaswag'",
             path.c_str(), header[0], hellaswag_magic, command_of("prepare_data").c_str());
    if (header[1] != hellaswag_version)
        fail("%s is a HellaSwag file of version %d; only version %d can be read", path.c_str(), header[1],
             hellaswag_version);
    std::vector<uint16_t> all((bytes.size() - header_bytes) / 2);
    if (!all.empty()) memcpy(all.data(), bytes.data() + header_bytes, 2 * all.size());
    if (bytes.size() % 2 || header[2] < 1 || size_t(header[2]) > all.size() / fixed_words || header[3] < 0)
        fail("%s is truncated or damaged: %d examples in %zu bytes", path.c_str(), header[2], bytes.size());
    std::span<const uint16_t> words = all;
    std::vector<HellaSwagExample> examples;
    for (int i = 0; i < header[2]; i++)
        examples.push_back(read_example(words, path, i, header[3], vocab_size));
    if (!words.empty()) fail("%s is too long: %zu bytes follow its examples", path.c_str(), 2 * words.size());
    return examples;
}

static std::vector<uint16_t> words_of(const HellaSwagExample& example, size_t number) {
    std::vector<uint16_t> words = {start_of_example, 0, uint16_t(number), uint16_t(example.label), 4};
    auto add = [&](const std::vector<uint16_t>& tokens) {
        words.push_back(uint16_t(tokens.size()));  // if it does not fit, write_hellaswag() fails
        words.insert(words.end(), tokens.begin(), tokens.end());
    };
    add(example.context);
    for (const auto& ending : example.endings) add(ending);
    words[1] = uint16_t(2 * words.size());
    return words;
}

void write_hellaswag(const std::string& path, const std::vector<HellaSwagExample>& examples) {
    if (examples.empty() || examples.size() > 65535)
        fail("%s: cannot write %zu examples; the format holds 1 to 65535", path.c_str(), examples.size());
    std::vector<uint16_t> all;
    size_t longest = 0;
    for (size_t i = 0; i < examples.size(); i++) {
        const std::vector<uint16_t> words = words_of(examples[i], i);
        if (2 * words.size() > 65535)
            fail("%s: example %zu takes %zu bytes; the format holds at most 65535", path.c_str(), i,
                 2 * words.size());
        longest = std::max(longest, 2 * words.size());
        all.insert(all.end(), words.begin(), words.end());
    }
    const int32_t header[header_ints] = {hellaswag_magic, hellaswag_version, int32_t(examples.size()),
                                         int32_t(longest)};
    write_whole_file(path,
                     {{reinterpret_cast<const char*>(header), header_bytes},
                      {reinterpret_cast<const char*>(all.data()), 2 * all.size()}},
                     Target::named);
}

bool is_hellaswag(const std::string& path) { return begins_with(path, hellaswag_magic); }

HellaSwagExample parse_hellaswag(std::string_view line, const std::string& where, Tokenizer& tokenizer) {
    const nlohmann::json fields = parse_json_object(line, where);
    auto context = fields.find("ctx"), endings = fields.find("endings"), label = fields.find("label");
    if (context == fields.end() || !context->is_string() || endings == fields.end() || !endings->is_array() ||
        endings->size() != 4 || label == fields.end())
        fail("%s lacks the context (ctx), the label or four endings: is it HellaSwag's JSONL?",
             where.c_str());
    const std::string digit = label->is_string() ? label->get<std::string>() : json_text(*label);
    if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3')
        fail("%s: the label is not 0 to 3 (HellaSwag's test split has no labels: use the validation split)",
             where.c_str());
    HellaSwagExample example;
    example.label = digit[0] - '0';
    tokenizer.encode(context->get_ref<const std::string&>(), example.context);
    for (size_t i = 0; i < 4; i++) {
        const auto& ending = (*endings)[i];
        if (!ending.is_string()) fail("%s: ending %zu is not a string", where.c_str(), i);
        tokenizer.encode(" " + ending.get_ref<const std::string&>(), example.endings[i]);
    }
    if (example.context.empty()) fail("%s: the context is empty", where.c_str());
    return example;
}

HellaSwagRows make_hellaswag_rows(const std::vector<HellaSwagExample>& examples, int longest_T) {
    size_t longest = 0;
    for (const HellaSwagExample& example : examples)
        for (const auto& ending : example.endings)
            longest = std::max(longest, example.context.size() + ending.size() - 1);
    HellaSwagRows result;
    result.T = int(std::min<size_t>(longest_T, (longest + 63) / 64 * 64));
    for (size_t i = 0; i < examples.size(); i++)
        for (int k = 0; k < 4; k++) {
            const size_t ending = examples[i].endings[k].size();
            if (ending > size_t(result.T))
                fail("HellaSwag's example %zu has an ending of %zu tokens, but sequences have only %d tokens",
                     i, ending, longest_T);
            const int end = int(std::min<size_t>(result.T, examples[i].context.size() + ending - 1));
            result.rows.push_back({int(i), k, end - int(ending), end});
        }
    return result;
}

void HellaSwagRows::fill(const HellaSwagExample& example, const Row& row, int* inputs, int* targets) const {
    std::vector<int> tokens(example.context.begin(), example.context.end());
    const auto& ending = example.endings[row.ending];
    tokens.insert(tokens.end(), ending.begin(), ending.end());
    tokens.erase(tokens.begin(), tokens.end() - std::min<size_t>(tokens.size(), row.end + 1));
    std::fill_n(inputs, T, 0);
    std::fill_n(targets, T, 0);
    std::copy_n(tokens.begin(), row.end, inputs);
    std::copy_n(tokens.begin() + 1, row.end, targets);
}

int count_not_finite(const std::vector<double>& losses) {
    int count = 0;
    for (size_t i = 0; i < losses.size(); i += 4) {
        const auto first = losses.begin() + i;
        count += !std::all_of(first, first + 4, [](double loss) { return std::isfinite(loss); });
    }
    return count;
}

int count_right(const std::vector<HellaSwagExample>& examples, const std::vector<double>& losses) {
    int right = 0;
    for (size_t i = 0; i < examples.size(); i++) {
        const auto first = losses.begin() + 4 * i;
        right += std::min_element(first, first + 4) - first == examples[i].label;
    }
    return right;
}
