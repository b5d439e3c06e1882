// How long commands take, so that no submission keeps the device for long: drivers reset a device that has
// not ended one after 2 to 10 s, and a desktop stutters long before that.
//
// What commands are expected to take decides where submissions end, and into how many pieces a command is
// divided. That is assumed from its work first. A kernel's first runs are submitted alone and timed: on a
// slow device in pieces, on a fast one whole. The host's clock serves, since not all devices have timestamps.
#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/base/clock.h"
#include "llmc/launchpad/internal.h"

// Assumed of a device, per second; `copied` may cross a bus. A GPU is a fiftieth of an H100: one that is a
// thousandth takes 20 times as long, which with LaunchPadOptions::submission_seconds is 2 s. Cooperative
// matrices are less, since a driver may compute them without special units.
struct Rates {
    double bytes, copied, flops, matrix_flops, workgroups;
};
static Rates rates_of(const LaunchPadState& s) {
    if (s.info.is_gpu()) return {66e9, 10e9, 1.2e12, 4e12, 1e6};
    return {1e9, 1e9, 1.2e9, 1.2e9, 1e4};
}

static double assumed_seconds(const LaunchPadState& s, const Dispatch& d) {
    const Rates rates = rates_of(s);
    const bool on_matrices =
        !d.pipeline->kernel.ends_with("_fp32") && (s.limits.bf16_fragment || s.limits.fp16_fragment);
    const double flops = d.work.flops / (on_matrices ? rates.matrix_flops : rates.flops);
    const double seconds = std::max(d.work.bytes / rates.bytes, flops);
    return seconds > 0 ? seconds : double(d.grid.x) * d.grid.y * d.grid.z / rates.workgroups;
}

// The first runs may include compiling the kernel.
static bool needs_timing(const Cost& cost, double assumed) {
    return cost.runs < 3 || assumed > 4 * cost.assumed;
}

static double expected_seconds(const Cost& cost, double assumed) {
    if (!cost.runs) return assumed;
    const double scaled = cost.seconds * assumed / cost.assumed;
    // A short run is mostly overhead, and says little of a much longer one.
    return cost.seconds < 1e-3 && assumed > 4 * cost.assumed ? std::min(scaled, assumed) : scaled;
}

template <class Append>
static void execute_timed(LaunchPadState& s, Cost& cost, double assumed, const Append& append) {
    wait_for(s, submit_open(s));
    const double start = now();
    append();
    wait_for(s, submit_open(s));
    const double seconds = now() - start;
    s.least_seconds = std::min(s.least_seconds, seconds);
    cost = {assumed, std::max(seconds - s.least_seconds, seconds / 10), cost.runs + 1};
    s.has_timed = true;
}

// How many of the units that are left, and expected to take so long, a submission takes.
static uint64_t units_of_piece(const LaunchPadState& s, double expected, uint64_t left) {
    const double pieces = std::max(std::ceil(expected / s.options.submission_seconds), s.least_pieces);
    return pieces > 1 ? std::max<uint64_t>(1, uint64_t(double(left) / pieces)) : left;
}

// Calls append(first, count) for parts of a command of so many units. cost null: it is never timed.
template <class Append>
static void execute_in_pieces(LaunchPadState& s, Cost* cost, double assumed, uint64_t units,
                              const Append& append) {
    const auto expected = [&](double a) { return cost ? expected_seconds(*cost, a) : a; };
    const double most = s.options.submission_seconds, of_unit = assumed / double(units);
    for (uint64_t first = 0, count = 0; first < units; first += count) {
        count = units_of_piece(s, expected(of_unit * double(units - first)), units - first);
        const double piece = of_unit * double(count);
        if (cost && !s.building && needs_timing(*cost, piece)) {
            execute_timed(s, *cost, piece, [&] { append(first, count); });
            continue;
        }
        if (s.open.expected + expected(piece) > most) submit_open(s);
        append(first, count);
        s.open.expected += expected(piece);
    }
}

static uint64_t units_of(const Dispatch& d) { return d.axis ? d.grid.y : d.grid.x; }

void LaunchPad::divide_commands(int least_pieces) { state->least_pieces = least_pieces; }

double first_piece(const LaunchPadState& s, const Dispatch& d) {
    return double(units_of_piece(s, assumed_seconds(s, d), units_of(d))) / double(units_of(d));
}

void execute(LaunchPadState& s, const Dispatch& d) {
    execute_in_pieces(s, &d.pipeline->cost, assumed_seconds(s, d), units_of(d),
                      [&](uint64_t first, uint64_t count) { append(s, d, first, count); });
}

static const uint64_t BLOCK = 1 << 20;  // bytes: copies and fills are divided between blocks

// Calls append(from, bytes) for parts of `size` bytes.
template <class Append>
static void execute_bytes(LaunchPadState& s, uint64_t size, double rate, const Append& append) {
    execute_in_pieces(s, nullptr, double(size) / rate, ceil_div(size, BLOCK),
                      [&](uint64_t first, uint64_t count) {
                          append(first * BLOCK, std::min(count * BLOCK, size - first * BLOCK));
                          s.dirty = true;
                      });
}

void execute(LaunchPadState& s, const BufferFill& fill) {
    execute_bytes(s, fill.bytes, rates_of(s).bytes, [&](uint64_t from, uint64_t bytes) {
        s.vk.vkCmdFillBuffer(open_commands(s), fill.buffer, fill.offset + from, bytes, fill.word);
    });
}

void execute(LaunchPadState& s, const BufferCopy& copy) {
    execute_bytes(s, copy.region.size, rates_of(s).copied, [&](uint64_t from, uint64_t bytes) {
        const VkBufferCopy part = {copy.region.srcOffset + from, copy.region.dstOffset + from, bytes};
        s.vk.vkCmdCopyBuffer(open_commands(s), copy.src, copy.dst, 1, &part);
    });
}

std::vector<AsyncCopies> divided(const LaunchPadState& s, const AsyncCopies& copies) {
    const double bytes = s.options.submission_seconds * rates_of(s).copied;
    const VkDeviceSize most = std::max<VkDeviceSize>(1, VkDeviceSize(bytes / BLOCK)) * BLOCK;
    std::vector<AsyncCopies> parts(1);
    VkDeviceSize room = most;
    for (const BufferCopy& copy : copies)
        for (VkDeviceSize from = 0, n = 0; from < copy.region.size; from += n, room -= n) {
            if (!room) parts.emplace_back();
            if (!room) room = most;
            n = std::min(room, copy.region.size - from);
            parts.back().push_back(
                {copy.src, copy.dst, {copy.region.srcOffset + from, copy.region.dstOffset + from, n}});
        }
    return parts;
}

bool is_short(const LaunchPadState& s, const Recording& recording) {
    double expected = 0;
    for (const Command& command : recording.commands) {
        if (const auto* copy = std::get_if<BufferCopy>(&command))
            expected += double(copy->region.size) / rates_of(s).copied;
        if (const auto* fill = std::get_if<BufferFill>(&command))
            expected += double(fill->bytes) / rates_of(s).bytes;
        const auto* d = std::get_if<Dispatch>(&command);
        if (!d) continue;
        const double assumed = assumed_seconds(s, *d);
        if (needs_timing(d->pipeline->cost, assumed)) return false;
        expected += expected_seconds(d->pipeline->cost, assumed);
    }
    return expected <= s.options.submission_seconds;
}
