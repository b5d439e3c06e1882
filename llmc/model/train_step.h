// One training step: forward and backward pass of each micro-batch, the gradient norm, the update.
#pragma once
#include <functional>
#include <vector>

#include "llmc/model/gpt2.h"
#include "llmc/model/loss_scaling.h"

template <class Real>
struct GradientExchange;

// Fills inputs and targets, B*T tokens each. A target may be ignored_target: the step's loss and gradients
// are means over those that count, in all micro-steps and processes together.
using NextBatch = std::function<void(int* inputs, int* targets)>;

// Runs training steps. On a launchpad, the commands of a step are recorded at first use and replayed. The
// host does not wait inside a step: g.stats is copied to memory that the host reads while the next step runs.
template <class Real>
struct StepRunner {
    GPT2<Real>& g;
    Optimizer<Real>& optimizer;
    int B, T, micro_steps;
    int64_t step_tokens = int64_t(B) * T * micro_steps;  // in all processes
    float gradient_clip = 1.0f;                          // largest norm; 0: not clipped
    uint64_t dropout_seed = 42;                          // for g.dropout
    int process = 0;  // rank in the job: each process has its own dropout masks
    LossScaling scaling = {};
    GradientExchange<Real>* exchange = nullptr;  // with the other processes; null: there are none
    // If set, decides from a step's stats whether its update is applied; the host waits for them then.
    std::function<bool(const StepStats&)> should_update = nullptr;
    std::function<void(float scale)> on_new_scale = nullptr;      // called when the loss scale changes
    std::function<void(int micro_step)> on_micro_step = nullptr;  // called before each micro-step
    std::function<void()> on_submitted = nullptr;  // called while the GPU runs the backward pass

    // Queues the kernels of a step for LaunchPad::compile().
    void prepare();

    // Runs step number `step` (from 0). Steps count up from the first one. The ticket is 0 on the CPU. Error:
    // the parameters are those before the step, except in a job of several processes, or if is_updating.
    Ticket run(int step, float learning_rate, const NextBatch& next_batch);

    // Call it before anything else uses the parameters: brings other processes' weights here.
    void gather_weights();

    // Waits for a step and returns its stats; in fp16, gradient_scale includes the factor 1 / loss scale.
    // Valid until run(step + 2). In fp16, call it exactly once per step, in order: loss scaling reads it.
    const StepStats& stats(int step, Ticket ticket);

    void forget_recordings();

    // Several recordings, where the processes of a job do something between them
    struct Part {
        std::function<void()> before;  // null: nothing
        Recording* commands;
    };
    using Phase = std::vector<Part>;
    Phase first_micro, later_micro, last_micro, apply;
    Phase* being_recorded = nullptr;
    std::function<void()> before_part = nullptr;
    // Two slots, for the stats of consecutive steps
    StepStats* readback = g.memory.template allocate<StepStats>(2, "readback", Placement::host);
    int64_t counted = 0;       // targets of this step that count
    bool is_updating = false;  // and not submitted: after an error, some parameters may be those of the step
    float sent_weight = 1;     // what g.token_weight holds

   private:
    void run_phase(Phase& phase, const std::function<void()>& commands);
    void end_recording();
    void replay(const Part& part);
    void between_parts(const std::function<void()>& action);
    void synchronize();
    void forward_first();
    void head_and_backward(Gradients gradients, bool last);
    void run_micro_step(int i);
    void update();
    void reduce_and_update(int step);
    void count_targets(int micro_step, const std::vector<int>& targets);
    void set_scale(float scale);
};
