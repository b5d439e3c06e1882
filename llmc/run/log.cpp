#include "llmc/run/log.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/system_files.h"
#include "llmc/run/run_folder.h"

static const char* metrics_header =
    "step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag,seconds,tokens,"
    "val_bits_per_byte\n";

// The part of a log that a resumed run keeps; "" if there is no log yet. Error for a file that begins neither
// with `start` nor with zeros, which a power failure can leave.
static std::string kept_lines(const std::string& path, std::string_view start, std::string_view before,
                              char after, int resume_step) {
    if (resume_step < 0 || !file_exists(path)) return "";
    const std::string log = read_whole_file(path);
    if (!log.empty() && log[0] != '\0' && !log.starts_with(start))
        fail("%s is not a log of this program: move it", path.c_str());
    return lines_before(log, before, after, resume_step);
}

// The seconds in the last line of a metrics.csv; 0: there are none, or no run can have taken so long.
static double last_seconds(const std::string& lines) {
    const size_t end = lines.find_last_not_of('\n') + 1, start = lines.rfind('\n', end - 1) + 1;
    const std::string line = lines.substr(start, end - start);
    size_t column = 0;  // the ninth, if there are as many
    for (int comma = 0; comma < 8 && column != line.npos; comma++)
        column = line.find(',', column + (comma > 0));
    const bool has_tokens = column != line.npos && line.find(',', column + 1) != line.npos;
    const double seconds = has_tokens ? strtod(line.c_str() + column + 1, nullptr) : 0;
    return seconds >= 0 && seconds < 1e12 ? seconds : 0;
}

std::string MainLog::time_and_tokens(int steps_done) const {
    return format_string(
        "%.3f,%llu", seconds_before + now() - opened,
        (unsigned long long)(tokens_before + uint64_t(steps_done - first_step) * uint64_t(tokens_per_step)));
}

void MainLog::open(const std::string& dir, int resume_step, bool tensorboard,
                   const std::function<void()>& before_writing) {
    create_folders(dir);
    const std::string main_path = dir + "/main.log", metrics_path = dir + "/metrics.csv";
    const std::string kept_of_main = kept_lines(main_path, "s:", "s:", ' ', resume_step);
    const std::string kept = kept_lines(metrics_path, "step,", "", ',', resume_step);
    if (before_writing) before_writing();
    write_whole_file(main_path, {kept_of_main});
    write_whole_file(metrics_path, {metrics_header, kept});
    seconds_before = last_seconds(kept);
    opened = now();
    main.path = main_path;
    metrics.path = metrics_path;
    metrics.start = metrics_header;
    if (tensorboard) events.path = start_event_file(dir + "/" + tensorboard_folder, resume_step);
}

// Returns whether everything is in the file. What was written in part is continued.
bool LogFile::write_pending() {
    const std::optional<FileStatus> status = get_status(path);
    const bool is_new = status ? status->size == 0 : errno == ENOENT;
    if (is_new && (append_to_file(path, start) != start.size() || errno != 0)) return false;
    const size_t written = append_to_file(path, pending);
    const int error = errno;
    pending.erase(0, written);
    errno = error;
    return pending.empty() && error == 0;
}

void LogFile::append(const std::string& bytes) {
    if (path.empty()) return;
    if (pending.size() + bytes.size() <= most_pending) pending += bytes;
    const bool good = write_pending();
    if (!good && !failing)
        warn("cannot write %s: %s; the run continues and tries again", path.c_str(), strerror(errno));
    failing = !good;
}

LogFile::~LogFile() {
    if (path.empty()) return;
    if (!pending.empty() && !write_pending())
        warn("%s lacks its last %zu bytes: %s", path.c_str(), pending.size(), strerror(errno));
    else if (!flush_file(path))
        warn("%s may lack its last lines: it cannot be flushed to disk: %s", path.c_str(), strerror(errno));
}

// "" for a value that is not finite.
static std::string field(double value) { return std::isfinite(value) ? format_string("%.9g", value) : ""; }

void MainLog::log_val(int step, float loss, double bits_per_byte) const {
    main.append(format_string("s:%d tel:%.4f\n", step, loss));
    metrics.append(format_string("%d,,,,,,%.9g,,%s,%s\n", step, loss, time_and_tokens(step).c_str(),
                                 field(bits_per_byte).c_str()));
    events.append(event_record(step, {{"loss/validation", loss}}));
}

void MainLog::log_eval(int step, float accuracy) const {
    main.append(format_string("s:%d eval:%.4f\n", step, accuracy));
    metrics.append(format_string("%d,,,,,,,%.9g,%s,\n", step, accuracy, time_and_tokens(step).c_str()));
    events.append(event_record(step, {{"hellaswag/accuracy", accuracy}}));
}

void MainLog::log_train(int step, const StepNumbers& n) const {
    if (std::isfinite(n.loss) && std::isfinite(n.norm))
        main.append(
            format_string("s:%d trl:%.4f lr:%.6f norm:%.2f\n", step, n.loss, n.learning_rate, n.norm));
    metrics.append(format_string("%d,%s,%.9g,%s,%.0f,%s,,,%s,\n", step, field(n.loss).c_str(),
                                 n.learning_rate, field(n.norm).c_str(), n.tokens_per_second, n.skipped,
                                 time_and_tokens(step + 1).c_str()));
    std::vector<Scalar> scalars = {{"loss/train", n.loss},
                                   {"training/gradient_norm", n.norm},
                                   {"training/learning_rate", n.learning_rate},
                                   {"training/tokens_per_second", float(n.tokens_per_second)}};
    std::erase_if(scalars, [](const Scalar& scalar) { return !std::isfinite(scalar.value); });
    events.append(event_record(step, scalars));
}
