// Token shards, and the data loader reading them.
#include <vector>

#include "fuzz/fuzz.h"
#include "llmc/data/dataloader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile file(text_of(data, size));
    expect_no_crash([&] {
        const TokenShard shard = open_token_shard(file.path);
        require(1024 + 2 * shard.tokens == size);
        std::vector<uint16_t> tokens(shard.tokens);
        read_tokens(shard, 0, shard.tokens, tokens.data());
    });
    expect_no_crash([&] {
        DataLoader loader(file.path, 1, 3, 300, size % 2);
        int inputs[3], targets[3];
        for (uint64_t i = 0; i < loader.num_batches() + 2 && i < 20; i++) {
            loader.next_batch(inputs, targets);
            for (int token : inputs) require(token >= 0 && token < 300);
            for (int token : targets) require(token >= 0 && token < 300);
        }
    });
    return 0;
}
