// The device cache: the driver's compiled pipelines, and measurements. The input is read as it is, and with a
// valid checksum added.
#include "fuzz/fuzz.h"
#include "fuzz/seeds.h"

static void read_both(std::string_view file) {
    const std::string pipelines = pipelines_in(file, seed_device);
    require(pipelines.empty() || pipelines == unseal(file));
    const Measured measured = measured_in(file);
    require(measured_in(measured_file(measured)) == measured);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view all = text_of(data, size);
    read_both(all);
    std::string sealed = seal(all);
    require(unseal(sealed) == all);
    read_both(sealed);
    sealed[size * 7 % sealed.size()] ^= char(1 + size % 255);  // damage anywhere is detected
    require(unseal(sealed).empty());
    return 0;
}
