// Files in the safetensors format (https://huggingface.co/docs/safetensors): the length of the header in 8
// bytes; the header, a JSON object that maps each tensor's name to its type, shape and offsets; then the
// tensors' bytes, little-endian and row-major.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/file.h"

struct SafetensorsEntry {
    std::string type;  // as the file spells it: "F32", "BF16", "F16", "I64", ...
    std::vector<uint64_t> shape;
    uint64_t begin = 0, end = 0;  // byte offsets from the start of the data
    size_t part = 0;              // the file that holds it

    uint64_t elements() const;  // the product of the shape; open_safetensors() checks that it is below 2^63
};

// One file, or the shards that an index names.
struct SafetensorsFile {
    struct Part {
        std::string path;
        File file;
        uint64_t data = 0;  // offset of the tensors' bytes in the file
    };
    std::string path;  // of the file or the index
    std::vector<Part> parts;
    std::map<std::string, SafetensorsEntry> tensors;
};

// Opens a file and checks it whole. Error unless the header follows the format, every tensor has as many
// bytes as its type and shape take, and the tensors fill the file without holes or overlaps. A path that ends
// with .index.json is an index of shards in its folder, {"weight_map": {tensor: shard}}, which must agree
// with the shards.
SafetensorsFile open_safetensors(const std::string& path);

// Reads elements [first, first + count) of a tensor of type F32, F16, BF16 or F64. Error for other types.
void read_safetensors(const SafetensorsFile& from, const std::string& name, uint64_t first, uint64_t count,
                      float* outp);

// A tensor to write.
struct SafetensorsItem {
    std::string name;
    const char* type;  // "F32", "BF16" or "F16"
    std::vector<uint64_t> shape;
};

// Writes the header. The caller then writes the tensors' bytes in the same order.
void write_safetensors_header(FileWriter& file, const std::vector<SafetensorsItem>& items);
