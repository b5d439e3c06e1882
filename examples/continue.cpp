// Continues a text with the likeliest bytes: example_continue model.bin "the quick "
#include "llmc/base/error.h"
#include "llmc/files/model_file.h"
#include "llmc/generate/text_generator.h"
#include "llmc/launchpad/open_device.h"

int main(int argc, char** argv) try {
    if (argc != 3) fail("usage: example_continue model.bin \"the quick \"");
    const auto pad = open_device("auto", {}, stderr);  // null: the CPU
    const ModelConfig config = read_model_file_header(argv[1]);
    GPT2<float> model(config, pad.get());
    read_model_file(argv[1], parameter_writer(model));
    TextGenerator<float> generator(model, config.max_seq_len, 1, {.sampler = {.temperature = 0}});
    const std::string prompt = argv[2];
    generator.start(std::vector<int>(prompt.begin(), prompt.end()), {1});
    for (int i = 0; i < 24; i++) {
        int token;
        generator.next(&token);
        putchar(token);
    }
    putchar('\n');
} catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
}
