// Files in the safetensors format.
#include <vector>

#include "fuzz/fuzz.h"
#include "llmc/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile input(text_of(data, size));
    expect_no_crash([&] {
        const SafetensorsFile file = open_safetensors(input.path);
        for (const auto& [name, entry] : file.tensors) {
            require(file.parts.at(entry.part).data + entry.end <= size);
            expect_no_crash([&, &n = name, &e = entry] {
                std::vector<float> values(e.elements());
                read_safetensors(file, n, 0, values.size(), values.data());
            });
        }
    });
    return 0;
}
