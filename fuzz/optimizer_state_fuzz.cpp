// llm.c's optimizer states, and resuming from their data position.
#include "fuzz/fuzz.h"
#include "fuzz/seeds.h"
#include "llmc/files/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const InputFile shard(seed_shard());
    const InputFile file(text_of(data, size));
    expect_no_crash([&] {
        // per input: its destructor waits for the thread that prefetches, in whose registers LeakSanitizer
        // would miss a pointer
        DataLoader loader(shard.path, 1, 4, 300, true);
        const OptimizerState state = read_optimizer_state(file.path, seed_config);
        read_moments(file.path, seed_config,
                     [](Moment, int tensor, size_t offset, const float*, size_t count) {
                         require(offset + count <= parameter_size(seed_config, tensor));
                     });
        loader.resume(state.data);
        int inputs[4], targets[4];
        for (int i = 0; i < 20; i++) loader.next_batch(inputs, targets);
    });
    return 0;
}
