// Power sources and the meter: see power.h.
#include "dev/report/power.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "llmc/base/clock.h"

namespace fs = std::filesystem;

static double read_number(const fs::path& path) {
    std::ifstream file(path);
    double value;
    return file >> value ? value : NAN;
}

// The entries of a folder named `prefix` plus a number; none if the folder does not exist.
static std::vector<fs::path> numbered_entries(const fs::path& folder, const std::string& prefix) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().generic_string();
        if (name.compare(0, prefix.size(), prefix) != 0 || name.size() == prefix.size()) continue;
        if (name.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
            found.push_back(at->path());
    }
    return found;
}

// --- hwmon: sensor files of a graphics driver ---

// The folder of the card at this PCI address, or of the only card if the address is unknown.
static fs::path card_folder(const std::string& system, const std::string& pci) {
    const std::vector<fs::path> cards = numbered_entries(system + "/class/drm", "card");
    for (const fs::path& card : cards) {
        std::error_code error;
        const fs::path device = fs::canonical(card / "device", error);
        if (!error && (device.filename() == pci || (pci.empty() && cards.size() == 1))) return device;
    }
    return {};
}

static PowerSource hwmon_source(const std::string& system, const std::string& pci) {
    const fs::path card = card_folder(system, pci);
    if (card.empty()) return {};
    for (const fs::path& sensor : numbered_entries(card / "hwmon", "hwmon"))
        for (const char* file : {"energy1_input", "power1_average", "power1_input"}) {
            const fs::path path = sensor / file;
            if (!std::isfinite(read_number(path))) continue;
            const auto micro = [path] { return 1e-6 * read_number(path); };  // microjoules, microwatts
            const std::string name = std::string("hwmon, ") + file;
            return file[0] == 'e' ? PowerSource{name, micro, nullptr} : PowerSource{name, nullptr, micro};
        }
    return {};
}

// --- RAPL: the processor's energy counters, which wrap around ---

struct RaplPackage {
    fs::path counter;
    double range;  // microjoules
    double last, wrapped = 0;

    double microjoules() {
        const double now = read_number(counter);
        if (now < last) wrapped += range;
        if (std::isfinite(now)) last = now;
        return wrapped + now;
    }
};

// Only whole packages: cores and memory controllers have counters too, but are parts of a package.
static PowerSource rapl_source(const std::string& system) {
    const auto packages = std::make_shared<std::vector<RaplPackage>>();
    for (const fs::path& zone : numbered_entries(system + "/class/powercap", "intel-rapl:")) {
        std::string name;
        std::ifstream(zone / "name") >> name;
        if (name.compare(0, 7, "package") != 0) continue;
        const RaplPackage package = {zone / "energy_uj", read_number(zone / "max_energy_range_uj"),
                                     read_number(zone / "energy_uj")};
        if (!std::isfinite(package.range) || !std::isfinite(package.last))
            return {};  // often readable by root only
        packages->push_back(package);
    }
    if (packages->empty()) return {};
    const auto joules = [packages] {
        double sum = 0;
        for (RaplPackage& package : *packages) sum += 1e-6 * package.microjoules();
        return sum;
    };
    return {"RAPL, processor", joules, nullptr};
}

// --- the choice ---

PowerSource find_power_source(const DeviceInfo* device, const std::string& system, const NvmlGpu& nvml) {
    if (!device || device->type == DeviceType::software) return rapl_source(system);
    if (nvml.joules) return {"NVML, energy counter", nvml.joules, nullptr};
    if (nvml) return {"NVML, sampled", nullptr, nvml.watts};
    const PowerSource sensor = hwmon_source(system, device->pci);
    if (sensor || device->type != DeviceType::integrated) return sensor;
    return rapl_source(system);
}

PowerSource find_power_source(const DeviceInfo* device) {
    const bool gpu = device && device->type != DeviceType::software;
    return find_power_source(device, "/sys", gpu ? find_nvml_gpu(*device) : NvmlGpu{});
}

// --- the meter ---

void PowerMeter::start() {
    stop();
    if (!source) return;
    start_time = last_time = now();
    sum = 0;
    (source.joules ? first_joules : last_watts) = source.joules ? source.joules() : source.watts();
    running = true;
    thread = std::thread([this] {
        while (running) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            sample();
        }
    });
}

// Samples often enough that a counter cannot wrap around twice between two samples. Power samples are
// integrated by the trapezoidal rule.
void PowerMeter::sample() {
    const double time = now();
    if (source.joules) {
        sum = source.joules() - first_joules;
    } else {
        const double watts = source.watts();
        sum += 0.5 * (watts + last_watts) * (time - last_time);
        last_watts = watts;
    }
    last_time = time;
}

std::optional<Energy> PowerMeter::stop() {
    if (!thread.joinable()) return std::nullopt;
    running = false;
    thread.join();
    sample();  // the last interval
    if (!std::isfinite(sum) || !(sum > 0)) return std::nullopt;
    return Energy{sum, last_time - start_time};
}
