// Launch overhead: the time of an empty kernel, by the way in which the launchpad starts it.
#pragma once
#include "llmc/launchpad/peak.h"

enum class LaunchWay {
    synchronous,          // one commit per dispatch, waited for
    dependent,            // all in one commit, each waiting for the one before
    independent,          // all in one commit and one group
    replayed,             // dependent, recorded once; only the replay is timed
    replayed_independent  // a group, recorded once; only the replay is timed
};
const LaunchWay launch_ways[] = {LaunchWay::synchronous, LaunchWay::dependent, LaunchWay::independent,
                                 LaunchWay::replayed, LaunchWay::replayed_independent};
const char* launch_way_name(LaunchWay way);  // for readers

// Seconds per dispatch. gpu and host have a count of 0 for synchronous launches.
struct LaunchCost {
    Spread gpu;   // between GPU timestamps
    Spread wall;  // from the first call until the GPU has finished
    Spread host;  // until the calls return: recording and submitting
};

// The cost of `count` dispatches, measured up to `repeats` times, but for about two seconds at most. Warm the
// device up before.
LaunchCost launch_cost(LaunchPad& pad, LaunchWay way, int count, int repeats);
