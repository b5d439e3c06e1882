// What tests call of POSIX, for Windows. CMake includes this header first in every test there.
#pragma once
#define _USE_MATH_DEFINES  // M_PI
#include <csignal>
#include <cstdlib>

#define SIGKILL 9

inline int setenv(const char* name, const char* value, int) { return _putenv_s(name, value); }
inline int unsetenv(const char* name) { return _putenv_s(name, ""); }
