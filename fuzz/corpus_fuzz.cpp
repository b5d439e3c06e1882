// Stories as make_corpus --check reads them.
#include <cmath>

#include "fuzz/fuzz.h"
#include "llmc/text/corpus.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view all = text_of(data, size);
    expect_no_crash([&] {
        const Story story = read_story(all);
        require(all.starts_with(story.text) && story.text.find("\n\n") + 2 == story.text.size());
        require(std::isfinite(story.nats) && story.nats > 0 && story.choices > 0);
    });
    return 0;
}
