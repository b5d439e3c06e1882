// The limits of memory that the plan of a run knows: those of control groups, of both versions and with all
// groups above, and of the process; limits of threads.
#include <gtest/gtest.h>

#include <climits>
#include <filesystem>
#include <fstream>

#include "llmc/base/file.h"
#include "llmc/base/os.h"
#include "llmc/options/start_program.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

namespace fs = std::filesystem;

// The files of /proc and /sys of a system with control groups.
struct System : TemporaryFolder {
    void write(const std::string& name, const std::string& text) {
        const fs::path file = *this / name;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    uint64_t available() const { return available_memory(path); }
};

static const std::string mounts =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
static const uint64_t mib = 1 << 20;

static const std::string trainer = BINARY_DIR "/train_gpt2", make_corpus = BINARY_DIR "/make_corpus";

TEST(Limits, OfControlGroupsAndAllAboveThem) {
    for (const bool is_version2 : {false, true})
        for (const std::string limited : {"/a/b/c", "/a/b", "/a", ""}) {
            System system;
            system.write("proc/self/mountinfo", mounts);
            system.write("proc/self/cgroup", is_version2
                                                 ? "4:memory:/\n3:cpu:/a\n0::/a/b/c\n"
                                                 : "4:cpu,cpuacct:/\n3:hugetlb,memory:/a/b/c\n0::/\n");
            const std::string top = is_version2 ? "sys/fs/cgroup/unified" : "sys/fs/cgroup/memory",
                              limit = is_version2 ? "/memory.max" : "/memory.limit_in_bytes",
                              used = is_version2 ? "/memory.current" : "/memory.usage_in_bytes",
                              none = is_version2 ? "max\n" : "9223372036854771712\n";
            for (const std::string group : {"/a/b/c", "/a/b", "/a", ""}) {
                system.write(top + group + limit, none);
                system.write(top + group + used, std::to_string(30 * mib));
            }
            EXPECT_GT(system.available(), 64 * mib);
            system.write(top + limited + limit, std::to_string(40 * mib) + "\n");
            EXPECT_EQ(system.available(), 10 * mib) << limited;
            system.write(top + limited + "/memory.stat",
                         is_version2
                             ? "anon 5\nactive_file 99\ninactive_file " + std::to_string(7 * mib) + "\n"
                             : "inactive_file 1\ntotal_inactive_file " + std::to_string(7 * mib) + "\n");
            EXPECT_EQ(system.available(), 17 * mib) << limited;
            system.write(top + limited + used, std::to_string(50 * mib));
            EXPECT_EQ(system.available(), 0u) << limited;
        }
}

// A container sees its own group as the top of the hierarchy, and may be told a path outside it.
TEST(Limits, OfAContainersGroup) {
    for (const std::string top : {"/", "/docker/1234"})
        for (const std::string group : {"/docker/1234", "/docker/1234/job", "/"}) {
            System system;
            system.write("proc/self/mountinfo",
                         "35 31 0:32 " + top + " /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n");
            system.write("proc/self/cgroup", "0::" + group + "\n");
            system.write("sys/fs/cgroup/memory.max", std::to_string(20 * mib));
            EXPECT_EQ(system.available(), 20 * mib) << top << " " << group;
        }
}

// In a namespace of its own, a container may have the host's mount, whose path may have a blank, and is not
// told the names of the groups above its own.
TEST(Limits, OfAGroupWhoseNameIsHidden) {
    for (const std::string path : {"/", "/in", "/../sub/in"}) {
        System system;
        system.write("proc/self/mountinfo", "35 31 0:32 /../.. /sys/c\\040group ro - cgroup2 cgroup rw\n");
        system.write("proc/self/cgroup", "0::" + path + "\n");
        const std::string top = "sys/c group", own = path == "/" ? "/att/sub" : "/att/sub/in";
        system.write(top + "/att/other/in/cgroup.procs", "1\n");
        system.write(top + "/att/other/memory.max", std::to_string(10 * mib));
        system.write(top + own + "/cgroup.procs", "0\n1\n" + std::to_string(process_id()) + "\n");
        EXPECT_GT(system.available(), 64 * mib) << path;
        system.write(top + "/att/memory.max", std::to_string(30 * mib));
        EXPECT_EQ(system.available(), 30 * mib) << path;
        system.write(top + own + "/memory.max", std::to_string(20 * mib));
        EXPECT_EQ(system.available(), 20 * mib) << path;
    }
}

// What OpenMP refuses does not go before a quota.
TEST(Limits, OfOpenMpAreNumbers) {
    for (const auto& [text, threads] :
         {std::pair("", 0), {"0", 0}, {"x", 0}, {"4x", 0}, {"-2", 0}, {"3", 3}, {" 4,2", 4}}) {
        setenv("OMP_NUM_THREADS", text, 1);
        EXPECT_EQ(threads_of_environment(), threads) << text;
    }
    unsetenv("OMP_NUM_THREADS");
    EXPECT_EQ(threads_of_environment(), 0);
}

// Quotas of CPU time, of both versions and of all groups above, rounded up.
TEST(Limits, OfCpuTimeAreThreads) {
    for (const bool is_version2 : {false, true})
        for (const auto& [quota, cpus] :
             {std::pair("50000", 1), {"100000", 1}, {"150000", 2}, {"400000", 4}}) {
            System system;
            system.write("proc/self/mountinfo", mounts);
            system.write("proc/self/cgroup", is_version2 ? "4:memory:/\n3:cpu,cpuacct:/\n0::/a/b\n"
                                                         : "4:memory:/\n3:cpu,cpuacct:/a/b\n0::/\n");
            const std::string top = is_version2 ? "sys/fs/cgroup/unified" : "sys/fs/cgroup/cpu";
            const auto limit = [&](const std::string& group, const std::string& microseconds) {
                if (is_version2) return system.write(top + group + "/cpu.max", microseconds + " 100000\n");
                system.write(top + group + "/cpu.cfs_quota_us", microseconds + "\n");
                system.write(top + group + "/cpu.cfs_period_us", "100000\n");
            };
            EXPECT_EQ(cpu_quota(system.path), INT_MAX);
            limit("/a/b", is_version2 ? "max" : "-1");
            EXPECT_EQ(cpu_quota(system.path), INT_MAX);
            limit("/a", quota);
            EXPECT_EQ(cpu_quota(system.path), cpus) << quota;
        }
}

TEST(Limits, NoneAreKnownWithoutControlGroups) {
    System system;
    EXPECT_GT(system.available(), 64 * mib);
    system.write("proc/self/mountinfo", mounts);
    system.write("proc/self/cgroup", "nonsense\n::\n0:\n");
    EXPECT_GT(system.available(), 64 * mib);
}

#if !defined(SANITIZED)
TEST(Limits, OfTheProcessAreInThePlan) {
    for (const char* limit : {"-v", "-d"}) {
        const std::string plan = std::string("ulimit ") + limit + " 1500000; OMP_NUM_THREADS=2 " + trainer +
                                 " --dry-run --device cpu -e d12 -b 4 -t 1024";
        expect_refusal(run_program({"bash", "-c", plan}), "out of memory: -b 4 -r 1 needs ");
    }
}

TEST(Limits, OfTheProcessAreKnownToOtherPrograms) {
    TemporaryFolder folder;
    write_token_shard(folder / "x.bin", std::vector<uint16_t>(100, 7).data(), 100);
    const std::string large = "-e custom:layers=24,heads=12,channels=768,max_seq_len=1024,vocab=257";
    // its parameters fit, but not with activations, or with the keys and values of 512 texts
    const std::string small = "-e custom:layers=4,heads=4,channels=256,max_seq_len=256,vocab=257";
    const std::pair<std::string, std::string> needs[] = {
        {"generate text " + large, "0.9 GiB"},
        {"eval -i x.bin -b 1 -t 1 " + large, "0.6 GiB"},
        {"train_gpt2 --export gguf x.gguf " + large, "0.6 GiB"},
        {"eval -i x.bin -b 128 -t 256 " + small, "0.5 GiB"},
        {"generate --samples 512 text " + small, "1.5 GiB"},
    };
    for (const auto& [command, bytes] : needs) {
        const ProgramResult result = run_program(
            {"bash", "-c",
             "cd " + folder.path + "; ulimit -v 450000; OMP_NUM_THREADS=1 " BINARY_DIR "/" + command});
        const std::string model = command.substr(command.find("custom:"));
        EXPECT_EQ(result.status, 1) << command << result.out;
        EXPECT_TRUE(contains(result.err, ": out of memory: " + model + " needs " + bytes + " in fp32, and "));
    }
}

TEST(Limits, OfThreadsGiveALineWhateverTheLimitIs) {
    const bool is_root = geteuid() == 0;
    for (const std::string limit : {"ulimit -v 900000", "ulimit -d 900000", "ulimit -u 40"}) {
        if (is_root && limit.find("-u") != std::string::npos) continue;  // does not hold for root
        expect_refusal(
            run_program({"bash", "-c", limit + "; OMP_NUM_THREADS=800 " + make_corpus + " --version"}),
            "800 threads could not be started");
    }
}

// OpenMP's threads start with the program, before anything takes what a limit leaves: its library would end
// the program with a message of its own.
TEST(Limits, ThreadsStartFirst) {
    TemporaryFolder folder;
    const std::string generate = BINARY_DIR "/generate";
    const std::string script =
        "mkfifo in; exec 3<>in; " + generate +
        " -e custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257 --device cpu - <in & "
        "for i in $(seq 100); do grep -q '^Threads:.5$' /proc/$!/status && break; sleep 0.1; done; "
        "sleep 0.2; grep ^Threads /proc/$!/status; kill $!";
    const ProgramResult result =
        run_program({"env", "-C", folder.path, "OMP_NUM_THREADS=5", "bash", "-c", script});
    EXPECT_EQ(result.out, "Threads:\t5\n") << result.err;
}
#endif
