// Opens and closes a log for every line, so that a killed program loses nothing.
#include "llmc/run/log.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/run/log_lines.h"

static const char* metrics_header =
    "step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag\n";

// The part of a log that a resumed run keeps; "" if there is no log yet.
static std::string kept_lines(const std::string& path, std::string_view before, char after, int resume_step) {
    if (resume_step < 0 || !std::filesystem::exists(path)) return "";
    return lines_before(read_whole_file(path), before, after, resume_step);
}

void MainLog::open(const std::string& dir, int resume_step, bool tensorboard) {
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) fail("cannot create directory %s: %s", dir.c_str(), error.message().c_str());
    const std::string log = dir + "/main.log", metrics = dir + "/metrics.csv";
    write_whole_file(log, {kept_lines(log, "s:", ' ', resume_step)});
    write_whole_file(metrics, {metrics_header, kept_lines(metrics, "", ',', resume_step)});
    path = log;
    metrics_path = metrics;
    if (tensorboard) events.open(dir + "/" + tensorboard_folder, resume_step);
}

static void append(const std::string& path, const std::string& line) {
    if (path.empty()) return;
    FILE* file = fopen(path.c_str(), "a");
    bool good = file && fputs(line.c_str(), file) >= 0;
    if (file && fclose(file) != 0) good = false;
    if (!good) fail("cannot write %s: %s", path.c_str(), strerror(errno));
}

void MainLog::log_val(int step, float loss) const {
    append(path, format_string("s:%d tel:%.4f\n", step, loss));
    append(metrics_path, format_string("%d,,,,,,%.9g,\n", step, loss));
    events.write(step, {{"loss/validation", loss}});
}

void MainLog::log_eval(int step, float accuracy) const {
    append(path, format_string("s:%d eval:%.4f\n", step, accuracy));
    append(metrics_path, format_string("%d,,,,,,,%.9g\n", step, accuracy));
    events.write(step, {{"hellaswag/accuracy", accuracy}});
}

void MainLog::log_train(int step, const StepNumbers& n) const {
    append(path, format_string("s:%d trl:%.4f lr:%.6f norm:%.2f\n", step, n.loss, n.learning_rate, n.norm));
    append(metrics_path, format_string("%d,%.9g,%.9g,%.9g,%.0f,%s,,\n", step, n.loss, n.learning_rate, n.norm,
                                       n.tokens_per_second, n.skipped));
    events.write(step, {{"loss/train", n.loss},
                        {"training/gradient_norm", n.norm},
                        {"training/learning_rate", n.learning_rate},
                        {"training/tokens_per_second", float(n.tokens_per_second)}});
}
