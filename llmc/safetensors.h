// Files in the safetensors format: 8 bytes with the length of a header, the header, which is a JSON object
// that maps each tensor's name to its type, shape and place, then the tensors' bytes, little-endian,
// row-major. Format: https://huggingface.co/docs/safetensors
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llmc/file.h"

struct SafetensorsEntry {
    std::string type;  // as the file spells it: "F32", "BF16", "F16", "I64", ...
    std::vector<uint64_t> shape;
    uint64_t begin = 0, end = 0;  // bytes from the start of the data

    uint64_t elements() const;  // the product of the shape; its checks keep it below 2^63
};

struct SafetensorsFile {
    std::string path;
    File file;
    uint64_t data = 0;  // where the tensors' bytes begin in the file
    std::map<std::string, SafetensorsEntry> tensors;
};

// Checks the whole file: that the header is what the format says, that every tensor has as many bytes as its
// type and shape take, and that the tensors fill the file without holes or overlaps. Throws Error otherwise.
SafetensorsFile open_safetensors(const std::string& path);

// Elements [first, first + count) of a tensor of type F32, F16, BF16 or F64; Error for others.
void read_safetensors(const SafetensorsFile& from, const std::string& name, uint64_t first, uint64_t count,
                      float* outp);

// A tensor to be written.
struct SafetensorsItem {
    std::string name;
    const char* type;  // "F32" or "BF16"
    std::vector<uint64_t> shape;
};

// Writes the header; the caller then writes the tensors' bytes in the same order.
void write_safetensors_header(FileWriter& file, const std::vector<SafetensorsItem>& items);
