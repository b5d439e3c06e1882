// Loss scaling for fp16: gradients below 2^-24 would vanish there, so the loss is multiplied by a power of
// two before the backward pass, and the gradients' norm and update divide it out again (Micikevicius et al.
// 2018). A factor that is too large shows as a norm that is not finite; that update is skipped by AdamW
// itself.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

struct LossScaling {
    static constexpr float first = 65536, most = 0x1p24f;
    static constexpr int patience = 2000;  // good steps before the factor is doubled

    float factor = first;  // of the step at hand
    int since = 0;         // the first step that ran with it
    int good_steps = 0;
    std::vector<std::pair<int, float>> ended;  // steps that have ended and their norms, not yet looked at

    // The norm of a step, as soon as it is known; in the order of steps.
    void add(int step, float norm) { ended.push_back({step, norm}); }

    // The factor for a step that is about to begin. It looks at steps up to the last but one: a device still
    // works on the last, and a run that happens to know more, such as one that was resumed, decides alike.
    float for_step(int step) {
        while (!ended.empty() && ended.front().first <= step - 2) {
            const auto [of, norm] = ended.front();
            ended.erase(ended.begin());
            if (of >= since) look_at(norm, step);
        }
        return factor;
    }

   private:
    void look_at(float norm, int next_step) {
        const bool good = std::isfinite(norm);
        good_steps = good ? good_steps + 1 : 0;
        const bool change = good ? good_steps >= patience && factor < most : factor > 1;
        if (!change) return;
        factor = good ? 2 * factor : factor / 2;
        since = next_step;
        good_steps = 0;
    }
};
