// What operating systems offer beyond the standard library: os_posix.cpp, os_windows.cpp. Other code
// does not ask which system it runs on, except llmc/distributed and llmc/cpu. Further headers of this folder:
// files.h, signals.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

// --- the program ---

// Opens descriptors 0 to 2 if they are closed, so that no file takes their place, and makes them block. A
// file that exceeds the limit of `ulimit -f` then gives an error instead of a signal.
void prepare_standard_streams();

// To be called first in main(). Makes idle OpenMP threads spin for a few microseconds, then block. By default
// they spin for milliseconds; on busy cores, that takes time from the very threads that they wait for. OpenMP
// reads the setting only when the program starts, so this restarts the program with execv(). Does nothing if
// OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, and on Windows, where openmp_windows.cpp waits like this.
void wait_briefly(char** argv);

std::string program_path();                 // of the file that is running; empty if unknown
[[noreturn]] void end_at_once(int status);  // std::_Exit(), with the console as the program found it
void set_environment(const char* name, const std::string& value);  // Windows: "" removes the variable

// A path as a word of the system's shell, in quotes where it needs them: for commands to copy.
std::string shell_word(const std::string& path);

// --- processes ---

int64_t process_id();
// Where an id names one process: this machine since it started, or this container.
std::string process_space();
// Tells a process from earlier ones of its id; empty if unknown.
std::string process_start(int64_t id);
// Whether a process that started so is known to have ended. False: it runs, or nothing is known.
bool has_ended(int64_t id, const std::string& start);

// --- the machine ---

std::string host_name();     // empty if unknown
uint64_t physical_memory();  // bytes
int online_cpus();           // of the machine, also those that this process may not use
uint64_t stack_limit();      // bytes of the first thread's stack, as `ulimit -s` says; UINT64_MAX: unlimited
std::string home_folder();   // of the user; empty if unknown
std::string cache_folder();  // of the user, for what programs can compute again; empty if unknown

// --- memory ---

// Bytes that this process may still take. On Linux, what is reported as available, at most what the limits
// leave: those of the process (ulimit -v, -d) and of its control groups, version 1 or 2, and all groups above
// them. On macOS, all memory; on Windows, what the system reports as available. `root` stands for / where the
// control groups are looked up, for tests.
uint64_t available_memory(const std::string& root = "");

// CPUs whose time the control groups (version 1 or 2) leave to this process, rounded up; INT_MAX without
// limit.
int cpu_quota(const std::string& root = "");

// Seconds of CPU time so far: of this process, of everything that runs on the machine, and of idle CPUs. The
// last two are 0 except on Linux.
struct CpuUse {
    double own = 0, all = 0, idle = 0;
};
CpuUse cpu_use();

// What a limit leaves: 0 if more is used.
inline uint64_t left_of(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

// Available memory, less what a program takes besides its tensors: buffers of kernels, stacks of threads,
// libraries.
inline uint64_t memory_for_tensors() { return left_of(available_memory(), 32 << 20); }

// What the process may lock (ulimit -l); UINT64_MAX: unlimited, or unknown.
uint64_t lockable_memory();

// A range of inaccessible addresses; null if there is none.
void* reserve_addresses(size_t bytes);
void release_addresses(void* start, size_t bytes);

extern const char* const out_of_memory_message;  // names the limits that the system has

// Null if there is not enough memory. `bytes` is a multiple of `alignment`, a power of 2.
void* allocate_aligned(size_t alignment, size_t bytes);
void free_aligned(void* memory);
void ask_for_huge_pages(void* start, size_t bytes);  // best effort

// --- libraries that are opened at run time ---

void* open_library(const char* name);  // null if there is none
void* find_in_library(void* library, const char* symbol);
extern const std::vector<const char*> vulkan_loaders;  // names to try in this order

// --- the terminal ---

bool is_terminal(FILE* stream);
extern const char* const end_of_input_key;  // what ends what is typed, in words
extern const bool interrupt_ends_input;     // Control-C ends what is read from a console, too
extern const bool terminals_are_pipes;      // some are, whose Control-D and Control-Z are characters

// Columns of the terminal if standard output is one that controls this program and obeys escape sequences;
// else 0.
size_t columns_of_terminal();
