#include "llmc/program/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>

#include "llmc/base/error.h"
#include "llmc/os/os.h"
#include "llmc/program/option_checks.h"
#include "llmc/program/start_program.h"
#include "llmc/program/version.h"

CommandLine::CommandLine(const char* program, const char* description)
    : app(std::make_shared<CLI::App>(description, program)) {
    app->allow_windows_style_options(false);  // a path may begin with a slash
    app->set_help_flag("-h,--help", "show this text");
    app->set_version_flag("--version", version_text(program));
    app->add_option("--threads", *threads, "CPU threads (0: OMP_NUM_THREADS, or all cores)")
        ->check(between(0, 1024));
    add_simd_option(*app);
}

CommandLine::CommandLine(std::shared_ptr<CLI::App> subcommand) : app(std::move(subcommand)) {}

void CommandLine::add(const char* name, std::string& value, const char* help) {
    app->add_option(name, value, help)->transform(home_path());
}

void CommandLine::add(const char* name, std::vector<std::string>& values, const char* help) {
    app->add_option(name, values, help)->transform(home_path());
}

void CommandLine::add(const char* name, uint64_t& count, const char* help) {
    app->add_option(name, count, help)->check(unsigned_number());
}

void CommandLine::add(const char* name, double& value, double least, double most, const char* help) {
    app->add_option(name, value, help)->check(between(least, most));
}

void CommandLine::add_flag(const char* name, bool& flag, const char* help) {
    app->add_flag(name, flag, help);
}

void CommandLine::add_choice(const char* name, std::string& value, const std::vector<std::string>& allowed,
                             const char* help) {
    app->add_option(name, value, help)->check(one_of(allowed));
}

void CommandLine::accept_cpu_as_device() { add_cpu_as_device(*app); }

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
