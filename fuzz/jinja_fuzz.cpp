// Chat templates in Jinja.
#include "fuzz/fuzz.h"
#include "llmc/text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const nlohmann::json variables = {
        {"messages", {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "a"}}}},
        {"add_generation_prompt", true},
        {"eos_token", "</s>"}};
    expect_no_crash([&] { render_jinja(std::string(text_of(data, size)), variables); });
    return 0;
}
