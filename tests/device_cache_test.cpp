// Tests of the cache files of a device: their contents are read as written. A file that is damaged,
// truncated, of an earlier format or of another device counts as missing.
#include "llmc/launchpad/device_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/run_program.h"

static VkPhysicalDeviceProperties some_device() {
    VkPhysicalDeviceProperties device = {};
    device.vendorID = 0x10de;
    device.deviceID = 0x2335;
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) device.pipelineCacheUUID[i] = uint8_t(3 * i);
    return device;
}

// Pipeline cache data that begins with the device's header, as a driver writes it.
static std::string driver_data(const VkPhysicalDeviceProperties& device) {
    uint32_t numbers[4] = {32, VK_PIPELINE_CACHE_HEADER_VERSION_ONE, device.vendorID, device.deviceID};
    std::string data(reinterpret_cast<char*>(numbers), sizeof numbers);
    data.append(reinterpret_cast<const char*>(device.pipelineCacheUUID), VK_UUID_SIZE);
    for (int i = 0; i < 100; i++) data += char(i * 37);
    return data;
}

TEST(DeviceCache, PipelinesAreReadAsWritten) {
    const std::string data = driver_data(some_device());
    EXPECT_EQ(pipelines_in(seal(data), some_device()), data);
    EXPECT_EQ(pipelines_in(seal(data.substr(0, 32)), some_device()), data.substr(0, 32));
}

TEST(DeviceCache, DamagedPipelinesAreIgnored) {
    const std::string data = driver_data(some_device()), file = seal(data);
    for (size_t length = 0; length < file.size(); length++)
        EXPECT_EQ(pipelines_in(file.substr(0, length), some_device()), "") << length;
    EXPECT_EQ(pipelines_in(file + "x", some_device()), "");
    EXPECT_EQ(pipelines_in(data, some_device()), "");
    EXPECT_EQ(pipelines_in(std::string(8, '\x11') + data, some_device()), "");  // an 8-byte checksum
    for (size_t i = 0; i < file.size(); i++) {
        std::string damaged = file;
        damaged[i] = char(damaged[i] ^ 0x10);
        EXPECT_EQ(pipelines_in(damaged, some_device()), "") << i;
    }
}

TEST(DeviceCache, PipelinesOfOtherDevicesAreIgnored) {
    const VkPhysicalDeviceProperties device = some_device();
    VkPhysicalDeviceProperties others[] = {device, device, device};
    others[0].vendorID++;
    others[1].deviceID++;
    others[2].pipelineCacheUUID[VK_UUID_SIZE - 1]++;
    for (const VkPhysicalDeviceProperties& other : others)
        EXPECT_EQ(pipelines_in(seal(driver_data(device)), other), "");
    for (size_t at : {0, 4}) {  // header length, header version
        std::string data = driver_data(device);
        data[at] = '\x7f';
        EXPECT_EQ(pipelines_in(seal(data), device), "");
    }
    EXPECT_EQ(pipelines_in(seal(driver_data(device).substr(0, 31)), device), "");
    EXPECT_EQ(pipelines_in(seal(""), device), "");
}

TEST(DeviceCache, MeasurementsAreReadAsWritten) {
    for (const Measured& measured :
         {Measured{}, Measured{{"a", 0}},
          Measured{{"matmul5_nt_bf16/64x768x768/epilogue0", 256}, {"b", -2147483647}}})
        EXPECT_EQ(measured_in(measured_file(measured)), measured);
    EXPECT_EQ(measured_file({{"b", 2}, {"a", 1}}), seal("a 1\nb 2\n"));
}

TEST(DeviceCache, DamagedMeasurementsAreIgnored) {
    const std::string file = measured_file({{"a", 64}, {"b", 256}});
    for (size_t length = 0; length < file.size(); length++)
        EXPECT_TRUE(measured_in(file.substr(0, length)).empty()) << length;
    EXPECT_TRUE(measured_in("a 64\nb 256\n").empty());  // the format of earlier versions
    for (const char* line :
         {"a", "a ", " 1", "a 1 ", "a  1", "a 1x", "a 99999999999", "a b 1", "", "\xff\xfe"})
        EXPECT_TRUE(measured_in(seal("c 3\n" + std::string(line) + "\n")).empty()) << line;
    EXPECT_TRUE(measured_in(seal("a 1\nb 2")).empty());
}

TEST(DeviceCache, UnreadableFilesCountAsMissing) {
    TemporaryFolder folder;
    EXPECT_EQ(read_cache_file(folder / "missing"), "");
    EXPECT_EQ(read_cache_file(folder.path), "");
    std::ofstream(folder / "there") << "1234";
    EXPECT_EQ(read_cache_file(folder / "there"), "1234");
}
