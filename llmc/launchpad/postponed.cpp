// LaunchPad's postponed commands, and what remains to be appended before a submission.
#include <algorithm>
#include <utility>

#include "llmc/launchpad/internal.h"

static bool any_overlaps(const std::vector<MemoryRange>& ranges, const void* p, size_t bytes) {
    return std::ranges::any_of(ranges, [&](const MemoryRange& r) {
        return r.start < static_cast<const char*>(p) + bytes &&
               p < static_cast<const char*>(r.start) + r.bytes;
    });
}

// Whether any of them writes to this memory.
static bool any_writes(const std::vector<PostponedCommands>& all, const void* p, size_t bytes) {
    return std::ranges::any_of(all,
                               [&](const PostponedCommands& c) { return any_overlaps(c.results, p, bytes); });
}

void LaunchPad::postpone(Scratch slot, const std::vector<MemoryRange>& results,
                         std::function<void()> commands) {
    if (state->dry) return commands();
    for (const MemoryRange& r : results)
        if (any_writes(state->postponed, r.start, r.bytes)) barrier();
    state->postponed.push_back({slot, results, std::move(commands)});
}

// While it lives, no command waits for the one before.
struct OpenGroup {
    LaunchPadState& s;
    explicit OpenGroup(LaunchPadState& launchpad) : s(launchpad) { s.open_groups++; }
    OpenGroup(const OpenGroup&) = delete;
    ~OpenGroup() {
        s.open_groups -= s.open_groups > 0;  // an error closes all groups
        s.appending = nullptr;
    }
};

// A postponed command may use only the memory that postpone() was given, for which other commands wait.
static void check_use(const LaunchPadState& s, const void* p, size_t bytes) {
    const auto holds = [&](const MemoryRange& r) {
        const auto *start = static_cast<const char*>(r.start), *first = static_cast<const char*>(p);
        return first >= start && first + bytes <= start + r.bytes;
    };
    const ScratchSlot& slot = s.scratch[size_t(s.appending->slot)];
    if (!holds({slot.memory, slot.bytes}) && std::ranges::none_of(s.appending->results, holds))
        fail("a postponed command uses %zu bytes at %p, which postpone() was not given", bytes, p);
}

// Appends them; the last command was a barrier.
void LaunchPad::append_postponed() {
    LaunchPadState& s = *state;
    if (s.postponed.empty()) return;
    std::vector<PostponedCommands> now = std::exchange(s.postponed, {});
    std::vector<MemoryRange> touched = std::exchange(s.touched, {});  // of the dispatch that follows them
    {
        const OpenGroup group(s);  // they overlap with each other and with the commands that follow
        for (const PostponedCommands& next : now) {
            s.appending = &next;
            next.commands();
        }
    }
    s.started = std::move(now);
    s.touched = std::move(touched);
}

// Leaves none postponed.
void LaunchPad::finish_postponed() {
    if (!state->postponed.empty()) barrier();
}

// The next command uses this memory: lets it wait for postponed commands that write it.
void LaunchPad::prepare_use(const void* p, size_t bytes) {
    if (state->appending) check_use(*state, p, bytes);
    if (any_overlaps(state->copy_destinations, p, bytes))
        fail("%zu bytes at %p are used while copy_async() writes them: call finish_copies() first", bytes, p);
    if (any_writes(state->postponed, p, bytes)) barrier();
    if (any_writes(state->started, p, bytes)) barrier();
}

void LaunchPad::finish_pending() {
    finish_postponed();
    release_held(*state);
    finish_copies();
}
