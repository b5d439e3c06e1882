#include "llmc/options/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>

#include "llmc/base/error.h"
#include "llmc/base/os.h"
#include "llmc/options/option_checks.h"
#include "llmc/options/shared_options.h"
#include "llmc/options/start_program.h"
#include "llmc/options/version.h"

CommandLine::CommandLine(const char* program, const char* description)
    : app(std::make_shared<CLI::App>(description, program)) {
    app->allow_windows_style_options(false);  // a path may begin with a slash
    app->option_defaults()->always_capture_default();
    app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // scripts append options
    app->set_help_flag("-h,--help", "show this text");
    app->set_version_flag("--version", version_text(program));
    ::add(*app, "--threads", *threads, between(0, 1024), "CPU threads (0: OMP_NUM_THREADS, or all cores)");
    add_simd_option(*app);
}

CommandLine::CommandLine(std::shared_ptr<CLI::App> subcommand) : app(std::move(subcommand)) {}

void CommandLine::add(const char* name, std::string& path, const char* help) {
    app->add_option(name, path, help)->transform(home_path());
}

void CommandLine::add(const char* name, std::vector<std::string>& paths, const char* help) {
    app->add_option(name, paths, help)
        ->transform(home_path())
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->default_str("");
}

void CommandLine::add_text(const char* name, std::string& text, const char* help) {
    app->add_option(name, text, help);
}

void CommandLine::add_texts(const char* name, std::vector<std::string>& texts, const char* help) {
    app->add_option(name, texts, help)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->default_str("");
}

void CommandLine::add(const char* name, uint64_t& count, const char* help) {
    ::add(*app, name, count, unsigned_number(), help);
}

void CommandLine::add(const char* name, int& value, int least, const char* help) {
    ::add(*app, name, value, at_least(least), help);
}

void CommandLine::add(const char* name, int& value, int least, int most, const char* help) {
    ::add(*app, name, value, between(least, most), help);
}

void CommandLine::add(const char* name, float& value, double least, double most, const char* help) {
    ::add(*app, name, value, between(least, most), help);
}

void CommandLine::add(const char* name, double& value, double least, double most, const char* help) {
    ::add(*app, name, value, between(least, most), help);
}

void CommandLine::add_flag(const char* name, bool& flag, const char* help) {
    app->add_flag(name, flag, help);
}

void CommandLine::add_choice(const char* name, std::string& value, const std::vector<std::string>& allowed,
                             const char* help) {
    app->add_option(name, value, help)->check(one_of(allowed));
}

template <class T>
void CommandLine::add_list(const char* name, std::vector<T>& values, const std::vector<std::string>& allowed,
                           double least, double most, const char* help) {
    CLI::Option* option = app->add_option(name, values, help)->delimiter(',');
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (!allowed.empty()) option->check(one_of(allowed));
    if (least < most) option->check(between(least, most));
    if constexpr (std::is_integral_v<T>) option->check(whole_number<T>());
    if (values.empty()) option->default_str("");
    if (!*help) option->group("");
}
template void CommandLine::add_list(const char*, std::vector<std::string>&, const std::vector<std::string>&,
                                    double, double, const char*);
template void CommandLine::add_list(const char*, std::vector<int>&, const std::vector<std::string>&, double,
                                    double, const char*);
template void CommandLine::add_list(const char*, std::vector<double>&, const std::vector<std::string>&,
                                    double, double, const char*);

void CommandLine::add_device(std::string& device) {
    add_text("--device", device,
             "auto, cpu, gpu, a number from train_gpt2 --list-devices, or part of a name");
    add_tensor_core_option(*app);
}

void CommandLine::accept_cpu_as_device() {
    app->add_option_function<std::string>(
           "--device", [](const std::string&) {}, "the CPU: this program uses no GPU")
        ->check(one_of({"auto", "cpu"}));
}

void CommandLine::require(const char* name) { app->get_option(name)->required(); }

CommandLine CommandLine::add_subcommand(const char* name, const char* description) {
    CLI::App* subcommand = app->add_subcommand(name, description);
    subcommand->fallthrough();  // --threads, --simd and --version may follow it
    return CommandLine(std::shared_ptr<CLI::App>(app, subcommand));
}

bool CommandLine::given() const { return app->parsed(); }

int CommandLine::run(int argc, char** argv, const std::function<void()>& work) {
    try {
        check_flags(*app, {argv, argv + argc});
        app->parse(argc, argv);
        if (*threads) {
            set_environment("OMP_NUM_THREADS", std::to_string(*threads));  // for programs that it starts
            use_threads(*threads);
        }
        work();
        return 0;
    } catch (const CLI::Success& help_or_version) {
        return app->exit(help_or_version);
    } catch (const CLI::ParseError& error) {
        const Error with_advice(printable(explain(*app, error)) + " (--help lists the options)");
        return report_error(app->get_name().c_str(), with_advice);
    } catch (const std::exception& error) {
        return report_error(app->get_name().c_str(), error);
    }
}
