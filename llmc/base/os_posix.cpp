#include "llmc/base/os.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "llmc/base/error.h"

// --- the program ---

// A program that shares a pipe or terminal may set it not to block, now or later. The flag belongs to what
// was opened, so it is opened anew, where /proc can do that.
static void make_blocking(int descriptor) {
    const int flags = fcntl(descriptor, F_GETFL);
    struct stat status;
    const bool is_pipe = fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
    const bool is_terminal = isatty(descriptor) && !ptsname(descriptor);  // /dev/ptmx makes another one
    if (is_pipe || is_terminal) {
        const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
        const int own = open(path.c_str(), (flags & O_ACCMODE) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (own >= 0) dup2(own, descriptor);
        if (own >= 0) close(own);
    }
    const int now = fcntl(descriptor, F_GETFL);
    if (now >= 0 && (now & O_NONBLOCK)) fcntl(descriptor, F_SETFL, now & ~O_NONBLOCK);
}

void prepare_standard_streams() {
    int opened = open("/dev/null", O_RDWR);
    while (opened >= 0 && opened <= STDERR_FILENO) opened = open("/dev/null", O_RDWR);
    if (opened > STDERR_FILENO) close(opened);
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) make_blocking(descriptor);
    std::signal(SIGXFSZ, SIG_IGN);
}

std::string program_path() {
    std::error_code unknown;
    return std::filesystem::read_symlink("/proc/self/exe", unknown);
}

void end_at_once(int status) { std::_Exit(status); }

void set_environment(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

std::string shell_word(const std::string& path) {
    const auto is_plain = [](unsigned char c) {
        return isalnum(c) || c >= 0x80 || (c && strchr("%+,-./:=@_", c));
    };
    if (printable(path) != path) {  // as bash and zsh spell any byte; dash cannot
        std::string word = "$'";
        for (const unsigned char c : path)
            word += is_plain(c) && c < 0x80 ? std::string(1, char(c)) : format_string("\\x%02x", c);
        return word + "'";
    }
    if (!path.empty() && std::all_of(path.begin(), path.end(), is_plain)) return path;
    std::string word = "'";
    for (const char c : path) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

// --- processes ---

int64_t process_id() { return getpid(); }

std::string process_space() {
    std::error_code unknown;
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return boot.empty() ? host_name()
                        : boot + " " + std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string();
}

// Linux: the time in /proc, or "Z" or "X" of a process that has ended and was not waited for.
std::string process_start(int64_t id) {
    std::ifstream file("/proc/" + std::to_string(id) + "/stat");
    std::string text, state, start;
    std::getline(file, text);
    std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
    for (int field = 3; field <= 22; field++) fields >> (field == 3 ? state : start);
    return state == "Z" || state == "X" ? state : start;
}

bool has_ended(int64_t id, const std::string& start) {
    if (kill(pid_t(id), 0) != 0 && errno == ESRCH) return true;
    const std::string now = process_start(id);
    return !now.empty() && now != start;
}

// --- the machine ---

std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

uint64_t physical_memory() { return uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE)); }

int online_cpus() { return int(sysconf(_SC_NPROCESSORS_ONLN)); }

uint64_t stack_limit() {
    rlimit stack = {};
    return getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                                   : stack.rlim_cur;
}

static std::string variable(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

std::string home_folder() { return variable("HOME"); }

std::string cache_folder() {
    const std::string cache = variable("XDG_CACHE_HOME"), home = home_folder();
    return !cache.empty() ? cache : home.empty() ? "" : home + "/.cache";
}

// Source: proc(5), /proc/stat. Time that a hypervisor gives to other machines counts as used.
CpuUse cpu_use() {
    rusage use = {};
    getrusage(RUSAGE_SELF, &use);
    const auto seconds = [](const timeval& time) {
        return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
    };
    CpuUse found = {.own = seconds(use.ru_utime) + seconds(use.ru_stime)};
    std::ifstream file("/proc/stat");
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, steal = 0;
    if (file >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> steal) {
        const double tick = 1.0 / double(sysconf(_SC_CLK_TCK));
        found.all = (user + nice + system + irq + softirq + steal) * tick;
        found.idle = (idle + waiting) * tick;
    }
    return found;
}

// --- memory ---

const char* const out_of_memory_message =
    "out of memory: use a smaller batch or model, or raise the limit if there is one (ulimit -v, -d)";

void* reserve_addresses(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void release_addresses(void* start, size_t bytes) { munmap(start, bytes); }

void* allocate_aligned(size_t alignment, size_t bytes) { return std::aligned_alloc(alignment, bytes); }

void free_aligned(void* memory) { std::free(memory); }

void ask_for_huge_pages([[maybe_unused]] void* start, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
    madvise(start, bytes, MADV_HUGEPAGE);
#endif
}

// --- libraries ---

void* open_library(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

void* find_in_library(void* library, const char* symbol) { return dlsym(library, symbol); }

#ifdef __APPLE__
const std::vector<const char*> vulkan_loaders = {"libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"};
#else
const std::vector<const char*> vulkan_loaders = {"libvulkan.so.1", "libvulkan.so"};
#endif

// --- the terminal ---

const char* const end_of_input_key = "Control-D";
const bool interrupt_ends_input = false;
const bool terminals_are_pipes = false;

bool is_terminal(FILE* stream) { return isatty(fileno(stream)) == 1; }

size_t columns_of_terminal() {
    const char* type = getenv("TERM");
    // mpirun gives its processes terminals that control none of them, and may forward their output to a file.
    const bool controlling = tcgetpgrp(STDOUT_FILENO) >= 0;
    if (!controlling || !type || !*type || strcmp(type, "dumb") == 0) return 0;
    winsize size = {};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
