// LaunchPad's commands: command buffers, barriers, dispatches, submission, recording and replay, GPU time.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "llmc/base/ceil_div.h"
#include "llmc/base/clock.h"
#include "llmc/launchpad/internal.h"

static const uint32_t TIMED_DISPATCHES = 1024;  // in one command buffer; more go to the next one

static void create_queries(LaunchPadState& s, Commands& c, uint32_t dispatches) {
    if (!s.timestamp_mask) fail("%s has no timestamps", s.info.name.c_str());
    VkQueryPoolCreateInfo info = {VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = c.query_capacity = 2 * dispatches;
    VkQueryPool queries;
    VK_CHECK(s.vk.vkCreateQueryPool(s.device, &info, nullptr, &queries));
    c.queries = queries;
}

VkCommandBuffer allocate_command_buffer(LaunchPadState& s, VkCommandPool pool) {
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VkCommandBuffer commands;
    VK_CHECK(s.vk.vkAllocateCommandBuffers(s.device, &info, &commands));
    return commands;
}

static Commands create_commands(LaunchPadState& s) {
    Commands c;
    c.handle = allocate_command_buffer(s, s.compute.pool);
    if (s.options.timestamps) create_queries(s, c, TIMED_DISPATCHES);
    return c;
}

void destroy_commands(LaunchPadState& s, Commands& c) {
    if (c.queries) s.vk.vkDestroyQueryPool(s.device, c.queries, nullptr);
    if (c.handle) s.vk.vkFreeCommandBuffers(s.device, s.compute.pool, 1, &c.handle);
    c = Commands();
}

void destroy_recording(LaunchPadState& s, Recording& recording) {
    for (Recording::Part& part : recording.parts) {
        destroy_commands(s, part.commands);
        if (part.copies) s.vk.vkFreeCommandBuffers(s.device, s.copies.pool, 1, &part.copies);
    }
    recording.parts.clear();
}

static const VkPipelineStageFlags2 WORK =
    VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_TRANSFER_BIT;
static const Accesses WRITES = {WORK, VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT};
static const Accesses READS_AND_WRITES = {
    WORK, WRITES.access | VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_TRANSFER_READ_BIT};

void add_barrier(LaunchPadState& s, VkCommandBuffer commands, Accesses from, Accesses to) {
    VkMemoryBarrier2 barrier = {VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
    barrier.srcStageMask = from.stages;
    barrier.srcAccessMask = from.access;
    barrier.dstStageMask = to.stages;
    barrier.dstAccessMask = to.access;
    VkDependencyInfo info = {VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
    info.memoryBarrierCount = 1;
    info.pMemoryBarriers = &barrier;
    s.vk.vkCmdPipelineBarrier2(commands, &info);
}

void begin_command_buffer(LaunchPadState& s, VkCommandBuffer commands) {
    VkCommandBufferBeginInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    info.flags = s.building ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                            : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    VK_CHECK(s.vk.vkBeginCommandBuffer(commands, &info));
}

static void begin_commands(LaunchPadState& s, Commands& c) {
    begin_command_buffer(s, c.handle);
    if (c.queries) s.vk.vkCmdResetQueryPool(c.handle, c.queries, 0, c.query_capacity);
    c.timed.clear();
    c.expected = 0;
    add_barrier(s, c.handle, WRITES, READS_AND_WRITES);  // wait for what was submitted before
    s.bound = VK_NULL_HANDLE;
    s.dirty = false;
}

static void end_commands(LaunchPadState& s, Commands& c) {
    add_barrier(s, c.handle, WRITES, HOST_ACCESSES);
    VK_CHECK(s.vk.vkEndCommandBuffer(c.handle));
}

VkCommandBuffer open_commands(LaunchPadState& s) {
    if (!s.open.handle) {
        std::vector<Commands>& idle = s.compute.idle;
        if (idle.empty()) idle.push_back(create_commands(s));
        begin_commands(s, idle.back());
        s.open = std::move(idle.back());
        idle.pop_back();
        s.open.awaited_copies = std::exchange(s.awaited_copies, 0);
    }
    return s.open.handle;
}

static void execute(LaunchPadState& s, const Barrier&) {
    if (!s.dirty) return;
    add_barrier(s, open_commands(s), WRITES, READS_AND_WRITES);
    s.dirty = false;
}
static void execute(LaunchPadState& s, const AsyncCopies& copies) { start_copies(s, copies); }
static void execute(LaunchPadState& s, const FinishCopies&) { await_copies(s); }
static void execute_any(LaunchPadState& s, const Command& command) {
    std::visit([&s](const auto& c) { execute(s, c); }, command);
}

void give(LaunchPadState& s, Command command) {
    if (s.recording)
        s.recording->commands.push_back(std::move(command));
    else
        execute_any(s, command);
}

void memory_barrier(LaunchPadState& s) {
    release_held(s);
    s.started.clear();
    give(s, Barrier());
}

static VkSemaphoreSubmitInfo point_of(VkSemaphore timeline, uint64_t value) {
    VkSemaphoreSubmitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
    info.semaphore = timeline;
    info.value = value;
    info.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    return info;
}

Ticket submit(LaunchPadState& s, Queue& queue, VkCommandBuffer commands, const Queue& other, Ticket awaited) {
    VkCommandBufferSubmitInfo submitted = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
    submitted.commandBuffer = commands;
    const VkSemaphoreSubmitInfo wait = point_of(other.timeline, awaited);
    const VkSemaphoreSubmitInfo signal = point_of(queue.timeline, queue.last + 1);
    VkSubmitInfo2 info = {VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
    info.commandBufferInfoCount = commands ? 1 : 0;
    info.pCommandBufferInfos = &submitted;
    info.waitSemaphoreInfoCount = awaited ? 1 : 0;
    info.pWaitSemaphoreInfos = &wait;
    info.signalSemaphoreInfoCount = 1;
    info.pSignalSemaphoreInfos = &signal;
    const VkResult result = s.vk.vkQueueSubmit2(queue.handle, 1, &info, VK_NULL_HANDLE);
    if (is_out_of_memory(result)) fail_submission(s);
    check_vulkan(result, "vkQueueSubmit2");
    return ++queue.last;
}

static std::vector<uint64_t> read_queries(LaunchPadState& s, VkQueryPool queries, uint32_t count) {
    std::vector<uint64_t> ticks(count);
    if (count)
        VK_CHECK(s.vk.vkGetQueryPoolResults(s.device, queries, 0, count, count * sizeof(uint64_t),
                                            ticks.data(), sizeof(uint64_t),
                                            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    return ticks;
}

static double seconds_between(const LaunchPadState& s, uint64_t from, uint64_t to) {
    return double((to - from) & s.timestamp_mask) * s.timestamp_period;
}

// Adds the times of a finished command buffer to the table.
static void collect_times(LaunchPadState& s, const Commands& c) {
    const std::vector<uint64_t> ticks = read_queries(s, c.queries, uint32_t(2 * c.timed.size()));
    for (size_t i = 0; i < c.timed.size(); i++) {
        KernelTime& time = s.times[c.timed[i].pipeline->kernel];
        time.calls += c.timed[i].starts;
        time.work.bytes += c.timed[i].work.bytes;
        time.work.flops += c.timed[i].work.flops;
        time.seconds += seconds_between(s, ticks[2 * i], ticks[2 * i + 1]);
    }
}

void retire(LaunchPadState& s, Queue& queue) {
    uint64_t done = 0;
    VK_CHECK(s.vk.vkGetSemaphoreCounterValue(s.device, queue.timeline, &done));
    while (!queue.in_flight.empty() && queue.in_flight.front().ticket <= done) {
        collect_times(s, queue.in_flight.front());
        queue.idle.push_back(std::move(queue.in_flight.front()));
        queue.in_flight.pop_front();
    }
}

Ticket submit_open(LaunchPadState& s) {
    if (!s.open.handle) return s.compute.last;
    Commands commands = std::exchange(s.open, {});
    s.dirty = false;  // each command buffer begins with a barrier
    try {
        end_commands(s, commands);
        if (!s.building)
            commands.ticket = submit(s, s.compute, commands.handle, s.copies, commands.awaited_copies);
    } catch (...) {
        s.compute.idle.push_back(std::move(commands));
        throw;
    }
    if (s.building) {
        s.building->parts.push_back({.commands = std::move(commands)});
    } else {
        s.compute.in_flight.push_back(std::move(commands));
        retire(s, s.compute);
    }
    return s.compute.last;
}

void wait_for(LaunchPadState& s, Ticket ticket) {
    VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1;
    info.pSemaphores = &s.compute.timeline;
    info.pValues = &ticket;
    VK_CHECK(s.vk.vkWaitSemaphores(s.device, &info, UINT64_MAX));
    retire(s, s.compute);
}

void wait_until_idle(LaunchPadState& s) noexcept {
    if (s.without_device) return;
    VkResult result = s.vk.vkDeviceWaitIdle(s.device);
    // a lost device has nothing to wait for
    for (int i = 0; i < 3 && result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST; i++)
        result = s.vk.vkDeviceWaitIdle(s.device);
}

// Drops what was not submitted, and waits for the rest.
static void abandon(LaunchPadState& s) noexcept {
    s.postponed.clear();
    s.started.clear();
    s.held.clear();
    s.dirty = false;
    s.open_groups = 0;
    s.held_copies.clear();
    s.copy_destinations.clear();
    s.copying = false;
    s.awaited_copies = 0;
    if (s.recording) destroy_recording(s, *s.recording);
    s.recording.reset();
    destroy_commands(s, s.open);
    wait_until_idle(s);
}

static void throw_failure(LaunchPadState& s) {
    if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
}

// Lets nothing on the GPU use memory any more. Called by destructors: an error drops the commands that were
// not submitted, and the next command throws it.
void LaunchPad::settle() noexcept {
    LaunchPadState& s = *state;
    if (s.lost) return;
    try {
        commit(true);
    } catch (const DeviceLost&) {
        s.lost = true;
        s.failure = std::current_exception();
        abandon(s);
    } catch (...) {
        s.failure = std::current_exception();
        abandon(s);
    }
}

Ticket LaunchPad::commit(bool wait_for_it) {
    LaunchPadState& s = *state;
    throw_failure(s);
    if (s.recording) fail("commit cannot be recorded: end the recording first");
    if (s.dry) return s.compute.last;
    finish_pending();
    Ticket ticket = submit_open(s);
    if (s.awaited_copies)
        ticket = submit(s, s.compute, VK_NULL_HANDLE, s.copies, std::exchange(s.awaited_copies, 0));
    if (std::exchange(s.has_timed, false) || wait_for_it) wait_for(s, ticket);
    return ticket;
}

void LaunchPad::wait(Ticket ticket) {
    if (ticket > state->compute.last) fail("wait: nothing was committed under this ticket");
    wait_for(*state, ticket);
}

bool LaunchPad::is_done(Ticket ticket) const {
    uint64_t done = 0;
    VK_CHECK(state->vk.vkGetSemaphoreCounterValue(state->device, state->compute.timeline, &done));
    return ticket <= done;
}

void LaunchPad::begin_group() {
    LaunchPadState& s = *state;
    if (s.dry) return;
    if (!s.open_groups) barrier();
    s.open_groups++;
}

void LaunchPad::end_group() noexcept {
    LaunchPadState& s = *state;
    if (s.dry || !s.open_groups) return;  // an error closes all groups
    try {
        if (!--s.open_groups) release_held(s);
    } catch (...) {
        s.failure = std::current_exception();
        s.held.clear();
    }
}

void LaunchPad::barrier() {
    if (state->dry) return;
    memory_barrier(*state);
    append_postponed();
}

// Folds a long one-dimensional grid into two dimensions; group_index() of util.glsl unfolds it. It can be
// divided between rows, so short ones are tried first.
static Groups fold(const LaunchPadState& s, std::string_view kernel, Groups g) {
    for (const uint32_t width : {1024u, s.max_groups[0]})
        if (g.y == 1 && g.z == 1 && g.x > s.max_groups[0] && ceil_div(g.x, width) <= s.max_groups[1])
            g = {width, uint32_t(ceil_div(g.x, width))};
    if (g.x > s.max_groups[0] || g.y > s.max_groups[1] || g.z > s.max_groups[2])
        fail("%.*s: a grid of %llu x %u x %u workgroups is more than %s takes", int(kernel.size()),
             kernel.data(), static_cast<unsigned long long>(g.x), g.y, g.z, s.info.name.c_str());
    return g;
}

static void write_timestamp(LaunchPadState& s, Commands& c, uint32_t query) {
    s.vk.vkCmdWriteTimestamp2(c.handle, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, c.queries, query);
}

void append(LaunchPadState& s, const Dispatch& d, uint64_t first, uint64_t count) {
    open_commands(s);
    Commands& c = s.open;
    if (s.bound != d.pipeline->handle)
        s.vk.vkCmdBindPipeline(c.handle, VK_PIPELINE_BIND_POINT_COMPUTE, d.pipeline->handle);
    s.bound = d.pipeline->handle;
    s.vk.vkCmdPushConstants(c.handle, s.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, d.arg_bytes, d.args.data());
    const uint32_t query = uint32_t(2 * c.timed.size());
    if (c.queries) write_timestamp(s, c, query);
    uint32_t from[2] = {}, groups[2] = {uint32_t(d.grid.x), d.grid.y};
    const double share = double(count) / groups[d.axis];
    from[d.axis] = uint32_t(first);
    groups[d.axis] = uint32_t(count);
    if (first)
        s.vk.vkCmdDispatchBase(c.handle, from[0], from[1], 0, groups[0], groups[1], d.grid.z);
    else
        s.vk.vkCmdDispatch(c.handle, groups[0], groups[1], d.grid.z);
    if (c.queries) {
        write_timestamp(s, c, query + 1);
        c.timed.push_back({d.pipeline, {d.work.bytes * share, d.work.flops * share}, !first});
    }
    s.dirty = true;
    if (c.queries && c.timed.size() == TIMED_DISPATCHES) submit_open(s);
}

// Gives it at once or, with reverse_groups, at the end of its group or at its next barrier.
static void start(LaunchPadState& s, const Dispatch& d) {
    if (s.options.reverse_groups && s.open_groups)
        s.held.push_back(d);
    else
        give(s, d);
}

void release_held(LaunchPadState& s) {
    while (!s.held.empty()) {
        give(s, s.held.back());
        s.held.pop_back();
    }
}

void LaunchPad::dispatch_bytes(std::string_view kernel, const char* real, Groups groups,
                               std::initializer_list<uint32_t> constants, const void* args, size_t bytes,
                               const Work& work) {
    LaunchPadState& s = *state;
    std::vector<MemoryRange> pointers;
    pointers.swap(s.touched);
    throw_failure(s);
    if (!groups.x || !groups.y || !groups.z) return;  // nothing to compute
    const std::string shader = format_string("%.*s_%s", int(kernel.size()), kernel.data(), real);
    const std::span<const uint32_t> constant_span(constants.begin(), constants.size());
    if (s.dry) {
        s.dry->kernels.try_emplace(pipeline_key(shader, constant_span), constants);
        return;
    }
    const Groups grid = fold(s, kernel, groups);
    Dispatch d = {.pipeline = &find_pipeline(s, shader, constant_span),
                  .grid = grid,
                  .axis = grid.y != groups.y || grid.y > grid.x,
                  .args = {},
                  .arg_bytes = uint32_t(bytes),
                  .work = work};
    memcpy(d.args.data(), args, bytes);
    if (s.recording)
        s.recording->pointers.insert(s.recording->pointers.end(), pointers.begin(), pointers.end());
    if (!s.open_groups) barrier();
    start(s, d);
}

void LaunchPad::begin_recording() {
    LaunchPadState& s = *state;
    if (s.recording) fail("begin_recording: a recording is open already");
    if (s.dry) fail("begin_recording: a dry run records nothing");
    if (s.open_groups) fail("begin_recording: a group is open");
    commit(false);
    s.touched.clear();
    s.recording = std::make_unique<Recording>();
}

Recording* LaunchPad::end_recording() {
    LaunchPadState& s = *state;
    throw_failure(s);
    if (!s.recording) fail("end_recording: no recording is open");
    if (s.open_groups) fail("end_recording: a group is open");
    finish_pending();
    s.recordings.push_back(s.recording.release());
    return s.recordings.back();
}

// Turns its commands into command buffers.
static void build(LaunchPadState& s, Recording& recording) {
    s.building = &recording;
    try {
        for (const Command& command : recording.commands) execute_any(s, command);
        submit_open(s);
    } catch (...) {
        s.building = nullptr;
        destroy_recording(s, recording);
        throw;
    }
    s.building = nullptr;
    s.awaited_copies = 0;  // submit_parts() sets it
}

static void submit_parts(LaunchPadState& s, const Recording& recording) {
    const uint64_t before = s.copies.last;
    const auto number = [&](uint64_t in_recording) { return in_recording ? before + in_recording : 0; };
    for (const auto& [commands, copies] : recording.parts)
        if (copies)
            submit_copies(s, copies);
        else
            submit(s, s.compute, commands.handle, s.copies, number(commands.awaited_copies));
    await_copies(s);
    if (!s.options.timestamps) return;
    wait_for(s, s.compute.last);  // the next replay overwrites the timestamps
    for (const Recording::Part& part : recording.parts)
        if (part.commands.queries) collect_times(s, part.commands);
}

void LaunchPad::replay(Recording* recording) {
    LaunchPadState& s = *state;
    if (s.recording) fail("replay cannot be recorded");
    for (const auto& [start, bytes] : recording->pointers)
        if (!find_buffer(s, start, bytes))
            fail("replay: a recorded command uses %zu bytes at %p, which have been freed", bytes, start);
    commit(false);
    if (recording->parts.empty() && is_short(s, *recording)) build(s, *recording);
    if (!recording->parts.empty()) return submit_parts(s, *recording);
    for (const Command& command : recording->commands) execute_any(s, command);
    submit_open(s);
}

void LaunchPad::forget(Recording* recording) {
    LaunchPadState& s = *state;
    auto found = std::find(s.recordings.begin(), s.recordings.end(), recording);
    if (found == s.recordings.end()) fail("forget: not a recording of this launchpad");
    settle();
    destroy_recording(s, *recording);
    delete recording;
    s.recordings.erase(found);
}

double LaunchPad::gpu_seconds(const std::function<void()>& commands) {
    LaunchPadState& s = *state;
    commit(true);
    if (!s.timestamp_mask) {
        const double start = now();
        commands();
        commit(true);
        return now() - start;
    }
    // kept, since what was appended before an error refers to them
    if (!s.span.queries) create_queries(s, s.span, 1);
    s.vk.vkCmdResetQueryPool(open_commands(s), s.span.queries, 0, 2);
    s.vk.vkCmdWriteTimestamp2(open_commands(s), VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, s.span.queries, 0);
    commands();
    finish_postponed();
    release_held(s);
    s.vk.vkCmdWriteTimestamp2(open_commands(s), VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, s.span.queries, 1);
    commit(true);
    const std::vector<uint64_t> ticks = read_queries(s, s.span.queries, 2);
    return seconds_between(s, ticks[0], ticks[1]);
}

std::vector<KernelTime> LaunchPad::take_kernel_times() {
    commit(true);
    std::vector<KernelTime> times;
    for (const auto& [name, time] : std::exchange(state->times, {}))
        times.push_back({name, time.calls, time.seconds, time.work});
    std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return times;
}
