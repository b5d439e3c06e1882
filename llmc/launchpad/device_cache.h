// The files that speed up the next start on a device: the kernels as its driver compiled them
// (NAME.pipelines) and what was measured on it (NAME.measured, lines "name number"). Both begin with a line
// that holds the checksum of the rest. These functions only handle bytes. A file that is damaged, truncated,
// of an earlier format or another device's counts as missing, and is never an error.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "llmc/launchpad/vulkan.h"

// The file's bytes; empty if it cannot be read.
std::string read_cache_file(const std::string& path);
// Best effort: what cannot be written is compiled or measured again at the next start.
void write_cache_file(const std::string& path, const std::string& bytes);

// Prepends the checksum line to the content, and removes it again: "" if it does not match.
std::string seal(std::string_view content);
std::string_view unseal(std::string_view file);

// The driver's data in a pipeline file, if this device's driver wrote it; otherwise "". Drivers check the
// header, but damaged data behind it may crash them.
std::string pipelines_in(std::string_view file, const VkPhysicalDeviceProperties& device);

// Measurements by name, without spaces. Empty if any line is malformed.
using Measured = std::map<std::string, int>;
Measured measured_in(std::string_view file);
std::string measured_file(const Measured& measured);
