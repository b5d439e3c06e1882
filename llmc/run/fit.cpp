#include "llmc/run/fit.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/run/progress.h"

static constexpr int max_tokens = 1 << 30;  // of a micro-batch in all processes: check_options()

RunShape shape_of(const Options& o) {
    return {.B = o.batch,
            .T = o.sequence,
            .recompute = Recompute(o.recompute),
            .offload = o.offloads_optimizer()};
}

bool MemoryCheck::fits(const RunShape& shape) const {
    int64_t too_large = !fits_here(shape);
    if (job) job->all_reduce_max(&too_large, 1);
    return !too_large;
}

// --- the search ---

// Estimated time per token, relative to large batches without recomputation (SPEED.md, d48 on an H100).
// sequences: per step, in this process.
static double relative_time(const RunShape& shape, int sequences) {
    static constexpr double recomputation[] = {1, 1.01, 1.02, 1.2};
    // A micro-batch costs fixed_tokens more. The update of offloaded state costs offload_tokens per step,
    // twice what was measured, since buses differ.
    const double fixed_tokens = 800, offload_tokens = 28000;
    const double batch = double(shape.B) * shape.T, step = double(sequences) * shape.T;
    return recomputation[shape.recompute] * (1 + fixed_tokens / batch) +
           (shape.offload ? offload_tokens / step : 0);
}

// Ascending.
static std::vector<int> divisors_of(int n, int most) {
    std::vector<int> low, high;
    for (int i = 1; i <= n / i; i++) {
        if (n % i) continue;
        if (i <= most) low.push_back(i);
        if (i != n / i && n / i <= most) high.push_back(n / i);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
}

// Micro-batches for so many sequences of a process. A divided step may have any.
static std::vector<int> batches_of(const Options& o, int sequences, int most) {
    if (!o.is_divided) return divisors_of(sequences, most);
    std::vector<int> all(size_t(std::min(sequences, most)));
    std::iota(all.begin(), all.end(), 1);
    return all;
}

// The largest number up to `most` that fits, as all smaller ones do; 0: none. Doubles it before it bisects:
// numbers far too large are not tried.
static int largest(int most, const std::function<bool(int)>& fits) {
    int fitting = 0, too_large = most + 1;
    while (too_large - fitting > 1) {
        const int next = std::min(fitting + (too_large - fitting) / 2, std::max(1, 2 * fitting));
        (fits(next) ? fitting : too_large) = next;
    }
    return fitting;
}

// The largest of these ascending batches that fits; 0: none.
static int largest_of(const MemoryCheck& memory, RunShape shape, const std::vector<int>& batches) {
    const int count = largest(int(batches.size()), [&](int n) {
        shape.B = batches[n - 1];
        return memory.fits(shape);
    });
    return count ? batches[count - 1] : 0;
}

// Choices among which find_fit() takes the fastest that fits.
struct FitChoices {
    int sequences;             // of a process in a step
    std::vector<int> batches;  // ascending; at least one
    std::vector<Recompute> recompute;
    std::vector<bool> offload;
    RunShape others;  // T and what else the shapes have in common
};

// Sequences of a process in a step, which are not known yet if it is divided by speed: at most these.
static int sequences_of(const Options& o) {
    if (o.is_divided) return o.global_batch() - o.num_processes + 1;
    if (o.total_batch > 0) return o.total_batch / (o.sequence * o.num_processes);
    return o.batch ? o.batch : Options().batch;
}

static RunShape with(RunShape shape, Recompute recompute, bool offload) {
    shape.B = 1;
    shape.recompute = recompute;
    shape.offload = offload;
    return shape;
}

// The shape with the shortest estimated time per token; none: nothing fits. All processes call it.
static std::optional<RunShape> find_fit(const MemoryCheck& memory, const FitChoices& choices) {
    const std::vector<int>& batches = choices.batches;
    std::optional<RunShape> best;
    const auto time = [&](const RunShape& shape) { return relative_time(shape, choices.sequences); };
    for (const bool offload : choices.offload)
        for (const Recompute recompute : choices.recompute) {
            RunShape shape = with(choices.others, recompute, offload);
            shape.B = largest_of(memory, shape, batches);
            if (shape.B && (!best || time(shape) < time(*best))) best = shape;
            if (shape.B == batches.back()) break;  // more recomputation only takes longer
        }
    return best;
}

int largest_batch(const MemoryCheck& memory, const Options& o) {
    const int per_sequence = o.sequence * o.num_processes;
    RunShape shape = shape_of(o);
    if (o.total_batch > 0) {
        const int sequences = sequences_of(o);
        return largest_of(memory, shape, batches_of(o, sequences, sequences));
    }
    return largest(max_tokens / per_sequence, [&](int B) {
        shape.B = B;
        return memory.fits(shape);
    });
}

// --- the choice ---

static std::vector<Recompute> from(int least) {
    std::vector<Recompute> all;
    for (int r = least; r <= RECOMPUTE_LAYERS; r++) all.push_back(Recompute(r));
    return all;
}

static std::vector<bool> offload_choices(const MemoryCheck& memory) {
    return memory.own_memory ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

// The options of a shape that are to be added to those that were given, in one form for notes and for advice.
// What choose_fit() chose was not given.
static std::string options_of(const RunShape& shape, const Options& o) {
    std::string text;
    const auto name = [&](const std::string& option) { text += (text.empty() ? "" : " ") + option; };
    if (shape.in_bf16 && o.precision != StoredType::bf16) name("--precision bf16");
    if (shape.no_master && o.master_weights) name("-w 0");
    if (shape.T != o.sequence) name(format_string("-t %d", shape.T));
    const bool adds_batch = !o.is_given(o.batch) || shape.B != o.batch;
    if (adds_batch) name(format_string("-b %d", shape.B));
    if (shape.recompute != (o.is_given(o.recompute) ? o.recompute : Options().recompute))
        name(format_string("-r %d", int(shape.recompute)));
    if (shape.offload != (o.is_given(o.offload) && o.offloads_optimizer()))
        name(shape.offload ? "--offload optimizer" : "--offload none");
    const int total = sequences_of(o) * o.sequence * o.num_processes;
    if (adds_batch && !o.is_given(o.total_batch) && !o.is_divided &&
        total % (shape.B * shape.T * o.num_processes) == 0)
        name(format_string("-d %d", total));
    return text;
}

static void apply(Options& o, const RunShape& shape) {
    if (!o.is_divided) o.total_batch = sequences_of(o) * o.sequence * o.num_processes;
    o.batch = shape.B;
    o.recompute = shape.recompute;
    o.offload = shape.offload ? Offload::optimizer : Offload::none;
}

// The largest B to consider: more than 2^16 tokens are hardly faster, and the data holds a batch of all
// processes and one more token.
static int most_batch(const Options& o, uint64_t tokens) {
    const uint64_t per_sequence = uint64_t(o.sequence) * uint64_t(o.num_processes);
    const uint64_t of_data = (std::max<uint64_t>(tokens, 1) - 1) / per_sequence;
    return int(std::min<uint64_t>((1 << 16) / o.sequence, of_data));
}

void choose_fit(Options& o, const MemoryCheck& memory, uint64_t tokens) {
    const bool asked = o.batch == 0;
    if (!asked && memory.fits(shape_of(o))) return;
    std::vector<Recompute> recompute = from(asked ? RECOMPUTE_NOTHING : o.recompute);
    if (o.is_given(o.recompute)) recompute = {Recompute(o.recompute)};
    const int sequences = sequences_of(o);
    FitChoices choices = {.sequences = sequences,
                          .batches = batches_of(o, sequences, std::max(1, most_batch(o, tokens))),
                          .recompute = recompute,
                          .offload = offload_choices(memory),
                          .others = shape_of(o)};
    if (o.is_given(o.offload)) choices.offload = {o.offloads_optimizer()};
    // check_memory() says what it lacks
    const RunShape least = with(choices.others, recompute.back(), choices.offload.back());
    const std::optional<RunShape> found = find_fit(memory, choices);
    if (!found && !asked) return;
    const RunShape shape = found.value_or(least);
    if (found && asked)
        print_line(stdout, "note: -b auto is -b %d -r %d%s, which fits; -d stays %d", shape.B,
                   int(shape.recompute), shape.offload ? " --offload optimizer" : "",
                   o.is_divided ? o.total_batch : sequences * o.sequence * o.num_processes);
    else if (found)
        print_line(stdout, "note: -b %d -r %d do not fit in memory: the run uses %s; its steps stay the same",
                   o.batch, o.recompute, options_of(shape, o).c_str());
    apply(o, shape);
}

// --- messages ---

static std::string missing(const MemoryCheck& memory, const RunShape& shape) {
    const MemoryRoom& room = memory.room;
    const MemoryNeed needed = memory.need(shape);
    const std::string run = format_string("-b %d -r %d", shape.B, int(shape.recompute));
    if (needed.largest > room.largest)
        return format_string("%s needs one allocation of %s, and %s allows at most %s", run.c_str(),
                             gib(needed.largest).c_str(), room.where.c_str(), gib(room.largest).c_str());
    if (!room.host_holds(needed))
        return format_string("%s needs %s of the host's memory in each process, and %s are free for it",
                             run.c_str(), gib(needed.host_bytes).c_str(), gib(room.host_bytes).c_str());
    const std::string each =
        room.processes > 1 ? format_string(" in each of %d processes", room.processes) : "";
    return format_string("%s needs %s%s, and %s has %s free", run.c_str(), gib(needed.bytes).c_str(),
                         each.c_str(), room.where.c_str(), gib(room.bytes).c_str());
}

// Half as many tokens, or fewer, of which one sequence fits.
static std::optional<RunShape> find_shorter(const MemoryCheck& memory, const Options& o,
                                            const FitChoices& choices) {
    for (int T = o.sequence / 2; T >= 16; T /= 2) {
        RunShape shape = with(choices.others, RECOMPUTE_LAYERS, choices.offload.back());
        shape.T = T;
        const bool divides = o.total_batch <= 0 || o.total_batch % (T * o.num_processes) == 0;
        if (divides && memory.fits(shape)) return shape;
    }
    return std::nullopt;
}

// Options with which the run fits.
static std::string advice(const MemoryCheck& memory, const Options& o) {
    const bool may_halve = o.precision == StoredType::fp32;
    FitChoices choices = {.sequences = sequences_of(o),
                          .batches = batches_of(o, sequences_of(o), max_tokens),
                          .recompute = from(o.recompute),
                          .offload = offload_choices(memory),
                          .others = shape_of(o)};
    if (const auto shape = find_fit(memory, choices)) {
        RunShape same = shape_of(o);
        same.in_bf16 = true;
        const bool fits_in_bf16 = may_halve && memory.fits(same);
        return "use " + options_of(*shape, o) + (fits_in_bf16 ? ", or --precision bf16" : "");
    }
    choices.others.in_bf16 = may_halve;
    for (const bool no_master : {false, true}) {
        choices.others.no_master = no_master;
        for (const auto& shape : {find_fit(memory, choices), find_shorter(memory, o, choices)})
            if (shape) return "use " + options_of(*shape, o);
    }
    if (o.is_divided)
        return "not even one sequence fits beside an equal part of the optimizer's state, which each process "
               "owns: leave this device out of the job, or use a smaller model (-e)";
    return "not even one sequence fits: use a smaller model (-e)";
}

void print_room(const MemoryCheck& memory, const Options& o) {
    const int most = largest_batch(memory, o);
    const std::string of = o.total_batch > 0 ? format_string(" and divides -d %d", o.total_batch) : "";
    const std::string fits = most > 0
                                 ? format_string("the largest batch that fits%s is -b %d", of.c_str(), most)
                                 : format_string("not even -b 1 fits with -r %d", o.recompute);
    print_line(stdout, "free memory on %s: %s; %s", memory.room.where.c_str(), gib(memory.room.bytes).c_str(),
               fits.c_str());
}

void check_memory(const MemoryCheck& memory, const Options& o) {
    const RunShape shape = shape_of(o);
    if (memory.fits(shape)) return;
    const std::string what_to_do = advice(memory, o);
    const auto refuse = [&] {
        if (!memory.fits_here(shape))
            fail("out of memory: %s; %s", missing(memory, shape).c_str(), what_to_do.c_str());
    };
    memory.job ? memory.job->agree(refuse) : refuse();
}
