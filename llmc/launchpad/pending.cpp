// Commands that wait for others before they are appended: deferred ones, those for the next barrier, and the
// reduction of a split-K result.
#include <algorithm>
#include <utility>

#include "llmc/launchpad/internal.h"

// Whether any of them writes to this memory.
static bool any_writes(const std::vector<AfterBarrier>& all, const void* p, size_t bytes) {
    const auto overlaps = [&](const Written& w) {
        return w.start < static_cast<const char*>(p) + bytes &&
               p < static_cast<const char*>(w.start) + w.bytes;
    };
    return std::ranges::any_of(
        all, [&](const AfterBarrier& a) { return std::ranges::any_of(a.results, overlaps); });
}

void LaunchPad::after_barrier(Scratch slot, const std::vector<Written>& results,
                              std::function<void()> commands) {
    if (state->dry) return commands();
    if (state->in_background) fail("after_barrier: a background is open");
    for (const Written& w : results)
        if (any_writes(state->waiting, w.start, w.bytes)) barrier();
    state->waiting.push_back({slot, results, std::move(commands)});
}

// While it lives, no command starts an interval of its own.
struct OpenGroup {
    LaunchPadState& s;
    explicit OpenGroup(LaunchPadState& launchpad) : s(launchpad) { s.open_groups++; }
    OpenGroup(const OpenGroup&) = delete;
    ~OpenGroup() { s.open_groups -= s.open_groups > 0; }  // an error closes all groups
};

// Appends the waiting commands; the last command was a barrier.
void LaunchPad::run_waiting() {
    LaunchPadState& s = *state;
    if (s.waiting.empty()) return;
    std::vector<AfterBarrier> now = std::exchange(s.waiting, {});
    std::vector<AddressRange> touched = std::exchange(s.touched, {});    // of the dispatch that follows them
    const bool background_due = std::exchange(s.background_due, false);  // a longer command follows
    {
        const OpenGroup group(s);  // they run side by side, and beside what follows
        for (const AfterBarrier& next : now) next.commands();
    }
    s.background_due = background_due;
    s.started = std::move(now);
    s.touched = std::move(touched);
}

// Leaves none waiting.
void LaunchPad::finish_waiting() {
    if (!state->waiting.empty()) barrier();
}

// Before a command that uses this memory is given: lets it wait for commands that write it.
void LaunchPad::wait_for_results(const void* p, size_t bytes) {
    if (any_writes(state->waiting, p, bytes)) barrier();
    if (any_writes(state->started, p, bytes)) barrier();
}

void LaunchPad::defer(double flops, std::function<void()> commands) {
    state->deferred.push_back({flops, std::move(commands)});
}

void LaunchPad::run_deferred() {
    std::deque<Deferred>& waiting = state->deferred;
    double largest = 0, done = 0;
    for (const Deferred& d : waiting) largest = std::max(largest, d.flops);
    if (waiting.empty()) return;
    do {
        const Deferred next = std::move(waiting.front());
        waiting.pop_front();
        done += next.flops;
        next.commands();
    } while (!waiting.empty() && done < largest);
}

void LaunchPad::finish_deferred(size_t keep) {
    if (state->deferred.size() <= keep) return;
    const ConcurrentGroup group(this);
    while (state->deferred.size() > keep) run_deferred();
}

void LaunchPad::reduce_unreduced() {
    const Unreduced result = std::exchange(state->unreduced, {});
    if (!result.value) return;
    barrier();  // inside a group: after the GEMM, and before the kernel that reads the result
    result.reduce();
    barrier();
}

void LaunchPad::leave_unreduced(const Unreduced& result) {
    reduce_unreduced();
    state->unreduced = result;
}

Unreduced LaunchPad::take_unreduced(const void* value) {
    if (!value || state->unreduced.value != value) return {};
    return std::exchange(state->unreduced, {});
}

void LaunchPad::finish_pending() {
    finish_deferred();
    reduce_unreduced();
    finish_waiting();
    release_held(*state);
    finish_background();
    finish_copies();
}
