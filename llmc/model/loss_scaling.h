// Dynamic loss scaling for fp16 (Micikevicius et al. 2018). Gradients below 2^-14 may underflow in fp16,
// since devices may flush its subnormals, so the loss is multiplied by a power of two before the backward
// pass; the gradient norm and the update divide by it. If the scale is too large, the norm is not finite, and
// AdamW skips that update.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

struct LossScaling {
    static constexpr float first = 65536, most = 0x1p34f;
    static constexpr int patience = 2000;  // consecutive finite steps before the factor is doubled

    float factor = first;                      // of the current step
    int since = 0;                             // the first step that ran with it
    int good_steps = 0;                        // consecutive finite steps with it
    std::vector<std::pair<int, float>> ended;  // finished steps and their norms, not yet processed

    // Records the norm of a step. Steps are recorded in order.
    void add(int step, float norm) { ended.push_back({step, norm}); }

    // The factor for the step that is about to begin. It depends on steps up to step - 2 only, because the
    // device may still be working on step - 1. A run that knows more, such as a resumed one, decides the same
    // way.
    float for_step(int step) {
        while (!ended.empty() && ended.front().first <= step - 2) {
            const auto [of, norm] = ended.front();
            ended.erase(ended.begin());
            if (of >= since) process(norm, step);
        }
        return factor;
    }

   private:
    void process(float norm, int next_step) {
        const bool good = std::isfinite(norm);
        good_steps = good ? good_steps + 1 : 0;
        const bool change = good ? good_steps >= patience && factor < most : factor > 1;
        if (!change) return;
        factor = good ? 2 * factor : factor / 2;
        since = next_step;
        good_steps = 0;
    }
};
