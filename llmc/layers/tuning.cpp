// Measures the tiles of tensor-core GEMMs: see tune_gemm().
#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "llmc/launchpad/peak.h"
#include "llmc/layers/tensor_core.h"

// An operand of ones: zeros would draw less power, and so run at a higher clock.
template <class Element>
static std::unique_ptr<Element, std::function<void(Element*)>> make_operand(LaunchPad& pad, size_t n) {
    const size_t bytes = (n * sizeof(Element) + 3) / 4 * 4;
    auto* p = static_cast<Element*>(pad.allocate(bytes, "operands of a GEMM to be tuned"));
    std::array<Element, 4 / sizeof(Element)> word;
    word.fill(Element(1.0f));
    pad.fill(p, std::bit_cast<uint32_t>(word), bytes);
    return {p, [&pad](Element* operand) { pad.free(operand); }};
}

// A launch for each tile that may take the place of the usual one, which is the plan's.
template <class Real>
static std::vector<GemmLaunch<Real>> launches_to_tune(LaunchPad& pad, const GemmShape& gemm, GemmPlan plan,
                                                      const MatmulMatrixArgs& args) {
    std::vector<GemmLaunch<Real>> launches;
    for (const Tile tile : interchangeable_tiles<Real>(pad, gemm, plan, true)) {
        plan.tile = tile;
        launches.push_back({gemm, plan, args});
    }
    return launches;
}

template <class Real>
void prepare_tuning(LaunchPad& pad, const GemmShape& gemm) {
    const GemmPlan plan = plan_gemm<Real>(pad, gemm, std::nullopt, true);
    pad.prepare([&] {
        for (const auto& launch : launches_to_tune<Real>(pad, gemm, plan, {})) launch.start(pad);
    });
}

template <class Real>
Tile tune_gemm(LaunchPad& pad, const GemmShape& gemm) {
    const GemmPlan plan = plan_gemm<Real>(pad, gemm, std::nullopt, true);
    const size_t M = gemm.M, N = gemm.N, K = gemm.K;
    const auto out = make_operand<Real>(pad, M * N), other = make_operand<Real>(pad, M * N);
    const auto a = make_operand<Real>(pad, M * K), b = make_operand<Real>(pad, N * K);
    const auto bias = make_operand<Real>(pad, N);
    const auto partials = make_operand<float>(pad, partial_floats(gemm, plan) + 1);
    const MatmulMatrixArgs args = {pad.at(out.get(), M * N),   pad.at(a.get(), M * K),
                                   pad.at(b.get(), N * K),     pad.at(bias.get(), N),
                                   pad.at(other.get(), M * N), pad.at(partials.get(), 1)};
    double best_time = 1e30;
    Tile best = plan.tile;
    bool warm = false;
    for (const GemmLaunch<Real>& launch : launches_to_tune<Real>(pad, gemm, plan, args)) {
        const Tile tile = launch.plan.tile;
        const auto start = [&] { launch.start(pad); };
        warm_up(pad, start, warm ? 0 : 0.02);  // the first time, fills the caches
        warm = true;
        double time = 1e30;
        for (int repeat = 0; repeat < 3; repeat++)
            time = std::min(time, seconds_per_launch(pad, start, 1e-3));
        if (tile == plan.tile) time *= 0.98;  // another tile must win by more than noise
        if (time < best_time) best = tile, best_time = time;
    }
    return best;
}

#define INSTANTIATE(Real)                                             \
    template void prepare_tuning<Real>(LaunchPad&, const GemmShape&); \
    template Tile tune_gemm<Real>(LaunchPad&, const GemmShape&);
FOR_EACH_REAL(INSTANTIATE)
