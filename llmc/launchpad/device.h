// Which devices can run the kernels, and which of them a request such as "auto" means.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

// Under which the trial of cooperative matrices is stored, among the versions of kernels.
inline const char* const MATRIX_TRIAL = "cooperative_matrices";

enum class DeviceType { discrete, integrated, virtual_gpu, software };
const char* device_type_name(DeviceType type);

struct DeviceInfo {
    int index = 0;  // position in list_devices(), which is what --device INDEX means
    std::string name;
    DeviceType type = DeviceType::software;
    std::string driver;         // name and version
    std::string api_version;    // "1.3.230"
    uint64_t memory_bytes = 0;  // of the largest device-local heap
    std::string pci;            // PCI address, "0000:65:00.0"; empty if unknown
    std::string missing;        // the features that the kernels need and it lacks; empty: usable
    // Of a usable device: what decides which kernels training takes, lines for people. list_devices() only.
    std::vector<std::string> features;

    bool has_untried_matrices = false;  // see Trust::after_trial; list_devices() only

    bool is_gpu() const { return type != DeviceType::software; }
};

// All Vulkan devices, in a fixed order: discrete, integrated, virtual, software. Throws Error if Vulkan is
// not usable at all.
std::vector<DeviceInfo> list_devices();

// The versions of kernels that were checked, each once, in whatever types and configs; or of those that
// failed.
std::set<std::string> checked_versions(const std::map<std::string, bool>& checks, bool failed = false);

struct DeviceChoice {
    std::optional<DeviceInfo> device;  // none: the CPU
    std::string reason;                // for people: "the only discrete GPU", "no Vulkan loader", ...
};

// Resolves what the user asked for:
//   auto   the first discrete or integrated GPU that can be used, else the CPU; never a software device
//   cpu    the CPU
//   gpu    the first hardware GPU; Error if there is none
//   INDEX  that device of list_devices()
//   NAME   the first usable device whose name contains NAME, letter case ignored
// Throws Error, which lists the devices, if the request cannot be met.
DeviceChoice choose_device(const std::string& request);
