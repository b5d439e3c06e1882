// Lines about steps, on standard output, in main.log and in metrics.csv.
#include "llmc/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "llmc/error.h"

std::string duration(double seconds) {
    const long s = std::lround(seconds);
    return format_string("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

// --- the status line ---

static bool status_line_is_there = false;

void clear_status_line() {
    if (status_line_is_there) printf("\r\033[K");
    status_line_is_there = false;
}

// Columns of the terminal; 0: standard output is none.
static size_t terminal_width() {
    winsize size = {};
    if (!isatty(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static std::string bar(double done, int width) {
    std::string text(size_t(width) + 2, '.');
    std::fill_n(text.begin() + 1, int(done * width), '#');
    text.front() = '[';
    text.back() = ']';
    return text;
}

void Progress::show_status(int step, float loss, float norm, double rate) {
    const auto now = Clock::now();
    const bool last_step = step + 1 == max_steps;
    if (now - last_status < std::chrono::milliseconds(100) && !last_step) return;
    last_status = now;
    const double left = double(max_steps - step - 1) * tokens_per_step / rate;
    std::string line = bar(double(step + 1) / max_steps, 20);
    line += format_string(" %d/%d ETA %s | loss %.4f | norm %.3f | %.0f tok/s", step + 1, max_steps,
                          duration(left).c_str(), loss, norm, rate);
    line += mfu_text(rate) + format_string(" | %.1f GiB", double(memory_bytes) / (1 << 30));
    clear_status_line();
    fputs(line.substr(0, terminal_width() - 1).c_str(), stdout);
    status_line_is_there = true;
    if (last_step) {  // it stays
        printf("\n");
        status_line_is_there = false;
    }
}

// --- lines ---

// " (+1.23z)", as llm.c writes it; nothing until it is known.
static std::string z_text(double z) { return std::isnan(z) ? " " : format_string(" (%+.2fz)", z); }

std::string Progress::mfu_text(double rate) const {
    if (!peak_rate) return "";
    return format_string(" | %.1f%% %s MFU", 100 * rate * flops_per_token / peak_rate, precision);
}

void Progress::report(int step, float loss, float norm, float learning_rate,
                      const StepJudge::Verdict& verdict) {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last).count();
    last = now;
    if (++steps > 1) {  // the first step builds kernels and touches memory
        total_seconds += seconds;
        average_rate =
            steps == 2 ? tokens_per_step / seconds : 0.95 * average_rate + 0.05 * tokens_per_step / seconds;
    }
    const double rate = average_rate > 0 ? average_rate : tokens_per_step / seconds;
    if (terminal_width())
        show_status(step, loss, norm, rate);
    else  // llm.c's line, with the time that is left
        printf("step %4d/%d | loss %7.6f%s| norm %6.4f%s| lr %.2e | %.2f ms%s | %.0f tok/s | ETA %s\n",
               step + 1, max_steps, loss, z_text(verdict.loss_z).c_str(), norm,
               z_text(verdict.norm_z).c_str(), learning_rate, seconds * 1e3, mfu_text(rate).c_str(), rate,
               duration(double(max_steps - step - 1) * tokens_per_step / rate).c_str());
    const char* skipped = verdict.not_finite ? "not finite" : verdict.outlier ? "an outlier" : "";
    if (*skipped) {
        clear_status_line();
        printf("step %4d: the loss or the gradient is %s; the update was skipped\n", step + 1, skipped);
    }
    fflush(stdout);
    log.log_train(step, {loss, learning_rate, norm, rate, verdict.outlier ? "outlier" : skipped});
}

void Progress::print_summary(const StepJudge& judge) const {
    clear_status_line();
    if (steps > 1) printf("total average iteration time: %f ms\n", 1e3 * total_seconds / (steps - 1));
    if (judge.not_finite)
        printf("%d updates were skipped: their loss or gradient was not finite\n", judge.not_finite);
    if (judge.outliers)
        printf("%d updates were skipped: their loss or gradient was an outlier\n", judge.outliers);
}
