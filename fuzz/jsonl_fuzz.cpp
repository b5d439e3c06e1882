// JSONL with documents or HellaSwag's examples, and plain text, which the tokens must reproduce.
#include "fuzz/fuzz.h"
#include "llmc/data/hellaswag.h"
#include "llmc/data/text_reader.h"
#include "llmc/data/text_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static Tokenizer bytes = open_tokenizer("bytes");
    const std::string_view all = text_of(data, size);
    const InputFile file(all);
    for (const TextFormat& format :
         {TextFormat{"text", false}, TextFormat{"text", true}, TextFormat{"", true}})
        expect_no_crash([&] {
            TextReader reader({file.path}, format);
            reader.block_bytes = 16;
            TextBlock block;
            std::string back;
            size_t not_utf8 = std::string::npos;
            while (reader.next(block)) {
                const EncodedBlock encoded = encode_block(block, format, bytes);
                for (uint16_t token : encoded.tokens)
                    if (token != bytes.end_of_text) back += bytes.decode(token);
                if (encoded.not_utf8 != std::string::npos)
                    not_utf8 = std::min(not_utf8, block.first_byte + encoded.not_utf8);
            }
            require(!format.field.empty() || (back == all && not_utf8 == find_not_utf8(all)));
        });
    expect_no_crash([&] {
        const HellaSwagExample example = parse_hellaswag(all, "input", bytes);
        require(example.label >= 0 && example.label < 4);
    });
    require(whole_characters(all) + 3 >= all.size());
    return 0;
}
