// JSONL with documents, questions and answers or HellaSwag's examples, and plain or compressed text, which
// the tokens must reproduce.
#include "fuzz/fuzz.h"
#include "llmc/base/utf8.h"
#include "llmc/data/hellaswag.h"
#include "llmc/text/text_reader.h"
#include "llmc/text/text_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static Tokenizer bytes = open_tokenizer("bytes");
    const std::string_view all = text_of(data, size);
    const InputFile file(all);
    for (const TextOptions& options : {TextOptions{.field = {"text"}},
                                       {.is_chat = true},
                                       {.split = DocumentSplit::blank_line, .field = {"text"}},
                                       {.split = DocumentSplit::blank_line}})
        expect_no_crash([&] {
            const size_t most = 4 * size + (1 << 14);
            std::string text(most, ' ');  // decompressed, without a byte order mark
            TextFile text_file(file.path);
            const size_t first_byte = text_file.position;
            text.resize(text_file.read(text.data(), text.size()));
            if (text.size() == most) return;  // too long to compare
            TextReader reader({file.path}, options);
            reader.block_bytes = 16;
            TextBlock block;
            std::string back;
            size_t not_utf8 = std::string::npos;
            while (reader.next(block)) {
                const EncodedBlock encoded = encode_block(block, options, bytes);
                for (uint16_t token : encoded.tokens)
                    if (token != bytes.end_of_text) back += bytes.decode(token);
                if (encoded.not_utf8 != std::string::npos)
                    not_utf8 = std::min(not_utf8, block.first_byte + encoded.not_utf8);
            }
            const size_t expected = find_not_utf8(text);
            require(
                options.is_jsonl() ||
                (back == text && not_utf8 == (expected == text.npos ? text.npos : first_byte + expected)));
        });
    expect_no_crash([&] {
        const HellaSwagExample example = parse_hellaswag(all, "input", bytes);
        require(example.label >= 0 && example.label < 4);
    });
    const std::string_view whole = all.substr(0, whole_characters(all));
    require(whole_characters(whole) == whole.size());
    require(whole.size() == all.size() || find_not_utf8(all) <= whole.size());  // what is cut is unfinished
    return 0;
}
