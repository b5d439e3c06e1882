// The state of a run that a checkpoint keeps as JSON: what is read and written again stays the same.
#include "fuzz/fuzz.h"
#include "llmc/run_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    expect_no_crash([&] {
        const RunState state = run_state_from_json(std::string(text_of(data, size)), "input");
        const std::string written = run_state_to_json(state);
        require(run_state_to_json(run_state_from_json(written, "written")) == written);
    });
    return 0;
}
