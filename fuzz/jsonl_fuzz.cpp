// JSONL with documents or with HellaSwag's examples, and plain text: what goes in comes out of the tokens.
#include "fuzz/fuzz.h"
#include "llmc/hellaswag.h"
#include "llmc/text_reader.h"
#include "llmc/text_stream.h"

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
            while (reader.next(block))
                for (uint16_t token : encode_block(block, format, bytes).tokens)
                    if (token != bytes.end_of_text) back += bytes.decode(token);
            require(!format.field.empty() || back == all);
        });
    expect_no_crash([&] {
        const HellaSwagExample example = parse_hellaswag(all, "input", bytes);
        require(example.label >= 0 && example.label < 4);
    });
    require(whole_characters(all) + 3 >= all.size());
    return 0;
}
