// Learning rate schedules with llm.c's names and formulas; all of them honour the warm-up.
#pragma once
#include <string>

enum class Schedule { cosine, linear, constant, wsd };

struct Scheduler {
    Schedule schedule = Schedule::cosine;
    float peak = 3e-4f;           // learning rate after the warm-up
    int warmup_steps = 0;         // step s < warmup_steps runs at peak * (s + 1) / warmup_steps
    int num_steps = 1;            // of the whole run
    float final_fraction = 1.0f;  // the rate at the end, as a fraction of peak (not for constant)
};

// Error unless `name` is one of cosine, linear, constant, wsd.
Schedule parse_schedule(const std::string& name);

// The learning rate of 0-based step `step`; steps past the end keep the last rate. cosine and linear fall
// from the end of the warm-up to num_steps; wsd stays at peak and falls as 1 - sqrt over the last fifth
// (arXiv 2405.18392).
float learning_rate(const Scheduler& scheduler, int step);
