// Learning rate schedules with llm.c's names and formulas. All of them start with the warm-up.
#pragma once
enum class Schedule { cosine, linear, constant, wsd };

struct Scheduler {
    Schedule schedule = Schedule::cosine;
    float peak = 3e-4f;           // learning rate after the warm-up
    int warmup_steps = 0;         // step s < warmup_steps runs at peak * (s + 1) / warmup_steps
    int num_steps = 1;            // of the whole run
    float final_fraction = 1.0f;  // the final rate as a fraction of peak (not for constant)
};

// The learning rate of step `step`, counted from 0; steps past the end keep the final rate. cosine and linear
// decay from the end of the warm-up to num_steps. wsd (warm-up, stable, decay) stays at peak and decays as 1
// - sqrt over the last fifth (arXiv 2405.18392).
float learning_rate(const Scheduler& scheduler, int step);
