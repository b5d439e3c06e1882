// LaunchPad's pipelines: built once per kernel and specialization constants, and cached on disk.
#include <omp.h>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <semaphore>

#include "llmc/base/os.h"
#include "llmc/base/paths.h"
#include "llmc/launchpad/device_cache.h"
#include "llmc/launchpad/internal.h"
#include "llmc/launchpad/shaders.h"
#include "llmc/launchpad/without_int64.h"

static std::filesystem::path cache_directory(const LaunchPadOptions& options) {
    if (!options.cache_directory.empty()) return options.cache_directory;
    const std::string cache = cache_folder();
    return cache.empty() ? std::filesystem::path() : std::filesystem::path(cache) / "vulkan_gpt2";
}

// The later pieces of a dispatch have a base. NVIDIA's driver 580 knows pipelines by their code alone: if one
// without this flag has been built, or is in the cache, a later one with it ignores the base, too.
static const VkPipelineCreateFlags pipeline_flags = VK_PIPELINE_CREATE_DISPATCH_BASE;

// Cached pipelines are valid for one device, driver version and set of flags, which the file name tells
// apart.
static std::string cache_file_name(const VkPhysicalDeviceProperties& device) {
    std::string name;
    for (uint8_t byte : device.pipelineCacheUUID) name += format_string("%02x", byte);
    return format_string("%s-%08x-%x.pipelines", name.c_str(), device.driverVersion, pipeline_flags);
}

std::string cache_file_of(const LaunchPadOptions& options, const VkPhysicalDeviceProperties& device) {
    const std::filesystem::path directory = cache_directory(options);
    if (options.cache_directory == "none" || directory.empty()) return "";
    return generic_text(directory / cache_file_name(device));
}

// A cache with what is stored.
static VkPipelineCache read_pipeline_cache(const LaunchPadState& s) {
    VkPhysicalDeviceProperties2 device = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    s.vk.vkGetPhysicalDeviceProperties2(s.physical, &device);
    const std::string bytes = pipelines_in(read_cache_file(s.cache_file), device.properties);
    VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    info.initialDataSize = bytes.size();
    info.pInitialData = bytes.data();
    VkPipelineCache cache;
    VK_CHECK(s.vk.vkCreatePipelineCache(s.device, &info, nullptr, &cache));
    return cache;
}

void create_pipeline_cache(LaunchPadState& s) {
    VkPhysicalDeviceProperties2 device = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    s.vk.vkGetPhysicalDeviceProperties2(s.physical, &device);
    s.cache_file = cache_file_of(s.options, device.properties);
    s.cache = read_pipeline_cache(s);
}

void add_stored_pipelines(LaunchPadState& s) {
    const VkPipelineCache stored = read_pipeline_cache(s);
    s.vk.vkMergePipelineCaches(s.device, s.cache, 1, &stored);  // best effort: they are built again
    s.vk.vkDestroyPipelineCache(s.device, stored, nullptr);
}

// Best effort: without the cache the next start only takes longer.
void save_pipeline_cache(LaunchPadState& s) noexcept {
    if (s.cache_file.empty()) return;
    try {
        add_stored_pipelines(s);  // which processes that ran at the same time have built
        size_t bytes = 0;
        if (s.vk.vkGetPipelineCacheData(s.device, s.cache, &bytes, nullptr) != VK_SUCCESS) return;
        std::string data(bytes, '\0');
        if (s.vk.vkGetPipelineCacheData(s.device, s.cache, &bytes, data.data()) != VK_SUCCESS) return;
        data.resize(bytes);
        write_cache_file(s.cache_file, seal(data));
    } catch (const std::exception&) {  // out of memory
    }
}

static std::vector<const EmbeddedShader*>& shader_tables() {
    static std::vector<const EmbeddedShader*> tables = {embedded_shaders};
    return tables;
}

void add_shaders(const EmbeddedShader* table) {
    std::vector<const EmbeddedShader*>& tables = shader_tables();
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
}

static const EmbeddedShader& find_shader(const std::string& kernel) {
    for (const EmbeddedShader* shader : shader_tables())
        for (; shader->name; shader++)
            if (kernel == shader->name) return *shader;
    fail("no kernel is named '%s': see shaders/", kernel.c_str());
}

VkShaderModule find_module(LaunchPadState& s, const std::string& kernel) {
    if (auto found = s.modules.find(kernel); found != s.modules.end()) return found->second;
    const EmbeddedShader& shader = find_shader(kernel);
    std::span<const uint32_t> code(shader.code, shader.end);
    if (!s.has_16bit_storage && !kernel.ends_with("_fp32"))
        fail("%s lacks storageBuffer16BitAccess, which bf16 and fp16 need: use fp32", s.info.name.c_str());
    std::vector<uint32_t> rewritten;
    if (!s.has_int64) code = rewritten = without_int64(code);
    VkShaderModuleCreateInfo info = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
    info.codeSize = code.size_bytes();
    info.pCode = code.data();
    VkShaderModule module;
    VK_CHECK(s.vk.vkCreateShaderModule(s.device, &info, nullptr, &module));
    return s.modules[kernel] = module;
}

VkPipeline build_pipeline(LaunchPadState& s, const std::string& kernel, std::span<const uint32_t> constants,
                          VkPipelineCache cache) {
    const uint32_t block = constants.empty() ? 0 : constants[0];
    if (!block || block > s.limits.max_block)
        fail("%s: a block of %u invocations is not possible on %s (1 to %u)", kernel.c_str(), block,
             s.info.name.c_str(), s.limits.max_block);
    std::vector<VkSpecializationMapEntry> entries;
    for (uint32_t i = 0; i < constants.size(); i++) entries.push_back({i, i * 4, 4});
    VkSpecializationInfo specialization = {uint32_t(entries.size()), entries.data(), constants.size() * 4,
                                           constants.data()};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
        VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
    subgroup.requiredSubgroupSize = s.limits.subgroup_size;
    VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.flags = pipeline_flags;
    if (s.capture_statistics) info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    if (s.pin_subgroup) info.stage.pNext = &subgroup;
    if (block % s.max_subgroup == 0)
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = find_module(s, kernel);
    info.stage.pName = "main";
    info.stage.pSpecializationInfo = &specialization;
    info.layout = s.layout;
    VkPipeline pipeline = VK_NULL_HANDLE;
    VK_CHECK(s.vk.vkCreateComputePipelines(s.device, cache, 1, &info, nullptr, &pipeline));
    if (!pipeline) fail("%s: the driver of %s built no pipeline", kernel.c_str(), s.info.name.c_str());
    return pipeline;
}

std::string pipeline_key(std::string_view kernel, std::span<const uint32_t> constants) {
    std::string key(kernel);
    return key.append(1, '\0').append(reinterpret_cast<const char*>(constants.data()),
                                      constants.size_bytes());
}

Pipeline& find_pipeline(LaunchPadState& s, std::string_view kernel, std::span<const uint32_t> constants) {
    const std::string key = pipeline_key(kernel, constants);
    auto found = s.pipelines.find(key);
    if (found == s.pipelines.end()) {
        const std::string name(kernel);
        Pipeline built = {.kernel = name, .handle = build_pipeline(s, name, constants, s.cache)};
        found = s.pipelines.emplace(key, std::move(built)).first;
    }
    return found->second;  // stays where it is: an unordered_map does not move its elements
}

struct PipelineBuild {
    decltype(LaunchPadState::uncompiled)::node_type queued;
    std::string kernel;
    std::future<VkPipeline> handle;
};

// Those that are queued and whose modules the driver takes: threads only look these up. Those with the most
// code, which take longest, come first.
static std::vector<PipelineBuild> take_queued(LaunchPadState& s, std::exception_ptr& error) {
    std::vector<PipelineBuild> builds;
    while (!s.uncompiled.empty()) try {
            auto queued = s.uncompiled.extract(s.uncompiled.begin());  // also if it cannot be built
            const std::string kernel = queued.key().substr(0, queued.key().find('\0'));
            find_module(s, kernel);
            if (!s.pipelines.contains(queued.key())) builds.push_back({std::move(queued), kernel, {}});
        } catch (...) {
            error = std::current_exception();
        }
    std::ranges::stable_sort(builds, std::greater(), [](const PipelineBuild& build) {
        const EmbeddedShader& shader = find_shader(build.kernel);
        return shader.end - shader.code;
    });
    return builds;
}

struct ReleaseAtEnd {
    std::counting_semaphore<>& semaphore;
    ~ReleaseAtEnd() { semaphore.release(); }
};

// Side by side, since drivers build a pipeline on one core; twice as many as there are cores, since some wait
// for each other in the driver. Throws what the last one throws that cannot be built, after the others are.
void LaunchPad::compile(const ProgressCallback& progress) {
    LaunchPadState& s = *state;
    std::counting_semaphore<> idle_threads(std::clamp(2 * omp_get_max_threads(), 2, 32));
    std::exception_ptr error;
    std::vector<PipelineBuild> builds = take_queued(s, error);  // which waits for its threads at its end
    for (size_t i = 0; i < builds.size(); i++) {
        idle_threads.acquire();
        if (progress) progress(int(i), int(builds.size()));
        builds[i].handle = std::async(std::launch::async, [&s, &idle_threads, &build = builds[i]] {
            const ReleaseAtEnd release = {idle_threads};
            return build_pipeline(s, build.kernel, build.queued.mapped(), s.cache);
        });
    }
    for (PipelineBuild& build : builds) try {
            s.pipelines.emplace(build.queued.key(),
                                Pipeline{.kernel = build.kernel, .handle = build.handle.get()});
        } catch (...) {
            error = std::current_exception();
        }
    if (error) std::rethrow_exception(error);
}
