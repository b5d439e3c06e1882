// The logs of a run as train_gpt2 --plot reads and draws them: the first byte chooses the kind of log.
#include "fuzz/fuzz.h"
#include "llmc/run/loss_plot.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view log = text_of(data + 1, size - 1);
    expect_no_crash([&] {
        const RunSeries run = parse_series(std::string(log), data[0] & 1);
        const std::string svg = draw_runs({run}, std::nullopt);
        require(svg.ends_with("</svg>\n") && svg.find("nan") == svg.npos && svg.find("inf") == svg.npos);
    });
    return 0;
}
