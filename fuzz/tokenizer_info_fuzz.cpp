// What NAME.json and run_%08d.json say about the tokenizer: reading and writing it again does not change it.
#include "fuzz/fuzz.h"
#include "llmc/text/tokenizer_info.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    expect_no_crash([&] {
        const TokenizerInfo info =
            tokenizer_info_from_json(std::string(text_of(data, size)), "/folder/input.json");
        const std::string written = tokenizer_info_to_json(info, "/folder");
        require(tokenizer_info_to_json(tokenizer_info_from_json(written, "/folder/input.json"), "/folder") ==
                written);
    });
    return 0;
}
