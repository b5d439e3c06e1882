#include "llmc/run/device_job.h"

#include <algorithm>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/process.h"
#include "llmc/distributed/communicator.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/start_program.h"
#include "llmc/run/processes.h"
#include "llmc/run/progress.h"

// What --device calls a device, such as "0".
static std::string number_of_device(const std::string& name, bool is_alone) {
    if (is_alone && name == "auto") return name;
    if (name == "all" || name == "auto")
        fail("--devices: %s is no single device: name each, such as 0,1,cpu, or give --devices all",
             name.c_str());
    try {
        const std::optional<DeviceInfo> device = choose_device(name).device;
        return device ? std::to_string(device->index) : "cpu";
    } catch (const Error& error) {
        fail("--devices: %s", error.what());
    }
}

// Those of --devices; all: GPUs and the CPU.
static std::vector<std::string> named_devices(const Options& o) {
    std::vector<std::string> all;
    if (o.devices != std::vector<std::string>{"all"}) {
        for (const std::string& name : o.devices)
            all.push_back(number_of_device(name, o.devices.size() == 1));
        return all;
    }
    for (const DeviceInfo& device : all_devices())
        if (is_usable_gpu(device))
            all.push_back(std::to_string(device.index));
        else
            print_line(stdout, "note: --devices all leaves out device %d (%s): %s", device.index,
                       device.name.c_str(),
                       device.missing.empty() ? "it is software, which computes on the CPU's cores"
                                              : ("it lacks " + device.missing).c_str());
    all.push_back("cpu");
    return all;
}

// Without --devices, --share and their values.
static std::vector<std::string> other_arguments(int argc, char** argv) {
    std::vector<std::string> others;
    bool is_value = false;
    int lists = 0;
    for (const std::string argument : std::span(argv, size_t(argc))) {
        const std::string name = argument.substr(0, argument.find('='));
        lists += name == "--devices";
        is_value = name == "--devices" || name == "--share" || (is_value && !argument.starts_with("-"));
        if (!is_value) others.push_back(argument);
    }
    if (lists > 1) fail("--devices is given twice: name all devices at once, such as --devices 0,1,cpu");
    return others;
}

const char* const devices_variable = "LLMC_DEVICES";

static std::string devices_options(const Options& o) {
    std::string text = " --devices " + shell_word(joined(o.devices, ","));
    for (size_t i = 0; i < o.share.size(); i++)
        text += format_string("%s%.9g", i ? "," : " --share ", o.share[i]);
    return text;
}

std::string resume_command(const Options& o) {
    const char* devices = getenv(devices_variable);
    return format_string("%s -o %s -y 1%s", command_of("train_gpt2").c_str(), shell_word(o.output).c_str(),
                         devices ? devices : "");
}

// mpirun with a process for each device. Its part of a step is --share's number for it.
static std::vector<std::string> command_for(const std::vector<std::string>& devices,
                                            const std::vector<double>& shares,
                                            const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"mpirun"};
    for (size_t i = 0; i < devices.size(); i++) {
        if (i > 0) command.push_back(":");
        command.insert(command.end(), {"-np", "1"});
        command.insert(command.end(), arguments.begin(), arguments.end());
        command.insert(command.end(), {"--device", devices[i]});
        if (!shares.empty()) command.insert(command.end(), {"--share", format_string("%.9g", shares[i])});
    }
    return command;
}

static void check_shares(const Options& o, size_t devices) {
    if (o.share.empty()) return;
    if (o.share.size() != devices)
        fail("--share: %s for %s: give one for each", counted(o.share.size(), "number").c_str(),
             counted(devices, "device").c_str());
    const auto zeros = size_t(std::ranges::count(o.share, 0.0));
    if (zeros && zeros < devices)
        fail(
            "--share: 0 is no part of a step: leave out the device in --devices, or --share, so that speeds "
            "are measured");
}

std::optional<int> train_on_devices(Options& o, int argc, char** argv) {
    const std::string each = "-np 1 " + command_of("train_gpt2") + " --device ",
                      by_hand = "mpirun " + each + "0 ... : " + each + "cpu ...";
    if (has_launcher())
        fail("--devices starts the processes itself: leave out mpirun, or name a device for each, as in %s",
             by_hand.c_str());
    if (o.sources.of(&o.device) == Source::command_line)
        fail("--devices names the devices: leave out --device");
    const std::vector<std::string> arguments = other_arguments(argc, argv), devices = named_devices(o);
    check_shares(o, devices.size());
    if (devices.size() == 1) {
        o.device = devices[0];
        return std::nullopt;
    }
    if (std::ranges::count(arguments, ":"))
        fail("--devices: mpirun takes the argument ':' for itself: write it in another way, such as ./:");
    if (!built_with_mpi())
        fail(
            "--devices needs MPI, without which this program was built: install it, such as with apt install "
            "libopenmpi-dev, and build again");
    const std::vector<std::string> command = command_for(devices, o.share, arguments);
    set_environment(devices_variable, devices_options(o));
    if (is_terminal(stdout)) set_environment(columns_variable, std::to_string(columns_of_terminal()));
    try {
        // The processes share the cores. Open MPI 4 reads OMPI_MCA_*, its successors PRTE_MCA_*.
        return run_instead(command, {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                     {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                     {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
                                     {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                     {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                     {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
                                     {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                     {"PRTE_MCA_hwloc_default_binding_policy", "none"},
                                     {"OMPI_MCA_orte_execute_quiet", "1"}});
    } catch (const std::system_error& error) {
        fail("--devices: cannot start mpirun: %s; install MPI, or put its folder into PATH",
             error.code().message().c_str());
    }
}
