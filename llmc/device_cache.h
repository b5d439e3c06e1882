// What is kept of a device on disk, so that the next start is quicker: the kernels as its driver compiled
// them (NAME.pipelines) and what was measured there (NAME.measured, lines "name number"). Both begin with a
// line that holds the checksum of the rest. These functions know the bytes alone: a file that is damaged, cut
// short, of an earlier format or another device's is a file that is not there, and is never an error.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "llmc/vulkan.h"

// The file's bytes; none where it cannot be read.
std::string read_cache_file(const std::string& path);

// The content behind the line of its checksum, and back: "" where they do not agree.
std::string seal(std::string_view content);
std::string_view unseal(std::string_view file);

// The driver's data in a file of pipelines, where this device's driver wrote it; else "". Drivers check its
// header, but need not survive damage behind it.
std::string pipelines_in(std::string_view file, const VkPhysicalDeviceProperties& device);

// What was measured: numbers by name; names have no spaces. None where any line is not of that form.
using Measured = std::map<std::string, int>;
Measured measured_in(std::string_view file);
std::string measured_file(const Measured& measured);
