// Tokenizer files, and encoding and decoding with them.
#include "fuzz/fuzz.h"
#include "llmc/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile file(text_of(data, size));
    expect_no_crash([&] {
        Tokenizer tokenizer = open_tokenizer(file.path);
        std::string text;
        for (int token = 0; token < tokenizer.vocab_size(); token++) text += tokenizer.decode(token);
        const std::string tail = text.substr(text.size() - std::min<size_t>(text.size(), 300));
        std::vector<uint16_t> tokens;
        tokenizer.encode(tail, tokens);
        std::string back;
        for (uint16_t token : tokens) back += tokenizer.decode(token);
        require(back == tail);
    });
    return 0;
}
