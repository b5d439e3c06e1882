// The logs of a run, in its folder. main.log has llm.c's lines for validation, HellaSwag and training, so
// that llm.c's plotting tools can read it:
//     s:STEP tel:LOSS    s:STEP eval:ACCURACY    s:STEP trl:LOSS lr:RATE norm:NORM
// No log has values that are not finite; a training line with one is left out of main.log.
// metrics.csv has the same values and more, with all digits, for spreadsheets and --plot: one row per
// event, with empty fields where an event has no value. `seconds` counts the time of all parts of a resumed
// run, `tokens` those trained on before the event. TensorBoard events with the same values are optional.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "llmc/run/tensorboard.h"

struct StepNumbers {
    float loss = 0, learning_rate = 0, norm = 0;
    double tokens_per_second = 0;
    const char* skipped = "";  // why the update was skipped: "", "not finite" or "outlier"
};

// A file to which lines or events are appended, each at once, so that a killed program loses nothing. If that
// fails, it warns once and keeps them: the next append() tries again, and so does the destructor, which
// reports what is lost.
struct LogFile {
    LogFile() = default;
    ~LogFile();
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;

    void append(const std::string& bytes);

    std::string path;   // empty: not open, nothing is written
    std::string start;  // of a file that is new, since somebody removed it

   private:
    static constexpr size_t most_pending = 16 << 20;  // bytes; later ones are dropped
    bool write_pending();
    std::string pending;
    bool failing = false;
};

struct MainLog {
    // Creates dir and opens dir/main.log and dir/metrics.csv. If resume_step < 0, the logs start empty.
    // Otherwise lines of steps before resume_step are kept and later ones are dropped, since the resumed run
    // logs these steps again. `tensorboard` also creates an event file in dir/tensorboard: see tensorboard.h.
    // `before_writing` is called once the logs that are there turn out to be this program's. Throws Error if
    // they are not, or if the folder or a log cannot be written.
    void open(const std::string& dir, int resume_step, bool tensorboard = false,
              const std::function<void()>& before_writing = nullptr);

    // Each appends a line, as LogFile does. Nothing happens before open().
    void log_val(int step, float loss, double bits_per_byte = NAN) const;  // NAN: unknown
    void log_eval(int step, float accuracy) const;
    void log_train(int step, const StepNumbers& numbers) const;

    // Set them before open().
    int tokens_per_step = 0;
    int first_step = 0;          // of this part of the run
    uint64_t tokens_before = 0;  // trained on before it
    mutable LogFile main, metrics, events;

   private:
    std::string time_and_tokens(int steps_done) const;
    double opened = 0;
    double seconds_before = 0;  // of the run's earlier parts
};
