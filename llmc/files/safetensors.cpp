#include "llmc/files/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/paths.h"
#include "llmc/base/real.h"

using nlohmann::json;

static const uint64_t max_header_bytes = 16 << 20;  // a thousand times the size of GPT-2's

static uint64_t type_bytes(const std::string& type) {
    static const std::map<std::string, uint64_t> sizes = {
        {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
        {"U64", 8}, {"I32", 4}, {"U32", 4},  {"I16", 2},     {"U16", 2},
        {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    auto found = sizes.find(type);
    return found == sizes.end() ? 0 : found->second;
}

uint64_t SafetensorsEntry::elements() const {
    uint64_t product = 1;
    for (uint64_t size : shape) product *= size;
    return product;
}

// Reads the member `key` of a tensor's description, a list of non-negative integers.
static std::vector<uint64_t> read_numbers(const json& item, const char* key, const std::string& where) {
    auto list = item.find(key);
    if (list == item.end() || !list->is_array() || list->size() > 16)
        fail("%s has no list '%s' of at most 16 integers", where.c_str(), key);
    std::vector<uint64_t> numbers;
    for (const json& number : *list) {
        if (!number.is_number_unsigned())
            fail("%s: '%s' is not a list of non-negative integers", where.c_str(), key);
        numbers.push_back(number.get<uint64_t>());
    }
    return numbers;
}

// data_bytes: the size of the file without its header.
static SafetensorsEntry read_entry(const json& item, const std::string& where, uint64_t data_bytes) {
    if (!item.is_object()) fail("%s is not described by an object", where.c_str());
    SafetensorsEntry entry;
    auto type = item.find("dtype");
    if (type == item.end() || !type->is_string() || type_bytes(type->get<std::string>()) == 0)
        fail("%s has an unknown type", where.c_str());
    entry.type = type->get<std::string>();
    entry.shape = read_numbers(item, "shape", where);
    const std::vector<uint64_t> offsets = read_numbers(item, "data_offsets", where);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes)
        fail("%s lies outside the file: it is truncated or damaged", where.c_str());
    entry.begin = offsets[0];
    entry.end = offsets[1];
    uint64_t bytes = type_bytes(entry.type);
    for (uint64_t size : entry.shape)
        if (__builtin_mul_overflow(bytes, size, &bytes) || bytes >> 62)
            fail("%s has a shape too large for any file", where.c_str());
    if (bytes != entry.end - entry.begin)
        fail("%s has the type and shape of %llu bytes, but its offsets span %llu", where.c_str(),
             (unsigned long long)bytes, (unsigned long long)(entry.end - entry.begin));
    return entry;
}

using Tensors = std::map<std::string, SafetensorsEntry>;

static void check_no_holes(const Tensors& tensors, const std::string& path, uint64_t data_bytes) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const auto& [name, entry] : tensors) ranges.push_back({entry.begin, entry.end});
    std::sort(ranges.begin(), ranges.end());
    uint64_t at = 0;
    for (const auto& [begin, end] : ranges) {
        if (begin != at) fail("%s is damaged: its tensors overlap or leave holes", path.c_str());
        at = end;
    }
    if (at != data_bytes)
        fail("%s is too long: %llu bytes follow its tensors", path.c_str(),
             (unsigned long long)(data_bytes - at));
}

// Opens one file and reads its header into `tensors`.
static SafetensorsFile::Part open_part(const std::string& path, Tensors& tensors) {
    SafetensorsFile::Part from = {path, open_to_read(path)};
    const uint64_t size = size_of(from.file, path);
    uint64_t json_bytes = 0;
    if (size < sizeof json_bytes) fail("%s is too short for a safetensors file", path.c_str());
    read_exactly(from.file, path, &json_bytes, sizeof json_bytes);
    if (json_bytes > size - sizeof json_bytes || json_bytes > max_header_bytes)
        fail("%s is truncated or not a safetensors file: its header would have %llu bytes", path.c_str(),
             (unsigned long long)json_bytes);
    std::string text(json_bytes, '\0');
    read_exactly(from.file, path, text.data(), text.size());
    const json header = parse_json_object(text, path + " is not a safetensors file: its header");
    from.data = sizeof json_bytes + json_bytes;
    for (const auto& [name, item] : header.items())
        if (name != "__metadata__")
            tensors[name] = read_entry(item, path + ": tensor '" + name + "'", size - from.data);
    check_no_holes(tensors, path, size - from.data);
    return from;
}

// The shard of each tensor, by an index.
static std::map<std::string, std::string> read_index(const std::string& path) {
    const json index = read_json_object(path, max_header_bytes);
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object() || map->empty())
        fail("%s has no weight_map, which names the file of each tensor", path.c_str());
    std::map<std::string, std::string> shards;
    for (const auto& [tensor, shard] : map->items()) {
        const std::string name = shard.is_string() ? shard.get<std::string>() : "";
        if (!name.ends_with(".safetensors") || !is_plain_name(name))
            fail("%s: the file of tensor '%s' is %s, not one of this folder that ends with .safetensors",
                 path.c_str(), tensor.c_str(), describe_json(shard).c_str());
        shards[tensor] = name;
    }
    return shards;
}

static SafetensorsFile open_shards(const std::string& path) {
    SafetensorsFile from = {.path = path};
    const std::map<std::string, std::string> shard_of = read_index(path);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
    for (const std::string& shard : shards) {
        const std::string file = generic_text(std::filesystem::path(path).parent_path() / shard);
        if (!file_exists(file)) fail("%s: the shard %s is missing", path.c_str(), file.c_str());
        Tensors tensors;
        from.parts.push_back(open_part(file, tensors));
        for (auto& [name, entry] : tensors) {
            const auto indexed = shard_of.find(name);
            if (indexed == shard_of.end() || indexed->second != shard)
                fail("%s has a tensor '%s', which the index %s %s", file.c_str(), name.c_str(), path.c_str(),
                     indexed == shard_of.end() ? "does not list" : "lists in another file");
            entry.part = from.parts.size() - 1;
            from.tensors[name] = entry;
        }
    }
    for (const auto& [tensor, shard] : shard_of)
        if (!from.tensors.count(tensor))
            fail("%s: tensor '%s' is not in %s, where the index has it", path.c_str(), tensor.c_str(),
                 shard.c_str());
    return from;
}

SafetensorsFile open_safetensors(const std::string& path) {
    if (path.ends_with(".index.json")) return open_shards(path);
    SafetensorsFile from = {.path = path};
    from.parts.push_back(open_part(path, from.tensors));
    return from;
}

// Reads elements stored as Element, from the file's current offset.
template <class Element>
static void read_as(const SafetensorsFile::Part& from, uint64_t count, float* outp) {
    std::vector<Element> piece(std::min<uint64_t>(count, 1 << 20));
    while (count > 0) {
        const size_t some = std::min<uint64_t>(count, piece.size());
        const size_t bytes = some * sizeof(Element);
        if (read_some(from.file, from.path, piece.data(), bytes) != bytes)
            fail("%s ends too early: it has changed since it was opened", from.path.c_str());
        outp = std::transform(piece.begin(), piece.begin() + some, outp, [](Element v) { return float(v); });
        count -= some;
    }
}

void read_safetensors(const SafetensorsFile& from, const std::string& name, uint64_t first, uint64_t count,
                      float* outp) {
    auto found = from.tensors.find(name);
    if (found == from.tensors.end()) fail("%s has no tensor '%s'", from.path.c_str(), name.c_str());
    const SafetensorsEntry& entry = found->second;
    if (count > entry.elements() || first > entry.elements() - count)
        fail("cannot read elements %llu to %llu of tensor '%s' in %s, which has %llu",
             (unsigned long long)first, (unsigned long long)(first + count), name.c_str(), from.path.c_str(),
             (unsigned long long)entry.elements());
    const SafetensorsFile::Part& part = from.parts[entry.part];
    const uint64_t position = part.data + entry.begin + first * type_bytes(entry.type);
    seek(part.file, part.path, position);
    if (entry.type == "F32") return read_as<float>(part, count, outp);
    if (entry.type == "BF16") return read_as<bf16>(part, count, outp);
    if (entry.type == "F16") return read_as<fp16>(part, count, outp);
    if (entry.type == "F64") return read_as<double>(part, count, outp);
    fail("%s: tensor '%s' has elements of type %s; F32, BF16, F16 and F64 can be read", from.path.c_str(),
         name.c_str(), entry.type.c_str());
}

void write_safetensors_header(FileWriter& file, const std::vector<SafetensorsItem>& items) {
    JsonMembers members = {{"__metadata__", {{"format", "pt"}}}};  // transformers rejects files without it
    uint64_t at = 0;
    for (const SafetensorsItem& item : items) {
        const uint64_t end = at + type_bytes(item.type) * SafetensorsEntry{item.type, item.shape}.elements();
        members.push_back(
            {item.name, {{"dtype", item.type}, {"shape", item.shape}, {"data_offsets", {at, end}}}});
        at = end;
    }
    std::string text = json_text(members, -1);
    text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8 bytes
    const uint64_t size = text.size();
    file.write(&size, sizeof size);
    file.write(text);
}
