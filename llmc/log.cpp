// main.log: one short line per event, appended with the file opened and closed each time, so that nothing is
// lost when the program is killed.
#include "llmc/log.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "llmc/error.h"
#include "llmc/file.h"

// The lines of the log that belong to steps before resume_step.
static std::string lines_before(const std::string& path, int resume_step) {
    std::ifstream file(path);
    std::string kept, line;
    int step;
    while (std::getline(file, line)) {
        if (sscanf(line.c_str(), "s:%d ", &step) == 1 && step < resume_step) kept += line + "\n";
    }
    return kept;
}

void MainLog::open(const std::string& dir, int resume_step) {
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) fail("cannot create directory %s: %s", dir.c_str(), error.message().c_str());
    std::string log_path = dir + "/main.log";
    write_whole_file(log_path, {resume_step < 0 ? std::string() : lines_before(log_path, resume_step)});
    path = log_path;
}

void MainLog::append(const std::string& line) const {
    if (path.empty()) return;
    FILE* file = fopen(path.c_str(), "a");
    bool good = file && fputs(line.c_str(), file) >= 0;
    if (file && fclose(file) != 0) good = false;
    if (!good) fail("cannot write %s: %s", path.c_str(), strerror(errno));
}

void MainLog::log_val(int step, float loss) const { append(format_string("s:%d tel:%.4f\n", step, loss)); }

void MainLog::log_eval(int step, float accuracy) const {
    append(format_string("s:%d eval:%.4f\n", step, accuracy));
}

void MainLog::log_train(int step, float loss, float rate, float norm) const {
    append(format_string("s:%d trl:%.4f lr:%.6f norm:%.2f\n", step, loss, rate, norm));
}
