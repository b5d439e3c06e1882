// Tests of device selection, of the errors when memory, a driver or the Vulkan loader is missing, and of the
// validation layer, on which all GPU tests rely.
#include <algorithm>
#include <fstream>

#include "llmc/launchpad/internal.h"
#include "llmc/launchpad/open_device.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static bool validation_wanted() {
    const char* validation = getenv("LAUNCHPAD_VALIDATION");
    return !validation || strcmp(validation, "0") != 0;
}

TEST(ChooseDevice, Requests) {
    if (test_device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    const std::vector<DeviceInfo> devices = list_devices();
    ASSERT_FALSE(devices.empty());
    for (size_t i = 0; i < devices.size(); i++) {
        EXPECT_EQ(devices[i].index, int(i));
        EXPECT_GT(devices[i].memory_bytes, 0u);
    }
    EXPECT_FALSE(choose_device("cpu").device);
    const bool hardware = std::any_of(devices.begin(), devices.end(), [](const DeviceInfo& device) {
        return device.type != DeviceType::software && device.missing.empty();
    });
    const DeviceChoice automatic = choose_device("auto");
    EXPECT_EQ(automatic.device.has_value(), hardware);
    EXPECT_FALSE(automatic.reason.empty());
    if (hardware) {
        EXPECT_NE(automatic.device->type, DeviceType::software);
        EXPECT_EQ(choose_device("gpu").device->index, automatic.device->index);
    } else {
        expect_error(devices[0].name, [] { choose_device("gpu"); });  // lists the devices
    }
    if (!devices[0].missing.empty()) return;
    EXPECT_EQ(choose_device("0").device->index, 0);
    std::string name = devices[0].name;
    EXPECT_EQ(choose_device(name).device->index, 0);
    for (char& c : name) c = char(toupper(c));
    EXPECT_EQ(choose_device(name.substr(0, 5)).device->name.substr(0, 3), devices[0].name.substr(0, 3));
    for (const char* nonsense : {"no such device", "", "9999", "99999999999999999999", "-1", "0x0"}) {
        SCOPED_TRACE(nonsense);
        expect_error("no device", [&] { choose_device(nonsense); });
        expect_error(devices[0].name, [&] { choose_device(nonsense); });
    }
}

TEST(ChooseDevice, LaunchPadRefusesTheCpu) {
    if (test_device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPadOptions options;
    options.device = "cpu";
    expect_error("needs a Vulkan device", [&] { LaunchPad pad(options); });
}

TEST(Errors, OutOfMemory) {
    for (const auto& pad : test_pads()) {
        SCOPED_TRACE(memory_mode_name(pad->memory_mode()));
        for (Placement placement : {Placement::device, Placement::host})
            for (size_t bytes : {size_t(1) << 40, SIZE_MAX / 2, SIZE_MAX}) {
                const std::string message = message_of([&] { pad->allocate(bytes, "a giant", placement); });
                const bool on_host = pad->available_bytes(Placement::host) && placement == Placement::host &&
                                     pad->memory_mode() == MemoryMode::staged;
                const char* start = on_host ? "out of host memory on " : "out of device memory on ";
                EXPECT_EQ(message.find(start), 0u) << message;
                EXPECT_TRUE(!on_host || message.find("--offload none") != std::string::npos) << message;
                EXPECT_TRUE(contains(message, pad->device().name));
                EXPECT_TRUE(contains(message, "a giant"));
                const bool names_size = message.find("1048576.0 MiB asked") != std::string::npos;
                EXPECT_TRUE(names_size || bytes != size_t(1) << 40) << message;
            }
        pad->free(pad->allocate(1000, "small"));  // the launchpad remains usable
    }
}

// A GPU with 8 GiB of its own, a part of which the host sees, beside memory of the host: write-combined, and
// cached.
static void add_memory(LaunchPadState& s) {
    const VkMemoryPropertyFlags near = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                          VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    s.memory.memoryHeapCount = 2;
    s.memory.memoryHeaps[0] = {VkDeviceSize(8) << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    s.memory.memoryHeaps[1] = {VkDeviceSize(4) << 30, 0};
    s.memory.memoryTypeCount = 4;
    s.memory.memoryTypes[0] = {near, 0};
    s.memory.memoryTypes[1] = {visible, 1};
    s.memory.memoryTypes[2] = {visible | cached, 1};
    s.memory.memoryTypes[3] = {near | visible, 0};
}

TEST(MemoryTypes, OfAGpuWithItsOwnMemory) {
    LaunchPadState s;
    add_memory(s);
    using Types = std::vector<uint32_t>;
    EXPECT_EQ(memory_types_for(s, ~0u, BufferKind::device_only), Types({0, 3}));
    EXPECT_EQ(memory_types_for(s, ~0u, BufferKind::host_visible), Types({3, 2, 1}));
    EXPECT_EQ(memory_types_for(s, ~0u, BufferKind::readback), Types({2, 1, 3}));
    EXPECT_EQ(memory_types_for(s, ~0u, BufferKind::host), Types({2, 1}));  // never the GPU's
    EXPECT_EQ(memory_types_for(s, 1 << 3, BufferKind::host), Types({3}));  // there is no other
}

// The limit holds for everything together, and what is freed can be allocated again.
TEST(Errors, LimitOfDeviceMemory) {
    for (const auto& unlimited : test_pads()) {
        SCOPED_TRACE(memory_mode_name(unlimited->memory_mode()));
        const size_t part = 16 << 20, limit = 64 * part;
        LaunchPadOptions options = test_options();
        options.memory = unlimited->memory_mode();
        options.device_memory = limit;
        LaunchPad pad(options);
        EXPECT_LE(pad.available_bytes(), limit);
        // of a GPU, the driver itself takes some hundred MiB
        const size_t most = pad.available_bytes() / part * part;
        ASSERT_GT(most, 4 * part);
        std::vector<void*> all;
        for (size_t taken = 0; taken < most - 2 * part; taken += part)
            all.push_back(pad.allocate(part, "a part"));
        EXPECT_LE(pad.available_bytes(), 2 * part);
        EXPECT_GT(unlimited->available_bytes(), limit);
        const std::string message = message_of([&] { pad.allocate(3 * part, "one too many"); });
        for (const char* words :
             {"out of device memory", "48.0 MiB asked for 'one too many'", "the limit of 1024.0 MiB"})
            EXPECT_TRUE(contains(message, words));
        for (void* p : all) pad.free(p);
        pad.free(pad.allocate(3 * part, "one that fits"));
    }
}

// --- child processes: gtest restarts the program for each, so that Vulkan is not loaded yet ---

// Prints the error of list_devices() and the device that "auto" chooses. Exits with status 3.
[[noreturn]] static void list_and_exit() {
    fprintf(stderr, "list: %s\n", message_of([] { list_devices(); }).c_str());
    const DeviceChoice choice = choose_device("auto");
    fprintf(stderr, "auto: %s\n", choice.device ? choice.device->name.c_str() : "the CPU");
    _Exit(3);
}

class DeviceDeathTest : public testing::Test {
   protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DeviceDeathTest, NoDriver) {
    if (test_device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    EXPECT_EXIT(
        {
            setenv("VK_DRIVER_FILES", "/nonexistent", 1);
            setenv("VK_ICD_FILENAMES", "/nonexistent", 1);
            list_and_exit();
        },
        testing::ExitedWithCode(3), "list: the Vulkan loader found no driver.*\nauto: the CPU");
}

// Simulates a machine without a Vulkan loader: the dynamic linker finds an invalid library first.
TEST_F(DeviceDeathTest, NoLoader) {
    const TemporaryFolder directory;
    for (const char* name : {"libvulkan.so.1", "libvulkan.so"})
        std::ofstream(directory / name) << "not a library";
    const std::string before = getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "";
    setenv("LD_LIBRARY_PATH", (directory.path + ":" + before).c_str(), 1);  // read when the child starts
    EXPECT_EXIT(list_and_exit(), testing::ExitedWithCode(3),
                "list: no Vulkan loader on this machine.*\nauto: the CPU");
    setenv("LD_LIBRARY_PATH", before.c_str(), 1);
}

// A device under the validation layer, opened by Vulkan calls: the launchpad offers no way to make a mistake.
struct RawDevice {
    Vulkan vk = open_vulkan(true);
    VkDevice device = VK_NULL_HANDLE;
    RawDevice() {
        const float priority = 1;
        VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
        const VkPhysicalDevice physical = physical_devices(vk).at(0).handle;
        DeviceFeatures have, features;
        vk.vkGetPhysicalDeviceFeatures2(physical, &have.features2);
        features.request(have);
        VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features.features2};
        info.queueCreateInfoCount = 1;
        info.pQueueCreateInfos = &queue;
        VK_CHECK(vk.vkCreateDevice(physical, &info, nullptr, &device));
        load_device_functions(vk, device);
    }
    VkBuffer buffer(VkDeviceSize bytes) {
        VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
        info.size = bytes;
        info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        VkBuffer made = VK_NULL_HANDLE;
        VK_CHECK(vk.vkCreateBuffer(device, &info, nullptr, &made));
        if (!bytes) return made;
        VkMemoryRequirements needs;
        vk.vkGetBufferMemoryRequirements(device, made, &needs);
        VkMemoryAllocateInfo memory_info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
        memory_info.allocationSize = needs.size;
        while (!(needs.memoryTypeBits >> memory_info.memoryTypeIndex & 1)) memory_info.memoryTypeIndex++;
        VkDeviceMemory memory = VK_NULL_HANDLE;
        VK_CHECK(vk.vkAllocateMemory(device, &memory_info, nullptr, &memory));
        VK_CHECK(vk.vkBindBufferMemory(device, made, memory, 0));
        return made;
    }
    VkCommandBuffer commands() {
        VkCommandPoolCreateInfo pool_info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
        VkCommandPool pool = VK_NULL_HANDLE;
        VK_CHECK(vk.vkCreateCommandPool(device, &pool_info, nullptr, &pool));
        VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
        info.commandPool = pool;
        info.commandBufferCount = 1;
        VkCommandBuffer made = VK_NULL_HANDLE;
        VK_CHECK(vk.vkAllocateCommandBuffers(device, &info, &made));
        VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
        VK_CHECK(vk.vkBeginCommandBuffer(made, &begin));
        return made;
    }
};

// Exits with status 0 if the validation layer has printed a message since `before`, else with 1.
[[noreturn]] static void exit_by_messages(int before) { _Exit(validation_message_count() > before ? 0 : 1); }

[[noreturn]] static void make_empty_buffer() {
    RawDevice raw;
    const int before = validation_message_count();
    raw.buffer(0);
    exit_by_messages(before);
}

[[noreturn]] static void read_without_a_barrier() {
    RawDevice raw;
    const VkBuffer a = raw.buffer(256), b = raw.buffer(256);
    const VkCommandBuffer commands = raw.commands();
    const int before = validation_message_count();
    raw.vk.vkCmdFillBuffer(commands, a, 0, 256, 1);
    const VkBufferCopy region = {0, 0, 256};
    raw.vk.vkCmdCopyBuffer(commands, a, b, 1, &region);
    exit_by_messages(before);
}

TEST_F(DeviceDeathTest, ValidationListens) {
    if (test_device() == "none" || !validation_wanted())
        GTEST_SKIP() << "needs a device and the validation layer";
    EXPECT_EXIT(make_empty_buffer(), testing::ExitedWithCode(0), "validation: .*VkBufferCreateInfo-size");
}

TEST_F(DeviceDeathTest, SynchronizationValidationListens) {
    if (test_device() == "none" || !validation_wanted())
        GTEST_SKIP() << "needs a device and the validation layer";
    EXPECT_EXIT(read_without_a_barrier(), testing::ExitedWithCode(0), "validation: .*READ.AFTER.WRITE");
}

TEST(OpenDevice, WithoutHardwareIsRefused) {
    if (test_device() == "none") GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    setenv("LAUNCHPAD_WITHOUT_DEVICE", "1", 1);
    for (const std::string& device : {std::string("0"), std::string("gpu"), list_devices()[0].name})
        expect_error("LAUNCHPAD_WITHOUT_DEVICE is set", [&] { open_device(device); });
    EXPECT_FALSE(open_device("cpu"));
    unsetenv("LAUNCHPAD_WITHOUT_DEVICE");
}
