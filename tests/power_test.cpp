// Power sources on fake systems: folders that look like /sys, and a fake NVML.
#include "dev/report/power.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "llmc/base/os.h"
#include "llmc/base/process.h"
#include "tests/run_program.h"

namespace fs = std::filesystem;

static const std::string FAKE_NVML = BINARY_DIR "/fake_nvml.module";

static DeviceInfo device_named(const std::string& name, const std::string& pci, DeviceType type) {
    DeviceInfo device;
    device.name = name;
    device.pci = pci;
    device.type = type;
    return device;
}

static void write_file(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
}

// Graphics cards and processor packages as Linux presents them.
struct FakeSystem {
    TemporaryFolder folder;
    void add_card(int number, const std::string& pci, const std::string& file, const std::string& value) {
        const fs::path device = fs::path(folder.path) / "devices" / pci;
        write_file(device / "hwmon/hwmon3" / file, value);
        const fs::path card = fs::path(folder.path) / "class/drm" / ("card" + std::to_string(number));
        fs::create_directories(card);
        fs::create_directories(card.string() + "-DP-1");  // a connector, not a card
        fs::create_symlink(device, card / "device");
    }
    fs::path zone(const std::string& name) const { return fs::path(folder.path) / "class/powercap" / name; }
    void add_zone(const std::string& zone_name, const std::string& name, const std::string& microjoules) {
        write_file(zone(zone_name) / "name", name);
        write_file(zone(zone_name) / "energy_uj", microjoules);
        write_file(zone(zone_name) / "max_energy_range_uj", "100000000");
    }
    PowerSource source(const DeviceInfo* device) const { return find_power_source(device, folder.path, {}); }
};

TEST(Power, NoSource) {
    FakeSystem system;
    const DeviceInfo gpu = device_named("GPU", "0000:05:00.0", DeviceType::discrete);
    EXPECT_FALSE(system.source(nullptr));
    EXPECT_FALSE(system.source(&gpu));
    EXPECT_FALSE(find_nvml_gpu(gpu, "libno_such_library.so"));
    PowerMeter meter(system.source(&gpu));
    meter.start();
    EXPECT_FALSE(meter.stop().has_value());
}

TEST(Power, ProcessorPackagesAreSummedAndWrapAround) {
    FakeSystem system;
    system.add_zone("intel-rapl:0", "package-0", "99000000");
    system.add_zone("intel-rapl:1", "package-1", "5000000");
    system.add_zone("intel-rapl:0:0", "core", "70000000");  // part of package 0
    system.add_zone("intel-rapl:2", "psys", "1000000");     // all of the above
    const PowerSource source = system.source(nullptr);
    ASSERT_TRUE(source.joules);
    EXPECT_EQ(source.name, "RAPL, processor");
    EXPECT_DOUBLE_EQ(source.joules(), 104);
    write_file(system.zone("intel-rapl:0") / "energy_uj", "2000000");  // 3 J later: the range is 100 J
    write_file(system.zone("intel-rapl:1") / "energy_uj", "6000000");
    EXPECT_DOUBLE_EQ(source.joules(), 108);
    write_file(system.zone("intel-rapl:0") / "energy_uj", "1000000");
    EXPECT_DOUBLE_EQ(source.joules(), 207);
    fs::remove(system.zone("intel-rapl:1") / "energy_uj");
    EXPECT_TRUE(std::isnan(source.joules()));
    EXPECT_FALSE(system.source(nullptr)) << "an unreadable package must not be omitted from the sum";
}

TEST(Power, SoftwareAndIntegratedDevicesUseTheProcessor) {
    FakeSystem system;
    system.add_zone("intel-rapl:0", "package-0", "1000000");
    const DeviceInfo software = device_named("llvmpipe", "", DeviceType::software);
    const DeviceInfo integrated = device_named("iGPU", "0000:00:02.0", DeviceType::integrated);
    const DeviceInfo discrete = device_named("GPU", "0000:05:00.0", DeviceType::discrete);
    EXPECT_EQ(system.source(&software).name, "RAPL, processor");
    EXPECT_EQ(system.source(&integrated).name, "RAPL, processor");
    EXPECT_FALSE(system.source(&discrete));
    system.add_card(0, "0000:00:02.0", "power1_input", "25000000");
    EXPECT_EQ(system.source(&integrated).name, "hwmon, power1_input");
    EXPECT_EQ(system.source(&software).name, "RAPL, processor");
}

TEST(Power, SensorsAreFoundByPciAddress) {
    FakeSystem system;
    system.add_card(0, "0000:05:00.0", "power1_average", "150000000");
    const DeviceInfo at5 = device_named("GPU", "0000:05:00.0", DeviceType::discrete);
    const DeviceInfo at6 = device_named("GPU", "0000:06:00.0", DeviceType::discrete);
    const DeviceInfo unknown = device_named("GPU", "", DeviceType::discrete);
    EXPECT_DOUBLE_EQ(system.source(&at5).watts(), 150);
    EXPECT_FALSE(system.source(&at6)) << "sensor of another card";
    EXPECT_DOUBLE_EQ(system.source(&unknown).watts(), 150) << "the only card";
    system.add_card(1, "0000:06:00.0", "energy1_input", "7000000");
    EXPECT_DOUBLE_EQ(system.source(&at5).watts(), 150);
    EXPECT_DOUBLE_EQ(system.source(&at6).joules(), 7);
    EXPECT_EQ(system.source(&at6).name, "hwmon, energy1_input");
    EXPECT_FALSE(system.source(&unknown)) << "ambiguous: two cards";
}

TEST(Power, NvmlFindsTheDevice) {
    const DeviceInfo by_pci = device_named("some name", "0000:03:00.0", DeviceType::discrete);
    const DeviceInfo by_name = device_named("Fake A", "", DeviceType::discrete);
    const DeviceInfo wrong_pci = device_named("Fake A", "0000:7f:00.0", DeviceType::discrete);
    const DeviceInfo one_of_two = device_named("Fake B", "", DeviceType::discrete);
    const DeviceInfo other = device_named("Radeon", "0000:7f:00.0", DeviceType::discrete);
    NvmlGpu gpu = find_nvml_gpu(by_pci, FAKE_NVML);
    ASSERT_TRUE(gpu);
    EXPECT_DOUBLE_EQ(gpu.watts(), 300);
    const double before = gpu.joules();
    EXPECT_DOUBLE_EQ(gpu.joules() - before, 1000);
    FakeSystem system;
    EXPECT_EQ(find_power_source(&by_pci, system.folder.path, gpu).name, "NVML, energy counter");
    const DeviceInfo software = device_named("llvmpipe", "", DeviceType::software);
    EXPECT_FALSE(find_power_source(&software, system.folder.path, gpu)) << "a software device has no GPU";

    gpu = find_nvml_gpu(by_name, FAKE_NVML);
    ASSERT_TRUE(gpu);
    EXPECT_DOUBLE_EQ(gpu.watts(), 100);
    EXPECT_FALSE(gpu.joules) << "this GPU has no counter";
    EXPECT_EQ(find_power_source(&by_name, system.folder.path, gpu).name, "NVML, sampled");
    EXPECT_TRUE(find_nvml_gpu(wrong_pci, FAKE_NVML)) << "found by name";
    EXPECT_FALSE(find_nvml_gpu(one_of_two, FAKE_NVML));
    EXPECT_FALSE(find_nvml_gpu(other, FAKE_NVML));
}

TEST(Power, NvmlIsShutDown) {
    void* library = open_library(FAKE_NVML.c_str());
    ASSERT_TRUE(library);
    const auto users = reinterpret_cast<int (*)()>(find_in_library(library, "fake_nvml_users"));
    EXPECT_EQ(users(), 0);
    {
        const NvmlGpu gpu = find_nvml_gpu(device_named("Fake A", "", DeviceType::discrete), FAKE_NVML);
        EXPECT_EQ(users(), 1);
    }
    EXPECT_EQ(users(), 0);
}

static void sleep_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// A constant power is reported exactly, however the threads are scheduled.
TEST(Power, MeterIntegratesSamples) {
    PowerMeter meter({"constant", nullptr, [] { return 50.0; }});
    meter.start();
    sleep_seconds(0.15);
    const std::optional<Energy> energy = meter.stop();
    ASSERT_TRUE(energy.has_value());
    EXPECT_NEAR(energy->watts(), 50, 1e-6);
    EXPECT_GE(energy->seconds, 0.1);
    EXPECT_FALSE(meter.stop().has_value()) << "already stopped";
}

// The counter advances by 7 J per reading.
TEST(Power, MeterReadsCountersAndCanBeUsedAgain) {
    std::atomic<int> readings{0};
    PowerMeter meter({"counter", [&] { return 1000 + 7.0 * readings++; }, nullptr});
    for (int use = 0; use < 2; use++) {
        const int before = readings;
        meter.start();
        sleep_seconds(0.15);
        const std::optional<Energy> energy = meter.stop();
        ASSERT_TRUE(energy.has_value());
        EXPECT_DOUBLE_EQ(energy->joules, 7.0 * (readings - before - 1));
        EXPECT_DOUBLE_EQ(energy->watts() * energy->seconds, energy->joules);
    }
}

TEST(Power, NoEnergyIfReadingFailsOrTheCounterStandsStill) {
    for (const PowerSource& source : {PowerSource{"fails", nullptr, [] { return NAN; }},
                                      PowerSource{"fails", [] { return NAN; }, nullptr},
                                      PowerSource{"stands still", [] { return 5.0; }, nullptr}}) {
        PowerMeter meter(source);
        meter.start();
        sleep_seconds(0.05);
        EXPECT_FALSE(meter.stop().has_value()) << source.name;
    }
}
