// The chain: its inputs, the CPU version, the GPU variants. See chain.h.
#include "dev/report/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "dev/report/report_shaders.h"
#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/launchpad/memory.h"

Chain make_chain(int n, int batch, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    auto values = [](size_t count, auto draw) {
        std::vector<float> drawn(count);
        std::generate(drawn.begin(), drawn.end(), draw);
        return drawn;
    };
    // The norm of a random matrix is about 2 sqrt(n) times the standard deviation of its elements: here 0.8.
    const float scale = 0.4f / std::sqrt(float(n));
    const size_t width = size_t(n), height = size_t(batch);
    Chain chain = {n, batch};
    chain.weight = values(width * width, [&] { return scale * normal(generator); });
    chain.inputs = values(width * CHAIN_PERIOD, [&] { return normal(generator); });
    chain.gain = values(width, [&] { return 0.5f + 0.5f * uniform(generator); });
    chain.leak = values(width, [&] { return 0.1f + 0.4f * uniform(generator); });
    chain.start = values(width * height, [&] { return normal(generator); });
    return chain;
}

// --- CPU ---

static const int ROWS = 4;    // of the weights, multiplied at the same time
static const int BLOCK = 32;  // rows per task of a thread

// x = rows first to first + ROWS - 1 of the weights times s. Rows from n on repeat row n - 1.
static inline void multiply_rows(float* x, const float* weight, const float* s, int first, int n) {
    const float* w[ROWS];
    for (int i = 0; i < ROWS; i++) w[i] = weight + size_t(std::min(first + i, n - 1)) * size_t(n);
    float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int k = 0; k < n; k++) {
        a += w[0][k] * s[k];
        b += w[1][k] * s[k];
        c += w[2][k] * s[k];
        d += w[3][k] * s[k];
    }
    const float sums[ROWS] = {a, b, c, d};
    for (int i = 0; i < ROWS; i++) x[i] = sums[i];
}

// A step of BLOCK elements from `first` on, fewer at the end, of all states.
static SIMD_INLINE void block_step(const Chain& chain, const float* input, float* next, const float* states,
                                   int first) {
    const int n = chain.n, count = std::min(BLOCK, n - first);
    for (int b = 0; b < chain.batch; b++) {
        const float* s = states + size_t(b) * size_t(n);
        float* to = next + size_t(b) * size_t(n) + first;
        float x[BLOCK];
        for (int i = 0; i < count; i += ROWS) multiply_rows(x + i, chain.weight.data(), s, first + i, n);
        const float *in = input + first, *gain = chain.gain.data() + first, *leak = chain.leak.data() + first;
#pragma omp simd
        for (int i = 0; i < count; i++) {
            float v = x[i] + in[i];
            v = 1.0f - 2.0f / (exp2_fast(std::min(2.88539008f * v, 115.0f)) + 1.0f);  // tanh
            v *= gain[i];
            v += leak[i] * (s[first + i] - v);
            to[i] = v / (1.0f + std::fabs(v));
        }
    }
}

void run_chain_cpu(const Chain& chain, std::vector<float>& states, int first, int steps,
                   [[maybe_unused]] int threads) {  // unused without OpenMP
    std::vector<float> other(states.size());
#pragma omp parallel num_threads(threads)
    {
        float *now = states.data(), *next = other.data();
        for (int step = first; step < first + steps; step++) {
            const float* input = chain.inputs.data() + size_t(step % CHAIN_PERIOD) * size_t(chain.n);
#pragma omp for schedule(static)  // its implicit barrier orders the steps
            for (int i = 0; i < chain.n; i += BLOCK) simd<block_step>(chain, input, next, now, i);
            std::swap(now, next);
        }
    }
    if (steps % 2) states = other;
}

double chain_error(const std::vector<float>& states, const std::vector<float>& reference) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (states.size() != reference.size()) return nan;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < states.size(); i++) {
        const double d = std::fabs(double(states[i]) - double(reference[i]));
        if (std::isnan(d)) return nan;
        difference = std::max(difference, d);
        largest = std::max(largest, double(std::fabs(reference[i])));
    }
    return difference / largest;  // NaN if the reference is zero, which no chain is
}

// --- GPU ---

const char* chain_variant_name(ChainVariant variant) {
    switch (variant) {
        case ChainVariant::unfused:
            return "GPU unfused";
        case ChainVariant::fused:
            return "GPU fused";
        case ChainVariant::one_dispatch:
            return "GPU one dispatch per step";
        case ChainVariant::many_steps:
            return "GPU many steps per dispatch";
    }
    return "";
}

struct ChainOnGpu::Buffers {
    Memory memory;
    float *weight, *inputs, *gain, *leak, *x;
    float* states[2];  // one_dispatch reads one and writes the other

    Buffers(LaunchPad& pad, const Chain& chain) : memory(&pad) {
        auto filled = [&](const std::vector<float>& values, const char* label) {
            float* p = memory.allocate<float>(values.size(), label);
            memory.upload(p, values.data(), values.size());
            return p;
        };
        weight = filled(chain.weight, "chain weight");
        inputs = filled(chain.inputs, "chain inputs");
        gain = filled(chain.gain, "chain gain");
        leak = filled(chain.leak, "chain leak");
        const std::vector<float> nans(chain.start.size(), std::numeric_limits<float>::quiet_NaN());
        x = filled(nans, "chain x");
        for (float*& s : states) s = filled(nans, "chain state");
    }

    struct Steps {
        int from, to;      // indices into states
        int first, steps;  // number of the first step, how many
    };
    ChainArgs arguments(const Chain& of, const Steps& s) const {
        LaunchPad& launchpad = *memory.pad;
        const size_t n = size_t(of.n), all = of.start.size();
        return {.next = launchpad.at(states[s.to], all),
                .state = launchpad.at(states[s.from], all),
                .x = launchpad.at(x, all),
                .weight = launchpad.at(weight, n * n),
                .inputs = launchpad.at(inputs, n * CHAIN_PERIOD),
                .gain = launchpad.at(gain, n),
                .leak = launchpad.at(leak, n),
                .n = of.n,
                .step = s.first,
                .steps = s.steps};
    }
};

bool ChainOnGpu::possible(const LaunchPad& pad, const Chain& chain, ChainVariant variant) {
    return variant != ChainVariant::many_steps ||
           2 * sizeof(float) * chain.start.size() <= pad.limits().shared_bytes;
}

ChainOnGpu::ChainOnGpu(LaunchPad& launchpad, const Chain& c, ChainVariant v, int steps)
    : pad(launchpad), chain(c), variant(v), chunk(steps), buffers(std::make_unique<Buffers>(launchpad, c)) {
    if (chunk <= 0 || chunk % CHAIN_PERIOD)
        fail("chain: a chunk of %d steps is not a multiple of %d", chunk, CHAIN_PERIOD);
    use_report_shaders();
    pad.begin_recording();
    if (variant == ChainVariant::many_steps)
        for (int step = 0; step < chunk;) step += record_many_steps(step, chunk - step);
    else
        for (int step = 0; step < chunk; step++) record_step(step);
    recording = pad.end_recording();
}

ChainOnGpu::~ChainOnGpu() { pad.forget(recording); }

void ChainOnGpu::record_step(int step) {
    const uint32_t batch = uint32_t(chain.batch), subgroups = 4, block = 256;
    const bool one_dispatch = variant == ChainVariant::one_dispatch;
    const int from = one_dispatch ? step % 2 : 0, to = one_dispatch ? 1 - from : 0;
    const ChainArgs args = buffers->arguments(chain, {.from = from, .to = to, .first = step, .steps = 1});
    pad.dispatch("chain_matmul", {ceil_div(uint64_t(chain.n), subgroups)},
                 {subgroups * pad.limits().subgroup_size, batch, one_dispatch}, args);
    const Groups groups = {ceil_div(chain.start.size(), block)};
    if (variant == ChainVariant::fused)
        pad.dispatch("chain_pointwise", groups, {block, batch, CHAIN_ADD, CHAIN_SQUASH}, args);
    if (variant != ChainVariant::unfused) return;
    ChainArgs in_place = args;
    in_place.next = args.x;
    for (uint32_t operation = CHAIN_ADD; operation <= CHAIN_SQUASH; operation++)
        pad.dispatch("chain_pointwise", groups, {block, batch, operation, operation},
                     operation == CHAIN_SQUASH ? args : in_place);
}

// Limits the steps of a dispatch, since Mesa's software devices end an invocation after 65,535 loop
// iterations.
int ChainOnGpu::record_many_steps(int first, int max_steps) {
    const uint32_t lanes = pad.limits().subgroup_size, n = uint32_t(chain.n), batch = uint32_t(chain.batch);
    const uint32_t subgroups = std::min(pad.limits().max_block / lanes, n);
    const uint64_t per_step = 1 + ceil_div(n, subgroups) * (1 + ceil_div(n, lanes) + ceil_div(batch, lanes));
    const uint64_t copying = 2 * ceil_div(uint64_t(batch) * n, subgroups * lanes);
    const int steps = int(std::clamp<uint64_t>((60000 - copying) / per_step, 1, uint64_t(max_steps)));
    const ChainArgs args = buffers->arguments(chain, {.from = 0, .to = 0, .first = first, .steps = steps});
    pad.dispatch("chain_workgroup", {1}, {subgroups * lanes, batch, n}, args);
    return steps;
}

void ChainOnGpu::restart() {
    buffers->memory.upload(buffers->states[0], chain.start.data(), chain.start.size());
}

void ChainOnGpu::run(int steps) {
    if (steps % chunk) fail("chain: %d steps are not a multiple of %d", steps, chunk);
    for (int done = 0; done < steps; done += chunk) pad.replay(recording);
}

std::vector<float> ChainOnGpu::download() {
    std::vector<float> states(chain.start.size());
    buffers->memory.download(states.data(), buffers->states[0], states.size());
    return states;
}
