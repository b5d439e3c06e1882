// AMX in software, so that its kernels are tested on CPUs without it.
#pragma once

// While it lives, the instructions of AMX that products use are carried out: the CPU refuses each, and a
// handler of that signal does its work, as Intel's manual describes it (Intel, "Intel 64 and IA-32
// Architectures Software Developer's Manual", volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO,
// TILERELEASE, TDPBF16PS). One at a time. Where is_possible() is false it does nothing.
class AmxEmulator {
   public:
    AmxEmulator();
    ~AmxEmulator();
    AmxEmulator(const AmxEmulator&) = delete;

    // On Linux, on x86-64 with AVX-512, which the products of other types run on, without AMX of its own.
    static bool is_possible();

    // Instructions carried out so far.
    static long count();
};
