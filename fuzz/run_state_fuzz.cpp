// The run state in a checkpoint, as JSON: reading and writing it again does not change it.
#include "fuzz/fuzz.h"
#include "llmc/run/run_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    expect_no_crash([&] {
        const RunState state = run_state_from_json(std::string(text_of(data, size)), "input");
        const std::string written = run_state_to_json(state);
        require(run_state_to_json(run_state_from_json(written, "written")) == written);
    });
    return 0;
}
