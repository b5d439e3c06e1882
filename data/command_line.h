// main() of the data programs: parse the options, do the work, and turn every error into one line and
// status 1.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>

// Counts need ->check(CLI::NonNegativeNumber): CLI11 2.1 reads "-1" into an unsigned number as 2^64 - 1.
// Returns main's exit status. The app's name stands before each message.
inline int run_command_line(CLI::App& app, int argc, char** argv, const std::function<void()>& work) {
    try {
        app.parse(argc, argv);
        work();
        return 0;
    } catch (const CLI::Success& help_or_version) {
        return app.exit(help_or_version);
    } catch (const CLI::ParseError& error) {
        fprintf(stderr, "%s: %s (--help lists the options)\n", app.get_name().c_str(), error.what());
    } catch (const std::exception& error) {
        fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
    }
    return 1;
}
