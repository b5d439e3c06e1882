// What a run prints while it works: what it does before the first step, then every step. A terminal shows one
// status line, which is overwritten. A log or a pipe gets plain lines: few before the first step, then
// llm.c's line for every step.
#pragma once
#include <deque>
#include <optional>
#include <string>

#include "llmc/base/clock.h"
#include "llmc/run/log.h"
#include "llmc/run/run_state.h"

class LaunchPad;

// Whether standard output is a terminal whose last line can be rewritten: columns_of_terminal() (os.h). A
// launcher stands between the processes of --devices and it: they find its columns in the environment.
bool on_terminal();
bool prints_to_terminal();  // also one whose last line stays
extern const char* const columns_variable;

// Removes the status line. Call it before printing anything else.
void clear_status_line();

// Work that takes a while, such as compiling kernels:
//     Phase phase("compiling kernels", "0 of 25");
//     for (...) phase.update("1 of 25");
//     phase.done();
// A terminal shows "compiling kernels (1 of 25)" in the status line. A log gets a line at the start and then
// at most one every 5 seconds.
struct Phase {
    explicit Phase(std::string name, const std::string& detail = "");
    ~Phase() { clear_status_line(); }
    Phase(const Phase&) = delete;

    void update(const std::string& detail);
    void done();  // prints how long it took, in a log only, and only if that is over a second

   private:
    std::string name;
    double start = now(), last_line = 0;
};

// Updates the phase, which the first call begins.
void update_phase(std::optional<Phase>& phase, const std::string& name, const std::string& detail);

// Work on large files. A Phase shows how much is done, once it takes more than two seconds.
struct ByteProgress {
    // total: bytes; 0: unknown
    explicit ByteProgress(std::string work, uint64_t bytes = 0) : name(std::move(work)), total(bytes) {}
    void add(uint64_t bytes);

   private:
    std::string name;
    uint64_t total, done = 0;
    double start = now();
    std::optional<Phase> phase;
};

// "8.0 GiB", or "47.3 MiB" below 0.1 GiB.
std::string gib(uint64_t bytes);

// "1.5 of 17.4 GiB", or "1.5 GiB" if the total is 0
std::string bytes_text(uint64_t done, uint64_t total);

// Tunes the GEMM tiles for this device, unless that was done before, and compiles the kernels that the model
// needs. Tuning only affects speed, so a failure of it is printed and not an error.
void prepare_kernels(LaunchPad& pad);

// Reports steps.
struct Progress {
    const MainLog& log;
    int max_steps, tokens_per_step;
    double flops_per_token = 0, peak_rate = 0;  // see run_plan.h; 0: unknown
    const char* precision = "";
    uint64_t memory_bytes = 0;  // shown on a terminal
    int log_every = 1;          // steps between lines elsewhere
    double last = now(), last_status = 0;
    static constexpr size_t window = 20;
    std::deque<double> recent = {};  // seconds of the last steps, `window` at most; without the first one,
                                     // once there is another
    double total_seconds = 0;        // without the first step
    int steps = 0;                   // reported so far

    void restart_clock() { last = now(); }

    // Prints and logs a step (counted from 0) that ended at the time `end`, and began when the one before
    // ended or the clock was restarted.
    void report(int step, double end, float loss, float norm, float learning_rate,
                const StepJudge::Verdict& verdict);
    void print_summary(const StepJudge& judge) const;

   private:
    // Of the recent steps. Tokens per second are all their tokens over all their time: a mean of rates would
    // count a step that is reported early more than the late one before it.
    double mean_seconds() const;
    std::string mfu_text(double rate) const;
    std::string time_left(int step) const;
    void show_status(int step, float loss, float norm, double rate);
};

// "1:02:03"
std::string duration(double seconds);
