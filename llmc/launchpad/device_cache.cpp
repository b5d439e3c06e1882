#include "llmc/launchpad/device_cache.h"

#include <cstring>
#include <filesystem>
#include <sstream>

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

void write_cache_file(const std::string& path, const std::string& bytes) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    try {
        write_whole_file(path, {bytes});
    } catch (const Error&) {
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

std::string measured_file(const Measured& measured) {
    std::string lines;
    for (const auto& [name, number] : measured) lines += name + " " + std::to_string(number) + "\n";
    return seal(lines);
}

// A line that measured_file() would not write is malformed.
Measured measured_in(std::string_view file) {
    Measured measured;
    std::istringstream words{std::string(unseal(file))};
    int number;
    for (std::string name; words >> name >> number;) measured[name] = number;
    return measured_file(measured) == file ? measured : Measured();
}
