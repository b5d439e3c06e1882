// Emulates AMX, to test its micro-kernels on CPUs without it.
#pragma once

// Emulates the AMX instructions of the micro-kernels during its lifetime. The CPU raises SIGILL at each, and
// the signal handler executes it as Intel's manual specifies (Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TILERELEASE, TDPBF16PS). Only one
// emulator may exist at a time. Does nothing if is_possible() is false.
class AmxEmulator {
   public:
    AmxEmulator();
    ~AmxEmulator();
    AmxEmulator(const AmxEmulator&) = delete;

    // True on x86-64 Linux with AVX-512, which GEMMs of other types use at this level, and without AMX.
    static bool is_possible();

    // Instructions emulated so far.
    static long count();
};
