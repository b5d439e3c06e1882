// Measuring sections: see section.h.
#include "dev/report/section.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/run/progress.h"

static double expected_seconds(const Section& section, const Measurement& m, bool spends_the_rest) {
    std::vector<double> seconds;
    for (const Measurement& other : section.measurements)
        if (other.done && other.size <= m.size) seconds.push_back(other.seconds);
    if (seconds.empty()) return m.expected;
    std::sort(seconds.begin(), seconds.end());
    if (!spends_the_rest) return std::max(m.expected, seconds.back());
    return std::max(m.expected, seconds.size() == 1 ? seconds[0] / 2 : seconds[(seconds.size() - 1) / 2]);
}

void make_measurements(Section& section, ReportRun& run) {
    std::optional<Phase> phase;
    for (Measurement& m : section.measurements) {
        const double start = now();
        if (m.done || start + expected_seconds(section, m, run.spends_the_rest) > run.end) continue;
        if (on_terminal()) update_phase(phase, "measuring", m.what);
        m.rows = m.measure();
        m.seconds = now() - start;
        m.done = true;
    }
}

Table& table_named(std::vector<Table>& tables, const std::string& name) {
    const auto found =
        std::find_if(tables.begin(), tables.end(), [&](const Table& t) { return t.name == name; });
    if (found == tables.end()) fail("no table is named %s", name.c_str());
    return *found;
}

void collect(const Section& section, ReportPart& part) {
    part.tables = section.tables;
    part.plots = section.plots;
    part.left_out.clear();
    for (const Measurement& m : section.measurements) {
        for (const auto& [table, row] : m.rows) table_named(part.tables, table).rows.push_back(row);
        if (!m.done) part.left_out.push_back(m.what);
    }
    if (section.finish) section.finish(part.tables);
}

// The time of kinds[at]: what is left, minus most of the shares of the sections after it. So a slow section
// may exceed its share, but cannot use up all the time.
static double seconds_for(const std::vector<SectionKind>& kinds, size_t at, double total, double left) {
    double all = 0, after = 0;
    for (size_t i = 0; i < kinds.size(); i++) {
        all += kinds[i].share;
        if (i > at) after += kinds[i].share;
    }
    return std::max(1.0, left - 0.8 * total * after / all);
}

static std::string date_text() {
    const std::time_t time = std::time(nullptr);
    char text[64];
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", std::gmtime(&time));
    return text;
}

// A section and its results; `section` is empty until the device is open.
struct SectionWork {
    std::optional<Section> section;
    ReportPart part;
};

// Makes what is left of a section's measurements. `device`: its number; empty: the CPU.
static void continue_work(const SectionKind& kind, const std::string& device, ReportRun& run,
                          SectionWork& work) {
    const double start = now();
    ReportPart& part = work.part;
    try {
        if (!run.pad && !device.empty()) run.pad = std::make_unique<LaunchPad>(LaunchPadOptions{device});
        part.device = describe_machine(run.pad.get());
        if (!work.section) work.section = kind.make(run);
        part.what = work.section->what;
        make_measurements(*work.section, run);
    } catch (const Error& error) {
        part.error = error.what();
    }
    run.pad.reset();  // also after the loss of the device, and so that each section's memory is its own
    if (work.section) collect(*work.section, part);
    part.seconds += now() - start;
}

static void print_progress(const ReportPart& part) {
    print_line(stdout, "%-18s %6.1f s%s%s", part.program.c_str(), part.seconds,
               part.left_out.empty()
                   ? ""
                   : format_string("  %zu measurements do not fit", part.left_out.size()).c_str(),
               part.error.empty() ? "" : ("  FAILED: " + part.error).c_str());
}

Report measure_sections(const ReportOptions& options, const std::vector<SectionKind>& kinds,
                        const std::string& command, const std::function<void(const Report&)>& save) {
    const double total = options.seconds > 0 ? options.seconds : options.quick ? 55 : 570, start = now();
    Report report = {date_text(), command, options.quick};
    ReportRun run;
    run.quick = options.quick;
    run.pad = open_device(options.device);  // refuses an unknown one before anything is measured
    const std::string device = run.pad ? std::to_string(run.pad->device().index) : "";
    std::vector<SectionWork> all;
    for (size_t i = 0; i < kinds.size(); i++) {
        SectionWork& work = all.emplace_back();
        work.part.program = kinds[i].name;
        work.part.command = command;
        run.end = now() + seconds_for(kinds, i, total, start + total - now());
        continue_work(kinds[i], device, run, work);
        print_progress(work.part);
        report.parts.push_back(work.part);
        save(report);
    }
    run.end = start + total;
    run.spends_the_rest = true;
    for (size_t i = 0; i < kinds.size(); i++) {
        ReportPart& part = all[i].part;
        const size_t left_out = part.left_out.size();
        if (!left_out || !part.error.empty() || now() >= run.end) continue;
        continue_work(kinds[i], device, run, all[i]);
        if (part.left_out.size() < left_out) print_progress(part);
        report.parts[i] = part;
        save(report);
    }
    return report;
}
