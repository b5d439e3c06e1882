// What a run prints and logs of each step, and its clock: in a pipe a line for each, llm.c's, on a terminal
// one status line that is written over.
#pragma once
#include <chrono>
#include <string>

#include "llmc/log.h"
#include "llmc/run_state.h"

struct Progress {
    using Clock = std::chrono::steady_clock;
    const MainLog& log;
    int max_steps, tokens_per_step;
    double flops_per_token = 0, peak_rate = 0;  // as in run_plan.h; 0: not known
    const char* precision = "";
    uint64_t memory_bytes = 0;  // shown on a terminal
    Clock::time_point last = Clock::now(), last_status = {};
    double average_rate = 0, total_seconds = 0;  // without the first step
    int steps = 0;                               // reported

    void restart_clock() { last = Clock::now(); }

    // A finished step (from 0). Steps are timed from one call to the next.
    void report(int step, float loss, float norm, float learning_rate, const StepJudge::Verdict& verdict);
    void print_summary(const StepJudge& judge) const;

   private:
    std::string mfu_text(double rate) const;
    void show_status(int step, float loss, float norm, double rate);
};

// To be called before anything else is printed: takes the status line away.
void clear_status_line();

// "1:02:03"
std::string duration(double seconds);
