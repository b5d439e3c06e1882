// The chain: its numbers, the CPU's version, the GPU's forms. See chain.h.
#include "dev/report/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "llmc/memory.h"
#include "llmc/simd.h"
#include "llmc/vector_math.h"
#include "shaders/args.h"

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

static const int ROWS = 4;    // of the weights, multiplied side by side
static const int BLOCK = 32;  // rows that a thread takes at once

// x = rows first to first + ROWS of the weights times s; rows from n on are not looked at.
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

// A round of BLOCK elements from `first` on, fewer at the end, of all states.
SIMD_CLONES static void block_round(const Chain& chain, const float* input, float* next, const float* states,
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
            v = 1.0f - 2.0f / (exp_fast(std::min(2.0f * v, 80.0f)) + 1.0f);  // tanh
            v *= gain[i];
            v += leak[i] * (s[first + i] - v);
            to[i] = v / (1.0f + std::fabs(v));
        }
    }
}

void run_chain_cpu(const Chain& chain, std::vector<float>& states, int first, int rounds, int threads) {
    std::vector<float> other(states.size());
#pragma omp parallel num_threads(threads)
    {
        float *now = states.data(), *next = other.data();
        for (int round = first; round < first + rounds; round++) {
            const float* input = chain.inputs.data() + size_t(round % CHAIN_PERIOD) * size_t(chain.n);
#pragma omp for schedule(static)  // whose end is what the round after it waits for
            for (int i = 0; i < chain.n; i += BLOCK) block_round(chain, input, next, now, i);
            std::swap(now, next);
        }
    }
    if (rounds % 2) states = other;
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
    return difference / largest;  // NaN for zeros alone, which no chain ends with
}

// --- GPU ---

const char* chain_form_name(ChainForm form) {
    switch (form) {
        case ChainForm::unfused:
            return "GPU unfused";
        case ChainForm::fused:
            return "GPU fused";
        case ChainForm::whole_round:
            return "GPU whole round";
        case ChainForm::workgroup:
            return "GPU one workgroup";
    }
    return "";
}

struct ChainOnGpu::Buffers {
    Memory memory;
    float *weight, *inputs, *gain, *leak, *x;
    float* states[2];  // the rounds of whole_round read one and write the other

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
};

bool ChainOnGpu::possible(const LaunchPad& pad, const Chain& chain, ChainForm form) {
    return form != ChainForm::workgroup ||
           2 * sizeof(float) * chain.start.size() <= pad.limits().shared_bytes;
}

ChainOnGpu::ChainOnGpu(LaunchPad& launchpad, const Chain& c, ChainForm f, int rounds)
    : pad(launchpad), chain(c), form(f), chunk(rounds), buffers(std::make_unique<Buffers>(launchpad, c)) {
    if (chunk <= 0 || chunk % CHAIN_PERIOD)
        fail("chain: a chunk of %d rounds is not a multiple of %d", chunk, CHAIN_PERIOD);
    pad.begin_recording();
    if (form == ChainForm::workgroup)
        for (int round = 0; round < chunk;) round += record_workgroup(round, chunk - round);
    else
        for (int round = 0; round < chunk; round++) record(round);
    recording = pad.end_recording();
}

ChainOnGpu::~ChainOnGpu() { pad.forget(recording); }

static ChainArgs chain_args(LaunchPad& pad, const Chain& chain, const float* next, const float* state,
                            const float* x, const float* const (&constants)[4], int round, int rounds) {
    const size_t n = size_t(chain.n), all = chain.start.size();
    return {pad.at(next, all),
            pad.at(state, all),
            pad.at(x, all),
            pad.at(constants[0], n * n),
            pad.at(constants[1], n * CHAIN_PERIOD),
            pad.at(constants[2], n),
            pad.at(constants[3], n),
            chain.n,
            round,
            rounds};
}

void ChainOnGpu::record(int round) {
    Buffers& m = *buffers;
    const float* const constants[] = {m.weight, m.inputs, m.gain, m.leak};
    const uint32_t batch = uint32_t(chain.batch), subgroups = 4, block = 256;
    const bool whole = form == ChainForm::whole_round;
    float *state = m.states[whole ? round % 2 : 0], *next = m.states[whole ? 1 - round % 2 : 0];
    const ChainArgs args = chain_args(pad, chain, next, state, m.x, constants, round, 1);
    pad.dispatch("chain_product", {blocks(uint64_t(chain.n), subgroups)},
                 {subgroups * pad.limits().subgroup_size, batch, whole}, args);
    const Groups groups = {blocks(chain.start.size(), block)};
    if (form == ChainForm::fused)
        pad.dispatch("chain_pointwise", groups, {block, batch, CHAIN_ADD, CHAIN_SQUASH}, args);
    if (form != ChainForm::unfused) return;
    ChainArgs in_place = args;
    in_place.next = args.x;
    for (uint32_t operation = CHAIN_ADD; operation <= CHAIN_SQUASH; operation++)
        pad.dispatch("chain_pointwise", groups, {block, batch, operation, operation},
                     operation == CHAIN_SQUASH ? args : in_place);
}

// Mesa's software devices end loops after 65,535 turns (CONTRIBUTING.md), so there are fewer rounds in a
// dispatch where one takes many.
int ChainOnGpu::record_workgroup(int round, int most) {
    Buffers& m = *buffers;
    const float* const constants[] = {m.weight, m.inputs, m.gain, m.leak};
    const uint32_t lanes = pad.limits().subgroup_size, n = uint32_t(chain.n), batch = uint32_t(chain.batch);
    const uint32_t subgroups = std::min(pad.limits().max_block / lanes, n);
    const uint64_t turns = 1 + blocks(n, subgroups) * (1 + blocks(n, lanes) + blocks(batch, lanes));
    const uint64_t copying = 2 * blocks(uint64_t(batch) * n, subgroups * lanes);
    const int rounds = int(std::clamp<uint64_t>((60000 - copying) / turns, 1, uint64_t(most)));
    const ChainArgs args = chain_args(pad, chain, m.states[0], m.states[0], m.x, constants, round, rounds);
    pad.dispatch("chain_workgroup", {1}, {subgroups * lanes, batch, n}, args);
    return rounds;
}

void ChainOnGpu::restart() {
    buffers->memory.upload(buffers->states[0], chain.start.data(), chain.start.size());
}

void ChainOnGpu::run(int rounds) {
    if (rounds % chunk) fail("chain: %d rounds are not a multiple of %d", rounds, chunk);
    for (int done = 0; done < rounds; done += chunk) pad.replay(recording);
}

std::vector<float> ChainOnGpu::download() {
    std::vector<float> states(chain.start.size());
    buffers->memory.download(states.data(), buffers->states[0], states.size());
    return states;
}
