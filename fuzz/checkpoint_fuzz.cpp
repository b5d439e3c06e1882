// llm.c's model checkpoints.
#include "fuzz/fuzz.h"
#include "llmc/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile file(text_of(data, size));
    expect_no_crash([&] {
        const ModelConfig config = read_model_header(file.path);
        size_t seen = 0;
        read_model(file.path, [&](int tensor, size_t offset, const float*, size_t count) {
            require(offset + count <= parameter_size(config, tensor));
            seen += count;
        });
        require(seen == num_parameters(config));
    });
    return 0;
}
