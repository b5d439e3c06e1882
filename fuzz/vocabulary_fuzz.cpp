// GPT-2's published vocabulary files: encoder.json up to the first NUL, then vocab.bpe.
#include "fuzz/fuzz.h"
#include "llmc/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view all = text_of(data, size), encoder = all.substr(0, all.find('\0'));
    const InputFile json(encoder), merges(all.substr(std::min(all.size(), encoder.size() + 1)));
    expect_no_crash([&] {
        const Tokenizer tokenizer = make_gpt2_tokenizer(merges.path, json.path);
        require(tokenizer.vocab_size() == tokenizer.end_of_text + 1);
    });
    return 0;
}
