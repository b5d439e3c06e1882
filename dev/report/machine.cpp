// Describes the machine: see section.h.
#include <omp.h>

#include <fstream>
#include <thread>

#include "dev/report/section.h"
#include "llmc/base/error.h"
#include "llmc/base/os.h"

#ifdef __clang__
static const char* compiler = "clang " __clang_version__;
#else
static const char* compiler = "g++ " __VERSION__;
#endif

// The value after "NAME: " or "NAME=" in a file of lines such as /proc/cpuinfo; `otherwise` if there is none.
static std::string find_in_lines(const char* path, const std::string& name, const std::string& otherwise) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const size_t end = line.find_first_of("=:");
        if (end == std::string::npos || line.substr(0, line.find_last_not_of(" \t", end - 1) + 1) != name)
            continue;
        const size_t from = line.find_first_not_of(" \t\"", end + 1);
        return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\"") + 1 - from);
    }
    return otherwise;
}

static Cell fragment_text(const FragmentShape& shape) {
    return shape ? Cell(format_string("%ux%ux%u", shape.M, shape.N, shape.K)) : Cell();
}

static std::vector<Fact> describe_gpu(const LaunchPad& pad) {
    const DeviceInfo& device = pad.device();
    const Limits& limits = pad.limits();
    return {{"name", device.name},
            {"type", device_type_name(device.type)},
            {"driver", device.driver},
            {"api_version", device.api_version},
            {"memory_bytes", device.memory_bytes},
            {"memory_mode", memory_mode_name(pad.memory_mode())},
            {"bf16_matrix", fragment_text(limits.bf16_fragment)},
            {"fp16_matrix", fragment_text(limits.fp16_fragment)},
            {"subgroup_size", limits.subgroup_size},
            {"max_block", limits.max_block},
            {"shared_bytes", limits.shared_bytes}};
}

std::string command_text(int argc, char** argv) {
    std::string text;
    for (int i = 0; i < argc; i++) text += (i ? " " : "") + printable(shell_word(argv[i]));
    return text;
}

// Only Linux has these files; on Arm cpuinfo has no name.
Machine describe_machine(const LaunchPad* pad) {
    Machine machine;
    if (pad) machine.gpu = describe_gpu(*pad);
    std::string kernel;
    std::getline(std::ifstream("/proc/sys/kernel/osrelease"), kernel);
    machine.host = {{"cpu", find_in_lines("/proc/cpuinfo", "model name", SYSTEM_PROCESSOR)},
                    {"cores", std::thread::hardware_concurrency()},
                    {"threads", omp_get_max_threads()},
                    {"memory_bytes", physical_memory()},
                    {"system", find_in_lines("/etc/os-release", "PRETTY_NAME", SYSTEM_NAME)},
                    {"kernel", kernel.empty() ? Cell() : Cell(kernel)},
                    {"compiler", compiler},
                    {"version", PROJECT_VERSION}};
    return machine;
}
