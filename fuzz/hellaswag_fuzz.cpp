// HellaSwag's files, and the batch rows made from them.
#include "fuzz/fuzz.h"
#include "llmc/data/hellaswag.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const InputFile file(text_of(data, size));
    expect_no_crash([&] {
        const auto examples = read_hellaswag(file.path, 300);
        const HellaSwagRows work = make_hellaswag_rows(examples, 40);
        std::vector<int> inputs(work.T), targets(work.T);
        for (const HellaSwagRows::Row& row : work.rows) {
            require(row.first >= 0 && row.first < row.end && row.end <= work.T);
            work.fill(examples[row.example], row, inputs.data(), targets.data());
            for (int token : targets) require(token >= 0 && token < 300);
        }
    });
    return 0;
}
