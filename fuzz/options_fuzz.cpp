// Option files of the trainer (--config).
#include "fuzz/fuzz.h"
#include "llmc/run/train_options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile file(text_of(data, size));
    std::string arguments[] = {"train_gpt2", "--config", file.path};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
    expect_no_crash([&] {
        Options options;
        if (!parse_options(3, argv, options)) return;
        require(options.batch >= 1 && options.sequence >= 1 && options.learning_rate >= 0);
        require(options.list_devices || !options.train_data.empty() || options.overfit);
    });
    return 0;
}
