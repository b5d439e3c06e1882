// What starting a kernel costs: one that does nothing, started in the ways that the launchpad has.
#pragma once
#include "llmc/peak.h"

enum class LaunchWay {
    alone,                // submitted and waited for, each
    dependent,            // all in one commit, each waiting for the one before
    independent,          // all in one commit and one group
    replayed,             // dependent, recorded once; only the replay is timed
    replayed_independent  // the same of a group
};
const LaunchWay launch_ways[] = {LaunchWay::alone, LaunchWay::dependent, LaunchWay::independent,
                                 LaunchWay::replayed, LaunchWay::replayed_independent};
const char* launch_way_name(LaunchWay way);  // for people

// Seconds per dispatch.
struct LaunchCost {
    Spread gpu;   // by GPU timestamps; a count of 0 for those that are launched alone
    Spread wall;  // from the first call until the GPU is known to have finished
    Spread host;  // until the calls have returned: recording and submitting; a count of 0 likewise
};

// Of `count` dispatches, measured up to `repeats` times, but no longer than about two seconds. The device
// should be warm.
LaunchCost launch_cost(LaunchPad& pad, LaunchWay way, int count, int repeats);
