// Timing, peaks and rows of the sweeps: see sweep.h.
#include "dev/report/sweep.h"

#include <algorithm>
#include <cmath>

#include "dev/report/peak_cpu.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"

// --- time ---

static double timed(const std::function<void()>& run) {
    const double start = now();
    run();
    return now() - start;
}

// 3 to 1000 runs, until they add up to `at_least` seconds.
static Spread timed_often(const std::function<void()>& run, double at_least) {
    std::vector<double> seconds;
    double sum = 0;
    while (seconds.size() < 3 || (sum < at_least && seconds.size() < 1000)) {
        seconds.push_back(timed(run));
        sum += seconds.back();
    }
    return spread_of(seconds);
}

double cpu_seconds(const std::function<void()>& run, double at_least) {
    const double first = timed(run);
    return first > 1 ? first : timed_often(run, at_least).least;
}

void measure_gpu(SizeTimes& times, LaunchPad& pad, const std::function<void()>& launch, bool quick) {
    // The clock falls while the GPU waits for the CPU: on an H200 within a second.
    static double last_used = 0;
    const double at_least = quick ? 0.02 : 0.1;
    const auto synchronous = [&] {
        launch();
        pad.commit(true);
    };
    synchronous();  // compiles the kernel
    times.synchronous = timed(synchronous);
    if (times.synchronous > 1) {
        times.queued = pad.gpu_seconds(launch);
        return;
    }
    const double idle = now() - last_used;
    if (idle > 0.1) raise_clock(pad, quick ? std::min(0.5, 2 * idle) : 0.5);
    if (pad.device().type != DeviceType::software) warm_up(pad, launch, 0.05);
    times.queued = repeated(5, 1e9, [&] { return seconds_per_launch(pad, launch, at_least / 5); }).median;
    times.synchronous = timed_often(synchronous, at_least / 2).median;
    last_used = now();
}

// --- peaks ---

const MachinePeaks& peaks_of(ReportRun& run) {
    const double seconds = run.quick ? 0.1 : 0.3;
    Peaks &cpu = run.peaks.cpu, &gpu = run.peaks.gpu;
    if (!(cpu.copy_rate > 0 && cpu.fma_rate > 0))
        cpu = {.copy_rate = cpu_memory_rate(),
               .fma_rate = cpu_fma_rate(seconds),
               .bf16_matrix_rate = cpu_bf16_rate(seconds)};
    if (run.pad && !(gpu.copy_rate > 0 && gpu.fma_rate > 0)) gpu = measure_peaks(*run.pad);
    if (run.pad && run.software()) {
        gpu.copy_rate = std::max(gpu.copy_rate, cpu.copy_rate);
        gpu.fma_rate = std::max(gpu.fma_rate, cpu.fma_rate);
    }
    return run.peaks;
}

template <class Real>
double gemm_peak(const Peaks& peaks) {
    if constexpr (std::is_same_v<Real, bf16>) return std::max(peaks.bf16_matrix_rate, peaks.fma_rate);
    if constexpr (std::is_same_v<Real, fp16>) return std::max(peaks.fp16_matrix_rate, peaks.fma_rate);
    return peaks.fma_rate;
}

template double gemm_peak<float>(const Peaks&);
template double gemm_peak<bf16>(const Peaks&);
template double gemm_peak<fp16>(const Peaks&);

// --- rows ---

static Rows rows_of(const Sweep& sweep, double size, const SizeTimes& times, bool with_gpu) {
    const double work = sweep.work(size), unit = sweep.seconds_per_unit;
    Rows rows;
    const auto add_rate = [&](const std::string& key, double seconds, bool on_gpu) {
        rows.push_back(
            {sweep.table,
             {key, int64_t(size), number(seconds / unit), number(work / seconds / sweep.work_per_unit),
              number(100 * work / seconds / sweep.peak(size, on_gpu))}});
    };
    add_rate(sweep.cpu, times.cpu, false);
    if (!with_gpu) return rows;
    add_rate(sweep.gpu, times.queued, true);
    std::vector<Cell> row = {sweep.key,
                             int64_t(size),
                             number(times.cpu / unit),
                             number(times.queued / unit),
                             number(times.synchronous / unit),
                             number(times.cpu / times.queued)};
    row.insert(row.end(), times.errors.begin(), times.errors.end());
    rows.push_back({sweep.compared, row});
    return rows;
}

void add_sweep(Section& section, ReportRun& run, const Sweep& sweep, const std::vector<double>& sizes) {
    const auto shared = std::make_shared<Sweep>(sweep);  // its budgets change
    for (const double size : sizes)
        section.measurements.push_back(
            {format_string("%s of size %g", sweep.name.c_str(), size), size, [=, &run] {
                 peaks_of(run);
                 Sweep& s = *shared;
                 const double work = s.work(size);
                 const bool on_cpu = s.cpu_budget.allows(work) && s.fits(size, false);
                 const bool on_gpu = run.pad && s.gpu_budget.allows(work) && s.fits(size, true);
                 const SizeTimes times = s.measure(size, on_cpu, on_gpu);
                 s.cpu_budget.took(work, times.cpu);
                 s.gpu_budget.took(work, times.queued);
                 return rows_of(s, size, times, run.pad != nullptr);
             }});
}

Table compared_table(const std::string& name, const std::string& title, const std::vector<std::string>& keys,
                     const std::string& unit) {
    Table table = {name, title, {}};
    for (const std::string& key : keys) table.columns.push_back({key, "", true});
    for (const char* way : {"CPU", "GPU, queued", "GPU, synchronous"})
        table.columns.push_back({way, unit, false, Better::less});
    table.columns.push_back({"speed-up", "", false, Better::more, 3});
    for (const char* error : {"relative error", "largest error"})
        table.columns.push_back({error, "", false, Better::neither, 2});
    return table;
}

// --- crossover sizes ---

static std::string size_text(double size) { return format_string("%.*g", size < 1e6 ? 6 : 3, size); }

std::string crossover_text(std::vector<TimePair> times) {
    std::erase_if(times, [](const TimePair& t) { return !(t.gpu > 0 && t.cpu > 0); });
    std::sort(times.begin(), times.end(),
              [](const TimePair& a, const TimePair& b) { return a.size < b.size; });
    if (times.empty()) return "unknown (no size was measured on both GPU and CPU)";
    size_t won = times.size();  // the first of the sizes from which on the GPU is faster
    while (won > 0 && times[won - 1].gpu < times[won - 1].cpu) won--;
    if (won == times.size())
        return format_string("none (GPU slower up to %s, the largest size)",
                             size_text(times.back().size).c_str());
    const std::string from = size_text(times[won].size);
    if (won == 0) return format_string("below %s (GPU faster at every size)", from.c_str());
    const TimePair &last = times[won - 1], &next = times[won];
    const double behind = std::log(last.gpu / last.cpu), ahead = std::log(next.cpu / next.gpu);
    const double equal = last.size * std::pow(next.size / last.size, behind / (behind + ahead));
    return format_string("%s (GPU slower at %s, faster at %s)",
                         size_text(std::stod(format_string("%.1e", equal))).c_str(),
                         size_text(last.size).c_str(), from.c_str());
}

std::string crossovers_text(const Table& compared) {
    std::string text;
    std::vector<std::string> seen;
    const auto value = [](const Cell& cell) { return cell.is_number() ? cell.number() : NOT_MEASURED; };
    for (const std::vector<Cell>& first : compared.rows) {
        const std::string key = first[0].text();
        if (std::count(seen.begin(), seen.end(), key)) continue;
        seen.push_back(key);
        std::vector<TimePair> queued, synchronous;
        for (const std::vector<Cell>& row : compared.rows) {
            if (!(row[0] == first[0])) continue;
            queued.push_back({row[1].number(), value(row[3]), value(row[2])});
            synchronous.push_back({row[1].number(), value(row[4]), value(row[2])});
        }
        text += format_string("%s: crossover size queued: %s; synchronous: %s. ", key.c_str(),
                              crossover_text(queued).c_str(), crossover_text(synchronous).c_str());
    }
    return text;
}
