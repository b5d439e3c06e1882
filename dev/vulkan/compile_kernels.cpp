// Builds every kernel of a model with a device's compiler, runs none of them, and prints what the compiler
// tells: registers, spills, scratch, shared memory, occupancy, code size and compile time.
//
//     build/compile_kernels [--device gpu] [--model d12] [--precision all] [--default-only] [--csv]
//     [--no-spills]
//
// Exits with status 1 if a kernel does not compile or, with --no-spills, if one that training takes by
// default spills registers. .tools/bin/with-device NAME runs it on the compilers of devices that are not
// there (dev/setup.sh vendor-compilers).
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "dev/vulkan/compile_kernel.h"
#include "dev/vulkan/model_commands.h"
#include "llmc/base/precision.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"

struct CompileOptions {
    std::string device = "gpu", model = "d12", precision = "all", kernels;
    bool default_only = false, csv = false, no_spills = false;
};

// One line of the table.
struct Row {
    std::string kernel, constants;
    bool by_default;
    CompiledKernel compiled;
};

// Compilers abort and crash: the line then still names the kernel.
static char crash_message[512];
static void report_crash(int) {
    const ssize_t written = write(STDERR_FILENO, crash_message, strlen(crash_message));
    _exit(written < 0 ? 2 : 1);
}

static std::string join(const std::vector<uint32_t>& constants) {
    std::string text;
    for (const uint32_t c : constants) text += format_string(text.empty() ? "%u" : ",%u", c);
    return text;
}

// As text with so many decimals; "-": the driver does not tell.
static std::string number(double value) { return value < 0 ? "-" : format_string("%.0f", value); }

// The columns of CSV; where they stand in the table, which ends with what has no width.
struct Field {
    const char *name, *title;
    int width;
};
static const Field fields[] = {
    {"kernel", "kernel", -46},     {"constants", "constants", 0}, {"default", "default", -7},
    {"registers", "regs", 5},      {"spills", "spills", 6},       {"scratch_bytes", "scratch", 7},
    {"shared_bytes", "shared", 7}, {"subgroup", "subgroup", 8},   {"occupancy", "occupancy", 9},
    {"code_bytes", "code", 7},     {"compile_ms", "ms", 6},       {"error", "", 0}};

static void print_line_of(const CompileOptions& o, const std::vector<std::string>& values, bool quotes) {
    std::string line, rest;
    for (size_t i = 0; i < std::size(fields); i++) {
        const std::string quote = quotes && !fields[i].width ? "\"" : "";
        if (o.csv)
            line += (i ? "," : "") + quote + values[i] + quote;
        else if (fields[i].width)
            line += format_string("%*s ", fields[i].width, values[i].c_str());
        else
            rest += " " + values[i];
    }
    puts((line + rest).c_str());
    fflush(stdout);
}

static void print_header(const CompileOptions& o) {
    std::vector<std::string> names;
    for (const Field& field : fields) names.push_back(o.csv ? field.name : field.title);
    print_line_of(o, names, false);
}

static void print_row(const CompileOptions& o, const Row& row) {
    const CompiledKernel& k = row.compiled;
    print_line_of(o,
                  {row.kernel, row.constants, row.by_default ? "yes" : "no", number(k.registers),
                   number(k.spills), number(k.scratch_bytes), number(k.shared_bytes),
                   k.subgroup_size ? std::to_string(k.subgroup_size) : "-", number(k.subgroups_per_unit),
                   number(k.code_bytes), number(1e3 * k.seconds), k.error},
                  true);
}

// What the lines add up to.
struct Totals {
    int kernels = 0, errors = 0, spilling = 0, spilling_defaults = 0, slow = 0;
    double seconds = 0;
};

static Row compile(LaunchPad& pad, const std::string& key, const std::vector<uint32_t>& constants) {
    const std::string name = key.substr(0, key.find('\0'));
    snprintf(crash_message, sizeof(crash_message),
             "compile_kernels: %s (constants %s): the driver's compiler crashed on %s\n", name.c_str(),
             join(constants).c_str(), pad.device().name.c_str());
    return {name, join(constants), false, compile_kernel(pad, key, constants)};
}

static void compile_all(const CompileOptions& o, LaunchPad& pad, const RequiredKernels& kernels,
                        const RequiredKernels& defaults, Totals& totals) {
    for (const auto& [key, constants] : kernels) {
        if (key.find(o.kernels) == std::string::npos) continue;
        Row row = compile(pad, key, constants);
        row.by_default = defaults.contains(key);
        const CompiledKernel& k = row.compiled;
        totals.kernels++;
        totals.errors += !k.error.empty();
        totals.spilling += k.spills > 0;
        totals.spilling_defaults += k.spills > 0 && row.by_default;
        totals.slow += k.seconds > 2;
        totals.seconds += k.seconds;
        if (!k.error.empty())
            fprintf(stderr, "compile_kernels: %s (constants %s): %s\n", row.kernel.c_str(),
                    row.constants.c_str(), k.error.c_str());
        print_row(o, row);
    }
}

template <class Real>
static void compile_precision(const CompileOptions& o, LaunchPad& pad, const ModelConfig& config,
                              Totals& totals) {
    Requirements by_default;
    // short sequences and long ones take different kernels
    for (const auto& [B, T] : {std::pair(4, 64), std::pair(8, 1024)})
        by_default.add(pad.dry_run(
            [&] { give_default_commands<Real>(pad, config, B, std::min(T, config.max_seq_len)); }));
    const RequiredKernels& defaults = by_default.kernels;
    compile_all(o, pad, defaults, defaults, totals);
    if (o.default_only) return;
    RequiredKernels others =
        pad.dry_run([&] { give_all_versions<Real>(pad, config, 4, std::min(1024, config.max_seq_len)); })
            .kernels;
    for (const auto& [key, constants] : defaults) others.erase(key);
    compile_all(o, pad, others, defaults, totals);
}

// In front of the table, so that a file of it names the driver. CSV stays a table alone.
static void print_device(const CompileOptions& o, const LaunchPad& pad) {
    const Limits& limits = pad.limits();
    auto shape = [](const FragmentShape& f) {
        return f ? format_string("%ux%ux%u", f.M, f.N, f.K) : std::string("none");
    };
    fprintf(o.csv ? stderr : stdout,
            "%s, %s: subgroups of %u, %u invocations, %u KiB shared, fragments bf16 %s, fp16 %s\n",
            pad.device().name.c_str(), pad.device().driver.c_str(), limits.subgroup_size, limits.max_block,
            limits.shared_bytes / 1024, shape(limits.bf16_fragment).c_str(),
            shape(limits.fp16_fragment).c_str());
}

static void run(const CompileOptions& o) {
    const ModelConfig config = parse_descriptor(o.model);
    LaunchPad pad({.device = o.device, .cache_directory = "none", .compile_only = true});
    print_device(o, pad);
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL}) std::signal(signal, report_crash);
    print_header(o);
    Totals totals;
    for (const std::string& precision : precision_names())
        if (o.precision == "all" || o.precision == precision)
            with_precision(precision,
                           [&]<class Real>(Real) { compile_precision<Real>(o, pad, config, totals); });
    fprintf(stderr, "%d kernels in %.1f s: %d errors, %d spill (%d of them defaults), %d took over 2 s\n",
            totals.kernels, totals.seconds, totals.errors, totals.spilling, totals.spilling_defaults,
            totals.slow);
    if (!totals.kernels) fail("no kernel's name contains '%s'", o.kernels.c_str());
    if (totals.errors) fail("%d kernels do not compile", totals.errors);
    if (o.no_spills && totals.spilling_defaults)
        fail("%d kernels that training takes spill registers", totals.spilling_defaults);
}

int main(int argc, char** argv) {
    start_program(argv);
    CompileOptions o;
    CommandLine line("compile_kernels", "Build all kernels with a device's compiler, run none.");
    line.add("--device", o.device, "gpu, a number from train_gpt2 --list-devices, or part of a name");
    line.add("--model", o.model, "dN, gpt2:dN, gpt3:cN or custom:layers=...");
    line.add("--precision", o.precision, "storage type").one_of({"fp32", "bf16", "fp16", "all"});
    line.add("--kernels", o.kernels, "only kernels whose names contain this");
    line.add("--default-only", o.default_only, "only the kernels that training takes");
    line.add("--csv", o.csv, "comma-separated values");
    line.add("--no-spills", o.no_spills, "fail if a default kernel spills registers");
    return line.run(argc, argv, [&] { run(o); });
}
