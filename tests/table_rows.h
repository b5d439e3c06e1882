// Rows of the table of kernels (llmc/kernels/kernel_cases.h) for the tests of layers. The table has operands,
// versions and configs; a test names a layer and its shapes.
#pragma once
#include "dev/vulkan/baselines/baselines.h"
#include "llmc/kernels/kernel_cases.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"

enum class Runs {
    all,      // every version and config, and what training calls
    training  // only what training calls
};

// Calls check(pad, run) for these runs of a row. All of them run in the first memory mode, the others run the
// first config of each version in fp32; fp16 runs the first configs, too (as for_each_version()).
template <class Real, class Check>
void for_each_run(const KernelCase& c, Check check, Runs which = Runs::all) {
    std::vector<KernelRun> runs;
    if (which == Runs::all) runs = c.versions;
    runs.push_back(c.layer_run);
    for (const auto& pad : test_pads()) {
        std::string version;
        for (const KernelRun& run : runs) {
            const std::string before = std::exchange(version, run.name.substr(0, run.name.rfind('/')));
            if (std::is_same_v<Real, fp16> && version == before) continue;
            if (pad != test_pads()[0] && (sizeof(Real) == 2 || version == before)) continue;
            if (run.fits && !run.fits(*pad)) continue;
            SCOPED_TRACE(format_string("%s, %s, %s memory", run.name.c_str(), c.shape.c_str(),
                                       memory_mode_name(pad->memory_mode())));
            check(*pad, run);
        }
    }
}

// Compares the rows of a layer with the CPU's version. They run in a concurrent group, in which a launcher
// must order its own dispatches. Arrays begin `margin` elements past aligned memory.
template <class Real>
void check_rows(const std::string& layer, const KernelShape& shape, size_t margin = 8,
                Runs which = Runs::all) {
    add_baselines();
    int rows = 0;
    for (const KernelCase& c : kernel_cases<Real>(shape)) {
        if (c.layer != layer) continue;
        rows++;
        Operands host(nullptr);
        c.layer_run.prepare(host)();
        const auto check = [&](LaunchPad& pad, const KernelRun& run) {
            Operands device(&pad, Fill::values, margin);
            const auto launch = run.prepare(device);
            {
                const ConcurrentGroup group(&pad);
                launch();
            }
            const auto compare = [&] {
                EXPECT_LE(device.compare(host, layer).relative(), tolerance<Real>());
            };
            EXPECT_EQ(message_of(compare), "") << "margin " << margin;
        };
        for_each_run<Real>(c, check, which);
    }
    EXPECT_GT(rows, 0) << "the table has no row of " << layer;
}
