// What tests call of POSIX, for Windows. CMake includes this header first in every test there. Calls of what
// Windows has not fail; excluded.txt names the tests that need them.
#pragma once
#define _USE_MATH_DEFINES  // M_PI
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#define SIGKILL 9
#define SIGSTOP 19

// Process::send() sends Ctrl-Break instead of all others but SIGHUP.
#undef SIGINT
#undef SIGTERM
#define SIGINT SIGBREAK
#define SIGTERM SIGBREAK
#define SIGQUIT SIGBREAK
#define SIGHUP 1
#define SIGUSR1 SIGBREAK
#define SIGUSR2 SIGBREAK
#define SIGXCPU SIGBREAK
#define SIGXFSZ SIGBREAK

inline int setenv(const char* name, const char* value, int) { return _putenv_s(name, value); }
inline int unsetenv(const char* name) { return _putenv_s(name, ""); }
inline int kill(int, int) { return errno = ENOSYS, -1; }
inline int fork() { return errno = ENOSYS, -1; }
inline int getppid() { return errno = ENOSYS, -1; }

inline unsigned geteuid() { return 0; }
inline int seteuid(unsigned) { return errno = ENOSYS, -1; }
inline int pipe(int*) { return errno = ENOSYS, -1; }
inline int mkfifo(const char*, int) { return errno = ENOSYS, -1; }
inline int mknod(const char*, int, int) { return errno = ENOSYS, -1; }
inline int makedev(int, int) { return 0; }

#define RLIMIT_FSIZE 1
#define RLIMIT_DATA 2
#define RLIMIT_NOFILE 7
typedef uint64_t rlim_t;
struct rlimit {
    rlim_t rlim_cur, rlim_max;
};
inline int getrlimit(int, rlimit*) { return errno = ENOSYS, -1; }
inline int setrlimit(int, const rlimit*) { return errno = ENOSYS, -1; }
