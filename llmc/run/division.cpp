#include "llmc/run/division.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "llmc/base/ceil_div.h"
#include "llmc/base/error.h"
#include "llmc/options/train_options.h"

double own_share(const Options& o) { return o.share.empty() ? 0 : o.share[0]; }

std::vector<bool> members_of(const Division& division) {
    std::vector<bool> members;
    for (const ProcessShare& share : division) members.push_back(share.sequences > 0);
    return members;
}

OwnPart own_part(const Options& o, const Division& division, int micro_steps) {
    if (division.empty()) return {{o.process_rank * o.batch, o.batch}, o.batch, micro_steps};
    int first = 0, rank = 0;
    for (const ProcessShare& share : division) {
        if (share.sequences > 0 && rank++ == o.process_rank)
            return {{first, share.sequences}, share.micro_batch, share.micro_steps()};
        first += share.sequences;
    }
    fail("division of a step: no part for process %d", o.process_rank);
}

// Micro-batches of one size, of which the last one lacks as few sequences as possible.
static ProcessShare share_of(const ProcessSpeed& process, int sequences) {
    const int micro_steps = int(ceil_div(sequences, process.most));
    return {process.device, sequences, int(ceil_div(sequences, micro_steps))};
}

static double seconds_of(const ProcessShare& share, double seconds_of_sequence) {
    return share.micro_steps() * share.micro_batch * seconds_of_sequence;
}

Division divide_step(int sequences, const std::vector<ProcessSpeed>& processes,
                     const std::vector<double>& seconds) {
    Division division;
    for (const ProcessSpeed& process : processes) division.push_back(share_of(process, 1));
    for (int left = sequences - int(processes.size()); left > 0; left--) {
        size_t next = 0;
        double soonest = INFINITY;
        for (size_t i = 0; i < processes.size(); i++) {
            const ProcessShare more = share_of(processes[i], division[i].sequences + 1);
            if (const double end = seconds_of(more, seconds[i]); end < soonest) soonest = end, next = i;
        }
        division[next] = share_of(processes[next], division[next].sequences + 1);
    }
    return division;
}

double slowest_seconds(const Division& division, const std::vector<double>& seconds_of_sequence) {
    double slowest = 0;
    size_t member = 0;
    for (const ProcessShare& share : division)
        if (share.sequences) slowest = std::max(slowest, seconds_of(share, seconds_of_sequence[member++]));
    return slowest;
}

std::vector<bool> worth_having(int sequences, const std::vector<ProcessSpeed>& processes,
                               const std::vector<double>& seconds) {
    std::vector<size_t> order(processes.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::stable_sort(order, {}, [&](size_t i) { return seconds[i]; });
    std::vector<bool> members(processes.size()), best;
    std::vector<ProcessSpeed> chosen;
    std::vector<double> of_chosen;
    double soonest = INFINITY;
    for (const size_t i : order) {
        members[i] = true;
        chosen.push_back(processes[i]);
        of_chosen.push_back(seconds[i]);
        const double end = slowest_seconds(divide_step(sequences, chosen, of_chosen), of_chosen);
        if (1.02 * end < soonest) soonest = end, best = members;
    }
    return best;
}

Division with_others(const Division& of_members, Division all) {
    size_t member = 0;
    for (ProcessShare& share : all)
        share = share.sequences ? of_members[member++] : ProcessShare{share.device};
    return all;
}

// By speeds that are measured while these processes compute at once.
static Division measured_division(int sequences, const std::vector<ProcessSpeed>& all,
                                  const std::vector<bool>& members, const MeasureDivision& measure,
                                  std::vector<double>& seconds) {
    seconds = measure.sequence(members);
    std::vector<ProcessSpeed> processes;
    std::vector<double> of_members;
    Division division;
    for (size_t i = 0; i < all.size(); i++) {
        division.push_back({all[i].device, members[i]});
        if (members[i]) processes.push_back(all[i]), of_members.push_back(seconds[i]);
    }
    return with_others(divide_step(sequences, processes, of_members), division);
}

// Who may train without the others: the fastest ones, or one, and those with a GPU of their own; if all
// share a machine's cores, each alone, since it then has all cores.
static std::set<std::vector<bool>> smaller_jobs(int sequences, const std::vector<ProcessSpeed>& all,
                                                const std::vector<bool>& on_cores,
                                                const std::vector<double>& seconds) {
    std::set<std::vector<bool>> jobs = {worth_having(sequences, all, seconds)};
    const bool all_on_cores = !std::ranges::count(on_cores, false);
    const size_t fastest = size_t(std::ranges::min_element(seconds) - seconds.begin());
    for (size_t i = 0; i < all.size(); i++) {
        std::vector<bool> alone(all.size());
        alone[i] = true;
        if (all_on_cores || i == fastest) jobs.insert(alone);
    }
    std::vector<bool> own_gpus = on_cores;
    own_gpus.flip();
    if (!all_on_cores) jobs.insert(own_gpus);
    jobs.erase(std::vector<bool>(all.size(), true));
    return jobs;
}

Division fastest_division(int sequences, const std::vector<ProcessSpeed>& processes,
                          const std::vector<bool>& on_cores, bool all_train, const MeasureDivision& measure) {
    std::vector<double> seconds;
    const std::vector<bool> everybody(processes.size(), true);
    Division best = measured_division(sequences, processes, everybody, measure, seconds);
    if (all_train) return best;
    double best_seconds = 1.02 * measure.step(best);  // what brings less is left out
    for (const std::vector<bool>& members : smaller_jobs(sequences, processes, on_cores, seconds)) {
        std::vector<double> of_members;
        const Division division = measured_division(sequences, processes, members, measure, of_members);
        const double of_step = measure.step(division);
        if (of_step < best_seconds) best = division, best_seconds = of_step;
    }
    return best;
}

bool fits(const Division& division, int sequences, const std::vector<ProcessSpeed>& processes) {
    bool is_same = division.size() == processes.size();
    for (size_t i = 0; is_same && i < division.size(); i++) {
        sequences -= division[i].sequences;
        is_same = division[i].device == processes[i].device && division[i].micro_batch <= processes[i].most;
    }
    return is_same && sequences == 0;
}

std::string division_text(const Division& division) {
    std::string text;
    for (const ProcessShare& share : division) {
        text += format_string("%s%d%s on %s", text.empty() ? "" : "; ", share.sequences,
                              text.empty() ? " sequences" : "", share.device.c_str());
        text += share.sequences ? format_string(" (micro-batches of %d)", share.micro_batch)
                                : ", which is left out";
    }
    return text;
}
