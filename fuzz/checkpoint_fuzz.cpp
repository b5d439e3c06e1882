// llm.c's model checkpoints, and test_gpt2's reference data: debug states and losses.
#include "fuzz/fuzz.h"
#include "fuzz/seeds.h"
#include "llmc/model/debug_state.h"

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
    expect_no_crash([&] {
        const DebugState state = read_debug_state(file.path, seed_config);
        require(state.inputs.size() == size_t(state.B) * state.T &&
                state.targets.size() == state.inputs.size());
        for (int token : state.targets) require(token >= 0 && token < seed_config.vocab_size);
    });
    expect_no_crash([&] { require(!read_losses(file.path).empty()); });
    return 0;
}
