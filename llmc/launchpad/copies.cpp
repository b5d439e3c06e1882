// LaunchPad's asynchronous copies: on a queue of their own, with a timeline that counts them.
#include <utility>

#include "llmc/launchpad/internal.h"

// A queue that only transfers knows no other stage.
static const VkPipelineStageFlags2 COPY = VK_PIPELINE_STAGE_2_TRANSFER_BIT;
static const Accesses COPY_WRITES = {COPY, VK_ACCESS_2_TRANSFER_WRITE_BIT};
static const Accesses COPY_READS_AND_WRITES = {
    COPY, VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT};

static void append(LaunchPadState& s, VkCommandBuffer commands, const std::vector<BufferCopy>& copies) {
    begin_command_buffer(s, commands);
    add_barrier(s, commands, COPY_WRITES, COPY_READS_AND_WRITES);  // wait for the copies submitted before
    for (const BufferCopy& c : copies) s.vk.vkCmdCopyBuffer(commands, c.src, c.dst, 1, &c.region);
    add_barrier(s, commands, COPY_WRITES, HOST_ACCESSES);
    VK_CHECK(s.vk.vkEndCommandBuffer(commands));
}

void submit_copies(LaunchPadState& s, VkCommandBuffer copies) {
    submit(s, s.copies, copies, s.compute, s.compute.last);
    s.copying = true;
}

static void start_piece(LaunchPadState& s, const AsyncCopies& copies) {
    std::vector<Commands>& idle = s.copies.idle;
    if (idle.empty()) idle.push_back({.handle = allocate_command_buffer(s, s.copies.pool)});
    Commands& commands = idle.back();
    append(s, commands.handle, copies);
    if (s.building) {
        s.building->parts.push_back({.copies = commands.handle});
        s.building->num_copies++;
        s.copying = true;
    } else {
        submit_copies(s, commands.handle);
        commands.ticket = s.copies.last;
        s.copies.in_flight.push_back(commands);
    }
    idle.pop_back();
    retire(s, s.copies);
}

// Submits them behind the open commands, or makes them parts of the recording.
void start_copies(LaunchPadState& s, const AsyncCopies& copies) {
    submit_open(s);
    for (const AsyncCopies& piece : divided(s, copies)) start_piece(s, piece);
}

// The commands that follow wait for them.
void await_copies(LaunchPadState& s) {
    if (!s.copying) return;
    submit_open(s);  // what was given before need not wait
    s.awaited_copies = s.building ? s.building->num_copies : s.copies.last;
    s.copying = false;
}

void LaunchPad::copy_async(const std::vector<CopyRange>& ranges) {
    LaunchPadState& s = *state;
    if (s.dry) return;
    if (s.open_groups) fail("copy_async: a group is open");
    finish_copies();
    AsyncCopies copies;
    for (const CopyRange& range : ranges)
        if (range.bytes) copies.push_back(prepare_copy(range));
    if (copies.empty()) return;
    for (const auto& [dst, src, bytes] : ranges)
        if (bytes) s.copy_destinations.push_back({dst, bytes});
    if (s.options.reverse_groups)
        s.held_copies = std::move(copies);
    else
        give(s, std::move(copies));
}

void LaunchPad::finish_copies() {
    LaunchPadState& s = *state;
    s.copy_destinations.clear();
    if (!s.held_copies.empty()) give(s, std::exchange(s.held_copies, {}));
    give(s, FinishCopies());
}
