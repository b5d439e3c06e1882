// Jobs of unlike devices: how their processes divide the sequences of a step. Each computes a contiguous
// range of them, whose length matches its speed, in micro-batches of its own. Which sequences a step has, and
// their weights in its loss, do not depend on the division.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/data/dataloader.h"

struct Options;

struct ProcessShare {
    std::string device;                  // with what decides its speed
    int sequences = 0, micro_batch = 0;  // no sequences: the process is left out of the job
    int micro_steps() const { return (sequences + micro_batch - 1) / micro_batch; }
    bool operator==(const ProcessShare&) const = default;
};
// Of a step, by rank; empty: the processes have equal devices, and equal parts of each micro-batch.
using Division = std::vector<ProcessShare>;

// --share of a process; 0: as speeds are.
double own_share(const Options& o);

// Which processes have sequences.
std::vector<bool> members_of(const Division& division);

// What a process computes of the sequences that all of them draw together.
struct OwnPart {
    SequenceRange sequences;
    int micro_batch, micro_steps;  // the last micro-batch of a divided step may be filled up
};
OwnPart own_part(const Options& o, const Division& division, int micro_steps);

struct ProcessSpeed {
    std::string device;
    int most = 1;  // sequences of a micro-batch
};
// The division with which the slowest process, by the seconds that a sequence takes each, ends soonest. Each
// has a sequence at least.
Division divide_step(int sequences, const std::vector<ProcessSpeed>& processes,
                     const std::vector<double>& seconds);

// The time of a step, relative to that of other divisions, from the seconds of the processes with sequences.
double slowest_seconds(const Division& division, const std::vector<double>& seconds_of_sequence);

// The fastest processes, by the seconds that a sequence takes each: so many that a step ends soonest.
std::vector<bool> worth_having(int sequences, const std::vector<ProcessSpeed>& processes,
                               const std::vector<double>& seconds);

// A division among the members of `all`, and no sequences for the others.
Division with_others(const Division& of_members, Division all);

// Seconds that a division follows from. Collective.
struct MeasureDivision {
    // Of a sequence in each process, while the members compute at once and the others wait: 0 in those.
    std::function<std::vector<double>(const std::vector<bool>& members)> sequence;
    // Of a step with this division, and with what the processes exchange, if all of them train.
    std::function<double(const Division&)> step;
};

// The division with which a step ends soonest. Unless all_train, it may leave out processes that cost the
// others more than they bring, by the cores that they share, or by what all exchange. on_cores: the processes
// without a GPU of their own.
Division fastest_division(int sequences, const std::vector<ProcessSpeed>& processes,
                          const std::vector<bool>& on_cores, bool all_train, const MeasureDivision& measure);

// Whether the division is one of so many sequences among these processes.
bool fits(const Division& division, int sequences, const std::vector<ProcessSpeed>& processes);

// Such as "9 sequences on cpu, 2 threads (micro-batches of 3); 3 on ...".
std::string division_text(const Division& division);
