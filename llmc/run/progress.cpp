#include "llmc/run/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/utf8.h"
#include "llmc/launchpad/launchpad.h"

std::string duration(double seconds) {
    const long s = std::lround(seconds);
    return format_string("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

// --- the status line ---

const char* const columns_variable = "LLMC_COLUMNS";

static size_t columns() {
    const char* launched = getenv(columns_variable);
    return launched ? size_t(atoi(launched)) : columns_of_terminal();
}

bool on_terminal() { return columns() > 0; }

bool prints_to_terminal() { return getenv(columns_variable) || is_terminal(stdout); }

static bool status_line_is_there = false;

void clear_status_line() {
    if (!status_line_is_there) return;
    printf("\r\033[K");
    fflush(stdout);
    status_line_is_there = false;
}

static void show_status_line(const std::string& text) {
    clear_status_line();
    fputs(first_characters(printable(text), columns() - 1).c_str(), stdout);
    fflush(stdout);
    status_line_is_there = true;
}

// --- before the first step ---

Phase::Phase(std::string what, const std::string& detail) : name(std::move(what)) { update(detail); }

void Phase::update(const std::string& detail) {
    const std::string text = detail.empty() ? name : name + " (" + detail + ")";
    if (on_terminal()) return show_status_line(text);
    if (now() - last_line < 5) return;
    last_line = now();
    print_line(stdout, "%s", text.c_str());
}

void Phase::done() {
    clear_status_line();
    const double seconds = now() - start;
    if (!on_terminal() && seconds > 1) printf("%s: done in %.1f s\n", name.c_str(), seconds);
}

void update_phase(std::optional<Phase>& phase, const std::string& name, const std::string& detail) {
    if (phase)
        phase->update(detail);
    else
        phase.emplace(name, detail);
}

// Shows a phase from the first call of the progress callback on: without one, there was nothing to do.
template <class Action>
static void show_phase(const char* name, Action action) {
    std::optional<Phase> phase;
    action([&](int done, int total) { update_phase(phase, name, format_string("%d of %d", done, total)); });
    if (phase) phase->done();
}

// The unit for a size: GiB, or MiB for what would be 0.0 GiB.
static std::pair<double, const char*> unit_of(uint64_t bytes) {
    const double mib = 1 << 20, gib = 1 << 30;
    return double(bytes) < 0.1 * gib ? std::pair(mib, "MiB") : std::pair(gib, "GiB");
}

std::string gib(uint64_t bytes) {
    const auto [unit, name] = unit_of(bytes);
    return format_string("%.1f %s", double(bytes) / unit, name);
}

std::string bytes_text(uint64_t done, uint64_t total) {
    if (!total) return gib(done);
    const auto [unit, name] = unit_of(total);
    return format_string("%.1f of %.1f %s", double(std::min(done, total)) / unit, double(total) / unit, name);
}

void ByteProgress::add(uint64_t bytes) {
    done += bytes;
    if (phase || now() - start > 2) update_phase(phase, name, bytes_text(done, total));
}

static void compile_kernels(LaunchPad& pad) {
    show_phase("compiling kernels", [&](const auto& progress) { pad.compile(progress); });
}

void prepare_kernels(LaunchPad& pad) {
    compile_kernels(pad);  // so that tuning builds tiles alone
    try {
        show_phase("tuning GEMM tiles", [&](const auto& progress) { pad.tune(progress); });
    } catch (const DeviceLost&) {
        throw;
    } catch (const Error& error) {
        clear_status_line();
        print_line(stdout, "note: the GEMM tiles were not tuned: %s", error.what());
    }
    compile_kernels(pad);
}

// --- steps ---

double Progress::mean_seconds() const {
    return std::accumulate(recent.begin(), recent.end(), 0.0) / double(recent.size());
}

std::string Progress::time_left(int step) const {
    return duration(double(max_steps - step - 1) * mean_seconds());
}

void Progress::show_status(int step, float loss, float norm, double rate) {
    const bool last_step = step + 1 == max_steps;
    if (now() - last_status < 0.1 && !last_step) return;
    last_status = now();
    const size_t width = 20, filled = size_t(step + 1) * width / size_t(max_steps);
    std::string line = '[' + std::string(filled, '#') + std::string(width - filled, '.') + ']';
    line += format_string(" %d/%d ETA %s | loss %.4f | norm %.3f | %.0f tok/s", step + 1, max_steps,
                          time_left(step).c_str(), loss, norm, rate);
    line += mfu_text(rate) + " | " + gib(memory_bytes);
    show_status_line(line);
    if (last_step) {  // the line stays
        printf("\n");
        status_line_is_there = false;
    }
}

// " (+1.23z)", as llm.c writes it; " " while the z-score is unknown.
static std::string z_text(double z) { return std::isnan(z) ? " " : format_string(" (%+.2fz)", z); }

std::string Progress::mfu_text(double rate) const {
    if (!peak_rate) return "";
    return format_string(" | %.1f%% %s MFU", 100 * rate * flops_per_token / peak_rate, precision);
}

void Progress::report(int step, double end, float loss, float norm, float learning_rate,
                      const StepJudge::Verdict& verdict) {
    const double seconds = end - std::exchange(last, end);
    if (++steps > 1) total_seconds += seconds;
    if (steps == 2) recent.clear();  // the first step also compiles kernels and touches memory
    recent.push_back(seconds);
    if (recent.size() > window) recent.pop_front();
    const double rate = tokens_per_step / mean_seconds();
    if (on_terminal())
        show_status(step, loss, norm, rate);
    else if ((step + 1) % log_every == 0 || step + 1 == max_steps)  // llm.c's line and the remaining time
        printf("step %4d/%d | loss %7.6f%s| norm %6.4f%s| lr %.2e | %.2f ms%s | %.0f tok/s | ETA %s\n",
               step + 1, max_steps, loss, z_text(verdict.loss_z).c_str(), norm,
               z_text(verdict.norm_z).c_str(), learning_rate, seconds * 1e3, mfu_text(rate).c_str(), rate,
               time_left(step).c_str());
    const char* skipped = verdict.not_finite ? "not finite" : verdict.outlier ? "an outlier" : "";
    if (*skipped) {
        clear_status_line();
        printf("step %4d: the loss or the gradient is %s; the update was skipped\n", step + 1, skipped);
    }
    fflush(stdout);
    log.log_train(step, {.loss = loss,
                         .learning_rate = learning_rate,
                         .norm = norm,
                         .tokens_per_second = rate,
                         .skipped = verdict.outlier ? "outlier" : skipped});
}

static std::string skipped_updates(int count) {
    return counted(count, "update") + (count == 1 ? " was skipped" : " were skipped");
}

void Progress::print_summary(const StepJudge& judge) const {
    clear_status_line();
    if (steps > 1) printf("total average iteration time: %f ms\n", 1e3 * total_seconds / (steps - 1));
    if (judge.not_finite)
        printf("%s: the loss or gradient was not finite\n", skipped_updates(judge.not_finite).c_str());
    if (judge.outliers)
        printf("%s: the loss or gradient was an outlier\n", skipped_updates(judge.outliers).c_str());
}
