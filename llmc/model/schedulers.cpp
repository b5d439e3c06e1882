// Computed in float as in llm.c, so that printed rates agree in every digit.
#include "llmc/model/schedulers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

// The position of step between `from` (0) and `to` (1); 1 if the interval is empty.
static float progress(int step, int from, int to) {
    return to > from ? std::clamp(float(step - from) / float(to - from), 0.0f, 1.0f) : 1.0f;
}

float learning_rate(const Scheduler& scheduler, int step) {
    float peak = scheduler.peak, lowest = peak * scheduler.final_fraction;
    if (step < scheduler.warmup_steps) return peak * float(step + 1) / float(scheduler.warmup_steps);
    float decay = progress(step, scheduler.warmup_steps, scheduler.num_steps);
    int wsd_decay_step = int(0.8f * float(scheduler.num_steps));
    switch (scheduler.schedule) {
        case Schedule::cosine:
            return lowest + 0.5f * (1.0f + std::cos(float(std::numbers::pi * decay))) * (peak - lowest);
        case Schedule::linear:
            return peak - decay * (peak - lowest);
        case Schedule::constant:
            return peak;
        case Schedule::wsd:
            if (step < wsd_decay_step) return peak;
            return lowest +
                   (1.0f - std::sqrt(progress(step, wsd_decay_step, scheduler.num_steps))) * (peak - lowest);
    }
    return peak;
}
