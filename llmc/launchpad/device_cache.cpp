// See device_cache.h.
#include "llmc/launchpad/device_cache.h"

#include <charconv>
#include <cstring>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"

std::string read_cache_file(const std::string& path) {
    try {
        return read_whole_file(path, uint64_t(1) << 30);
    } catch (const Error&) {
        return "";
    }
}

static std::string seal_line(std::string_view content) { return "xxh3 " + checksum_of(content) + "\n"; }

std::string seal(std::string_view content) { return seal_line(content).append(content); }

std::string_view unseal(std::string_view file) {
    const std::string_view content = file.substr(std::min(file.size(), file.find('\n') + 1));
    return file.substr(0, file.size() - content.size()) == seal_line(content) ? content : "";
}

std::string pipelines_in(std::string_view file, const VkPhysicalDeviceProperties& device) {
    const std::string_view bytes = unseal(file);
    VkPipelineCacheHeaderVersionOne expected = {
        sizeof expected, VK_PIPELINE_CACHE_HEADER_VERSION_ONE, device.vendorID, device.deviceID, {}};
    memcpy(expected.pipelineCacheUUID, device.pipelineCacheUUID, VK_UUID_SIZE);
    const bool ours = bytes.size() >= sizeof expected && !memcmp(bytes.data(), &expected, sizeof expected);
    return std::string(ours ? bytes : "");
}

Measured measured_in(std::string_view file) {
    Measured measured;
    std::string_view left = unseal(file);
    while (!left.empty()) {
        const size_t end = left.find('\n');
        if (end == std::string_view::npos) return {};
        const std::string_view line = left.substr(0, end);
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || space == 0) return {};
        int number;
        const auto [stop, error] = std::from_chars(line.data() + space + 1, line.data() + end, number);
        if (error != std::errc() || stop != line.data() + end) return {};
        measured[std::string(line.substr(0, space))] = number;
        left.remove_prefix(end + 1);
    }
    return measured;
}

std::string measured_file(const Measured& measured) {
    std::string lines;
    for (const auto& [name, number] : measured) lines += name + " " + std::to_string(number) + "\n";
    return seal(lines);
}
