// Launch overhead: see launch_times.h.
#include "dev/report/launch_times.h"

#include <vector>

#include "dev/report/report_shaders.h"
#include "llmc/base/clock.h"
#include "llmc/launchpad/memory.h"
#include "shaders/args.h"

const char* launch_way_name(LaunchWay way) {
    switch (way) {
        case LaunchWay::synchronous:
            return "synchronous";
        case LaunchWay::dependent:
            return "dependent, one commit";
        case LaunchWay::independent:
            return "independent, one commit";
        case LaunchWay::replayed:
            return "dependent, replayed";
        case LaunchWay::replayed_independent:
            return "independent, replayed";
    }
    return "";
}

static bool is_grouped(LaunchWay way) {
    return way == LaunchWay::independent || way == LaunchWay::replayed_independent;
}
static bool is_replayed(LaunchWay way) {
    return way == LaunchWay::replayed || way == LaunchWay::replayed_independent;
}

LaunchCost launch_cost(LaunchPad& pad, LaunchWay way, int count, int repeats) {
    use_report_shaders();
    Memory memory(&pad);
    const uint32_t block = pad.limits().subgroup_size;
    float* p = memory.allocate<float>(block, "launches");
    auto launch = [&] {  // with an address look-up, as in every layer
        pad.dispatch("peak_launch", {1}, {block}, PeakFmaArgs{pad.at(p, block), 0});
    };
    auto launch_all = [&] {
        const ConcurrentGroup group(is_grouped(way) ? &pad : nullptr);
        for (int i = 0; i < count; i++) {
            launch();
            if (way == LaunchWay::synchronous) pad.commit(true);
        }
    };
    Recording* recording = nullptr;
    if (is_replayed(way)) {
        pad.begin_recording();
        launch_all();
        recording = pad.end_recording();
    }
    auto run = [&] { recording ? pad.replay(recording) : launch_all(); };
    LaunchCost cost;
    std::vector<double> host;
    for (int i = 0; i < 2; i++) run();  // compiles and times the kernel, builds the command buffers
    pad.commit(true);
    cost.wall = repeated(repeats, 1.0, [&] {
        const double start = now();
        run();
        if (way != LaunchWay::synchronous) pad.commit(false);
        host.push_back((now() - start) / count);
        pad.commit(true);
        return (now() - start) / count;
    });
    if (way != LaunchWay::synchronous) {
        cost.host = spread_of(host);
        cost.gpu = repeated(repeats, 1.0, [&] { return pad.gpu_seconds(run) / count; });
    }
    if (recording) pad.forget(recording);
    return cost;
}
