// The run's main.log with llm.c's lines, so that its plotting tools read it:
// "s:STEP tel:LOSS" (validation), "s:STEP eval:ACCURACY", "s:STEP trl:LOSS lr:RATE norm:NORM" (training).
#pragma once
#include <string>

struct MainLog {
    // dir/main.log; dir is created. resume_step < 0 begins an empty log; otherwise the lines of steps before
    // resume_step stay and later ones go, since the resumed run writes them again.
    void open(const std::string& dir, int resume_step);

    // One line each, appended and flushed to the file at once; nothing happens before open().
    void log_val(int step, float loss) const;
    void log_eval(int step, float accuracy) const;
    void log_train(int step, float loss, float learning_rate, float norm) const;

    std::string path;  // empty: not open

   private:
    void append(const std::string& line) const;
};
