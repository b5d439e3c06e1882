// Continues a text with the likeliest bytes: example_continue model.bin "the quick "
#include "llmc/base/error.h"
#include "llmc/files/model_file.h"
#include "llmc/generate/sampler.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/model/decoder.h"

int main(int argc, char** argv) try {
    if (argc != 3) fail("usage: example_continue model.bin \"the quick \"");
    const auto pad = open_device("auto", {}, stderr);  // null: the CPU
    const ModelConfig config = read_model_file_header(argv[1]);
    GPT2<float> model(config, pad.get());
    read_model_file(argv[1], parameter_writer(model));
    Decoder<float> decoder(model, config.max_seq_len);
    const std::string prompt = argv[2];
    const std::vector<int> tokens(prompt.begin(), prompt.end());
    decoder.append(tokens.data(), int(tokens.size()));
    std::vector<float> logits(config.vocab_size);
    for (int i = 0; i < 24; i++) {
        decoder.read_logits(logits.data());
        const int token = sample_token(logits.data(), config.vocab_size, 0, {.temperature = 0});
        putchar(token);
        decoder.append(&token, 1);
    }
    putchar('\n');
} catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
}
