// Descriptors of models, such as d12 and custom:layers=4,...
#include "fuzz/fuzz.h"
#include "llmc/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    expect_no_crash([&] {
        const ModelConfig config = parse_descriptor(std::string(text_of(data, size)));
        validate(config, "parsed");
        require(num_parameters(config) > 0);
    });
    return 0;
}
