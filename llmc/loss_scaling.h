// Loss scaling for fp16: gradients below 2^-24 would vanish there, so the loss is multiplied by a power of
// two before the backward pass, and the gradients' norm and update divide it out again (Micikevicius et al.
// 2018). A factor that is too large shows as a norm that is not finite; that update is skipped by AdamW
// itself.
#pragma once
#include <cmath>

struct LossScaling {
    static constexpr float first = 65536, most = 0x1p24f;
    static constexpr int patience = 2000;  // good steps before the factor is doubled
    int since = 0;                         // the first step that ran with the present factor
    int good_steps = 0;

    // The factor for the steps from next_step on, now that `step` is known to have ended with this norm.
    // Results come in late: steps begun before the last change say nothing about the present factor.
    float next(float factor, int step, float norm, int next_step) {
        if (step < since) return factor;
        const bool good = std::isfinite(norm);
        good_steps = good ? good_steps + 1 : 0;
        const bool change = good ? good_steps >= patience && factor < most : factor > 1;
        if (!change) return factor;
        since = next_step;
        good_steps = 0;
        return good ? 2 * factor : factor / 2;
    }
};
