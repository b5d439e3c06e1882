// Starting programs: a start that fails leaves no descriptor open.
#include "llmc/base/process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <system_error>

#ifdef _WIN32
#include <windows.h>

static size_t open_descriptors() {
    DWORD count = 0;
    GetProcessHandleCount(GetCurrentProcess(), &count);
    return count;
}
#else
#include "llmc/base/file.h"

static size_t open_descriptors() { return names_in("/proc/self/fd").size(); }
#endif

TEST(Process, AMissingProgramLeavesNothingOpen) {
    EXPECT_THROW(Process({"/nowhere/program"}), std::system_error);  // may load libraries
    const size_t before = open_descriptors();
    EXPECT_THROW(Process({"/nowhere/program"}), std::system_error);
    EXPECT_EQ(open_descriptors(), before);
}

#ifndef _WIN32
// As supervisors start programs.
TEST(Process, AnEndHasItsStatusWhereItsSignalIsIgnored) {
    signal(SIGCHLD, SIG_IGN);
    EXPECT_EQ(Process({"sh", "-c", "kill -9 $$"}).wait(), 128 + SIGKILL);
}
#endif

TEST(Process, AStartBeyondTheLimitLeavesNothingOpen) {
#if defined(SANITIZED)
    GTEST_SKIP() << "the sanitizer opens a pipe to check the exception";
#endif
    const size_t before = open_descriptors();
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int failed = 0;
    for (rlim_t most = 3; most < before + 10; most++) {
        rlimit lower = limit;
        lower.rlim_cur = most;
        setrlimit(RLIMIT_NOFILE, &lower);
        try {
            Process({"true"});
        } catch (const std::system_error&) {
            failed++;
        }
        setrlimit(RLIMIT_NOFILE, &limit);
        EXPECT_EQ(open_descriptors(), before) << "of at most " << most;
    }
    EXPECT_GE(failed, 4);  // of the four ends of two pipes
}
