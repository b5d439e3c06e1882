// What a run writes down of its steps, in its folder: main.log with llm.c's lines, so that its plotting tools
// read it,
//     s:STEP tel:LOSS    s:STEP eval:ACCURACY    s:STEP trl:LOSS lr:RATE norm:NORM
// (validation, HellaSwag, training), and metrics.csv, the same and more with all digits, for spreadsheets and
// dev/plot.sh. A line per event; fields of a row that its event does not fill are empty. And, where they are
// asked for, the same numbers as TensorBoard's events.
#pragma once
#include <string>

#include "llmc/tensorboard.h"

struct StepNumbers {
    float loss = 0, learning_rate = 0, norm = 0;
    double tokens_per_second = 0;
    const char* skipped = "";  // why the step was not applied: "", "not finite" or "outlier"
};

struct MainLog {
    // dir/main.log and dir/metrics.csv; dir is created. resume_step < 0 begins empty logs; otherwise the
    // lines of steps before resume_step stay and later ones go, since the resumed run writes them again.
    // Error where the folder or a log cannot be written, or a log that is there cannot be read. With
    // `tensorboard` also a new file of events in dir/tensorboard: see tensorboard.h.
    void open(const std::string& dir, int resume_step, bool tensorboard = false);

    // One line each, appended and flushed to the file at once; nothing happens before open().
    void log_val(int step, float loss) const;
    void log_eval(int step, float accuracy) const;
    void log_train(int step, const StepNumbers& numbers) const;

    std::string path, metrics_path;  // empty: not open
    EventFile events;
};
