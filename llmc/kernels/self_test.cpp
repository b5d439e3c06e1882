// The self-test of a device: see self_test.h.
#include "llmc/kernels/self_test.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "llmc/base/clock.h"
#include "llmc/base/os.h"
#include "llmc/base/process.h"
#include "llmc/kernels/kernel_cases.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/launchpad/peak.h"

static const char* const child_option = "--check-kernels";
static const char* const rates_option = "--rates";
static const char* const build_option = "--build-first";
static const int device_fails = 2;  // a child's status
static std::string program;         // that children are started from; empty: begin_self_test() was not called

// --- in the child process ---

static KernelShape timed_shape(const LaunchPad& pad) {
    if (!pad.device().is_gpu()) return self_test_shapes()[1];
    return {
        .B = 4, .T = 1024, .C = 768, .NH = 12, .V = 8191, .Vp = 8192, .layers = 1, .linear = {{768, 3072}}};
}

// "12.3 GB/s"
static std::string rate_of(const KernelCase& of, const KernelRun& run, Operands& operands) {
    LaunchPad& pad = *operands.pad;
    pad.divide_commands(1);
    static bool is_warm = false;
    if (!std::exchange(is_warm, true)) raise_clock(pad);
    operands.restart();
    const auto launch = run.prepare(operands);
    warm_up(pad, launch, 0);
    double seconds = 1e30;
    for (int i = 0; i < 3; i++) seconds = std::min(seconds, seconds_per_launch(pad, launch, 1e-3));
    return of.work.flops > 0 ? format_string("%.3g TFLOP/s", of.work.flops / seconds / 1e12)
                             : format_string("%.3g GB/s", of.work.bytes / seconds / 1e9);
}

static std::string type_of(const std::string& name) {
    const size_t start = name.find('/') + 1;
    return name.substr(start, name.find('/', start) - start);
}

template <class Real>
struct TypeCheck {
    LaunchPad& pad;
    std::vector<std::string> names;  // of versions
    std::vector<KernelCase> cases, timed;
    struct Arrays {
        Operands host{nullptr}, device;  // what the CPU's version computed; of each version in turn
        bool has_reference = false;
    };
    std::vector<std::unique_ptr<Arrays>> arrays;  // of the cases
    std::unique_ptr<Operands> timed_arrays;       // of the case that was timed last
    const KernelCase* last_timed = nullptr;

    TypeCheck(LaunchPad& launchpad, const std::vector<std::string>& of_all_types, bool rates)
        : pad(launchpad) {
        for (const std::string& name : of_all_types)
            if (type_of(name) == real_name<Real>()) names.push_back(name);
        if (names.empty()) return;
        for (const KernelShape& shape : self_test_shapes())
            for (KernelCase& c : kernel_cases<Real>(shape)) cases.push_back(std::move(c));
        arrays.resize(cases.size());
        if (rates) timed = kernel_cases<Real>(timed_shape(pad));
    }
    // Calls action(case, run, arrays) for a version's cases.
    template <class Action>
    void for_each_case(const std::string& name, const Action& action) {
        for (size_t i = 0; i < cases.size(); i++) {
            const std::optional<KernelRun> run = find_run(cases[i], name);
            if (!run || !run->fits(pad)) continue;
            if (!arrays[i]) arrays[i].reset(new Arrays{.device = Operands(&pad)});
            action(cases[i], *run, *arrays[i]);
        }
    }
    // What the versions need, without those that fail here.
    Requirements requirements() {
        Requirements needed;
        const auto add = [&](const KernelRun& run, Operands& operands) {
            operands.restart(Fill::nothing);
            needed.add(pad.dry_run(run.prepare(operands)));
        };
        for (const std::string& name : names) try {
                for_each_case(name, [&](const KernelCase&, const KernelRun& run, Arrays& of_case) {
                    add(run, of_case.device);
                });
                if (const KernelCase* c = timed_case(name)) add(*find_run(*c, name), timed_operands(c));
            } catch (const Error&) {
            }
        timed_arrays.reset();
        return needed;
    }
    // Compares a version in all cases, each of which is a sign of life, and in pieces, which begin at a base
    // of the grid. Returns its largest error.
    double error_of(const std::string& name) {
        double largest = -1;
        pad.divide_commands(2);
        for_each_case(name, [&](const KernelCase& c, const KernelRun& run, Arrays& of_case) {
            print_line(stdout, "run %s", name.c_str());
            if (!of_case.has_reference) c.layer_run.prepare(of_case.host)();
            of_case.has_reference = true;
            largest = std::max(largest, check_run(c, run, of_case.device, of_case.host).largest);
        });
        if (largest < 0) fail("no row of the table of kernels has this version");
        return largest;
    }
    // Whose rate is printed: the version's first case. Null: none.
    const KernelCase* timed_case(const std::string& name) const {
        for (const KernelCase& c : timed)
            if (const auto run = find_run(c, name); run && run->fits(pad)) return &c;
        return nullptr;
    }
    Operands& timed_operands(const KernelCase* of) {
        if (std::exchange(last_timed, of) != of) timed_arrays.reset();
        if (!timed_arrays) timed_arrays = std::make_unique<Operands>(&pad);
        return *timed_arrays;
    }
    std::string timed_rate(const std::string& name) try {
        const KernelCase* of = timed_case(name);
        return of ? rate_of(*of, *find_run(*of, name), timed_operands(of)) : "";
    } catch (const OutOfDeviceMemory&) {
        timed_arrays.reset();
        return "too little memory to time it";
    }
    // Prints lines that the parent reads. Gives back all memory, which the next type may need.
    void check() {
        for (const std::string& name : names) {
            try {
                const double error = error_of(name);
                print_line(stdout, "right %s %.2g %s", name.c_str(), error, timed_rate(name).c_str());
            } catch (const DeviceLost&) {
                throw;
            } catch (const OutOfDeviceMemory&) {
            } catch (const DriverOutOfMemory&) {
                // which says nothing of the version: it is checked again at the next start
            } catch (const Error& error) {
                print_line(stdout, "wrong %s %s", name.c_str(), error.what());
            }
        }
        arrays.clear();
        timed_arrays.reset();
    }
};

// Builds the kernels side by side, since drivers build one on one core. What cannot be built fails when it is
// checked.
static void build_first(LaunchPad& pad, const Requirements& needed) {
    try {
        pad.prepare(needed);
        pad.compile([](int, int) { print_line(stdout, "building"); });  // a sign of life
    } catch (const DeviceLost&) {
        throw;
    } catch (const Error&) {
    }
}

// Words: the device, --rates, --build-first, versions. Without versions, only opens the device.
static void check_in_child(std::vector<std::string> words) {
    LaunchPad pad({.device = words.at(0)});
    print_line(stdout, "opened");
    words.erase(words.begin());
    if (words.empty()) pad.store_checks({{MATRIX_TRIAL, true}});
    const auto take_option = [&](const char* option) { return std::erase(words, option) > 0; };
    const bool rates = take_option(rates_option), builds_first = take_option(build_option);
    TypeCheck<float> of_fp32(pad, words, rates);
    TypeCheck<bf16> of_bf16(pad, words, rates);
    TypeCheck<fp16> of_fp16(pad, words, rates);
    if (builds_first) {
        Requirements needed = of_fp32.requirements();
        needed.add(of_bf16.requirements());
        needed.add(of_fp16.requirements());
        build_first(pad, needed);
    }
    of_fp32.check();
    of_bf16.check();
    of_fp16.check();
    print_line(stdout, "done");
}

void begin_self_test(char** argv) {
    const std::filesystem::path path = program_path();  // empty: unknown
    // ld-linux.so PROGRAM: the loader is what runs. A link to the program has another name than it, too.
    const bool has_loader =
        path.stem() != std::filesystem::path(argv[0]).stem() && path.filename().string().starts_with("ld");
    if (!has_loader) program = path.empty() ? argv[0] : path.generic_string();
    if (!argv[1] || strcmp(argv[1], child_option) != 0) return;
    try {
        std::vector<std::string> words;
        for (char** word = argv + 2; *word; word++) words.push_back(*word);
        check_in_child(words);
    } catch (const Error& error) {
        fprintf(stderr, "%s\n", error.what());
        exit(device_fails);
    } catch (const std::exception& error) {  // too little memory, too many threads
        fprintf(stderr, "%s\n", error.what());
        exit(1);
    }
    exit(0);
}

// --- in the parent process ---

struct Outcome {
    bool right = false;
    std::string text;  // error and rate, or what is wrong
};
struct Outcomes {
    std::map<std::string, Outcome> all = {};
    std::function<void(const std::string& name, const Outcome&)> report = nullptr;  // called as they come
    double opening = 0, building = 0, comparing = 0;                                // seconds

    std::string seconds() const {
        return format_string("%.1f s (opening the device %.1f, building kernels %.1f, comparing them %.1f)",
                             opening + building + comparing, opening, building, comparing);
    }
    void add(const std::string& name, const Outcome& outcome) {
        all[name] = outcome;
        if (report) report(name, outcome);
    }
};

// What a child printed.
struct ChildOutput {
    std::string running;  // the version that is being checked
    bool done = false, hung = false, stopped = false;
    std::string errors;
};

// Whether a child ended for a reason that says nothing of the driver: an error of its own, or a signal that
// others send, as the system does when memory runs out.
static bool was_stopped(int status) {
    constexpr int crashes[] = {SIGABRT, SIGFPE, SIGILL, SIGSEGV,
#ifndef _WIN32
                               SIGBUS,  SIGSYS, SIGTRAP
#endif
    };
    const int signal = status - 128;
    return status == 1 ||
           (signal > 0 && signal < 65 && std::ranges::find(crashes, signal) == std::end(crashes));
}

// Seconds without output after which a child is taken for hung: a software device compiles for seconds.
static double patience(bool is_gpu) {
    const char* seconds = getenv("LAUNCHPAD_CHECK_SECONDS");
    return seconds ? atof(seconds) : is_gpu ? 30 : 120;
}

// Of a child: `stage` becomes what it spends its time on now.
static void read_line(const std::string& line, ChildOutput& output, Outcomes& outcomes, double*& stage) {
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    const std::string word = line.substr(0, first);
    if (word == "done") output.done = true;
    if (word == "opened") stage = &outcomes.building;
    if (word == "run") stage = &outcomes.comparing;
    if (word != "run") output.running.clear();  // what crashes or hangs now is none that was checked
    if (first == std::string::npos) return;
    const std::string name = line.substr(first + 1, second - first - 1);
    if (word == "run") output.running = name;
    if (word == "right" || word == "wrong")
        outcomes.add(name, {word == "right", second == std::string::npos ? "" : line.substr(second + 1)});
}

// Runs a child to its end, or until it hangs.
static ChildOutput follow_child(const std::vector<std::string>& words, bool is_gpu, Outcomes& outcomes) {
    std::vector<std::string> command = {program, child_option};
    command.insert(command.end(), words.begin(), words.end());
    Process child(command);
    ChildOutput output;
    std::string text;
    double quiet = 0;  // seconds, of which those in which this process was suspended are none
    double last = now(), *stage = &outcomes.opening;
    for (bool is_open = true; is_open && !output.hung;) {
        const size_t before = text.size() + output.errors.size();
        is_open = child.read(text, output.errors, 0.1);
        *stage += now() - std::exchange(last, now());
        quiet = text.size() + output.errors.size() > before ? 0 : quiet + 0.1;
        for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
            read_line(text.substr(0, end), output, outcomes, stage);
        output.hung = is_open && quiet > patience(is_gpu);
    }
    if (output.hung) child.kill();
    output.done &= child.wait() == 0;
    output.stopped = !output.done && !output.hung && was_stopped(child.status);
    if (output.errors.find("validation:") != std::string::npos) fputs(output.errors.c_str(), stderr);
    return output;
}

// Checks versions in child processes. Drivers build a kernel on one core, so the first child builds all of
// them side by side. Where it crashes or hangs, another one goes on, and builds each when it is checked.
static void check_versions(const DeviceInfo& device, std::set<std::string> versions, bool rates,
                           Outcomes& outcomes) {
    for (bool builds_first = true; !versions.empty(); builds_first = false) {
        std::vector<std::string> words = {std::to_string(device.index)};
        if (rates) words.push_back(rates_option);
        if (builds_first) words.push_back(build_option);
        words.insert(words.end(), versions.begin(), versions.end());
        const ChildOutput output = follow_child(words, device.is_gpu(), outcomes);
        if (output.done) return;
        const bool names_none = output.running.empty();
        if (output.stopped || (names_none && !builds_first))
            fail("the kernels could not be checked: %s", output.hung ? "the device hangs when it is opened"
                                                         : output.errors.empty()
                                                             ? "the process that checks them was ended"
                                                             : output.errors.c_str());
        std::erase_if(versions, [&](const std::string& name) { return outcomes.all.contains(name); });
        if (names_none) continue;
        // its other configs would do the same, and take as long
        const std::string version = output.running.substr(0, output.running.rfind('/'));
        outcomes.add(version,
                     {false, output.hung ? "the device hangs" : "the driver crashes, or loses the device"});
        std::erase_if(versions, [&](const std::string& name) { return name.starts_with(version + "/"); });
    }
}

static std::map<std::string, bool> verdicts(const Outcomes& outcomes) {
    std::map<std::string, bool> right;
    for (const auto& [name, outcome] : outcomes.all) right[name] = outcome.right;
    return right;
}

static std::vector<std::string> notes;  // that no stream was given for

static void note(FILE* out, const std::string& text) {
    if (out)
        print_line(out, "note: %s", text.c_str());
    else
        notes.push_back(text);
}

std::vector<std::string> take_notes() { return std::exchange(notes, {}); }

// A line for each version that is wrong.
static std::map<std::string, bool> check_before_use(LaunchPad& pad, const std::set<std::string>& versions,
                                                    FILE* out) {
    // each result at once: the checks take long, and may be interrupted
    Outcomes outcomes = {.report = [&pad](const std::string& name, const Outcome& outcome) {
        pad.store_checks({{name, outcome.right}});
    }};
    try {
        check_versions(pad.device(), versions, false, outcomes);
    } catch (const std::exception& error) {  // nothing is known of the others
        note(out, error.what());
    }
    if (out && !outcomes.all.empty())
        print_line(out, "checked %zu versions of kernels before their first use in %s",
                   checked_versions(verdicts(outcomes)).size(), outcomes.seconds().c_str());
    for (const auto& [name, outcome] : outcomes.all)
        if (!outcome.right)
            note(out, format_string("%s is not used on %s: %s", name.c_str(), pad.device().name.c_str(),
                                    outcome.text.c_str()));
    return verdicts(outcomes);
}

// Opens the device with cooperative matrices in a child process, which stores that it could.
static ChildOutput try_matrices(const DeviceInfo& device) {
    const char* const variable = "LAUNCHPAD_TENSOR_CORES";
    set_environment(variable, "1");
    Outcomes none;
    const ChildOutput output = follow_child({std::to_string(device.index)}, device.is_gpu(), none);
    set_environment(variable, "");
    return output;
}

std::unique_ptr<LaunchPad> open_checked_device(const std::string& request, LaunchPadOptions options,
                                               FILE* out) {
    const DeviceChoice choice = choose_device(request);
    const std::optional<DeviceInfo>& device = choice.device;
    options.spills = true;
    if (!program.empty())
        options.check_versions = [out](LaunchPad& pad, const std::set<std::string>& versions) {
            return check_before_use(pad, versions, out);
        };
    const bool is_untried = device && device->has_untried_matrices && !program.empty();
    const ChildOutput trial = is_untried ? try_matrices(*device) : ChildOutput{.done = true};
    auto pad = open_device(request, choice, options, out);
    if (trial.done || trial.stopped) return pad;
    note(out, format_string("cooperative matrices are not used on %s, whose driver fails with them",
                            device->name.c_str()));
    pad->store_checks({{MATRIX_TRIAL, false}});
    return pad;
}

// --- for people ---

// The versions of a type that the device can run, in their default configs; of GEMMs, all tiles.
template <class Real>
static void add_versions(const LaunchPad& pad, std::set<std::string>& names) {
    std::set<std::string> seen;
    for (const KernelCase& c : kernel_cases<Real>(self_test_shapes()[0]))
        for (const KernelRun& run : c.versions) {
            const bool is_default = seen.insert(run.name.substr(0, run.name.rfind('/'))).second;
            if (run.fits(pad) && (is_default || run.name.find("/tile:") != std::string::npos))
                names.insert(run.name);
        }
}

bool print_self_test(const std::string& request) {
    if (program.empty()) fail("--self-test starts this program again: call it without ld.so");
    const auto pad = open_checked_device(request);
    if (!pad) fail("--self-test checks a Vulkan device, and the CPU was chosen: name one with --device");
    const DeviceInfo device = list_devices().at(size_t(pad->device().index));
    print_line(stdout, "%s, %s, Vulkan %s, %s, %.1f GiB", device.name.c_str(), device.driver.c_str(),
               device.api_version.c_str(), device_type_name(device.type),
               double(device.memory_bytes) / (1 << 30));
    for (const std::string& line : device.features) print_line(stdout, "   %s", line.c_str());
    std::set<std::string> names;
    add_versions<float>(*pad, names);
    if (pad->has_16bit_storage()) {
        add_versions<bf16>(*pad, names);
        add_versions<fp16>(*pad, names);
    }
    print_line(stdout, "%-46s %s", "kernel version", "largest error, rate");
    int wrong = 0;
    Outcomes outcomes = {.report = [&](const std::string& name, const Outcome& outcome) {
        print_line(stdout, "%-46s %s%s", name.c_str(), outcome.right ? "" : "WRONG: ", outcome.text.c_str());
        fflush(stdout);
        wrong += !outcome.right;
        pad->store_checks({{name, outcome.right}});
    }};
    check_versions(device, names, true, outcomes);
    pad->forget_checks();  // of others, such as one that hung before
    pad->store_checks(verdicts(outcomes));
    print_line(stdout, "checked %zu versions of kernels, in %zu types and configs, in %s: %d wrong",
               checked_versions(verdicts(outcomes)).size(), outcomes.all.size(), outcomes.seconds().c_str(),
               wrong);
    return wrong == 0;
}
