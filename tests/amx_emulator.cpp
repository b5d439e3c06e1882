#include "tests/amx_emulator.h"

#include "llmc/cpu/simd.h"

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "llmc/base/real.h"
#include "llmc/cpu/amx.h"

namespace {
struct Tile {
    uint8_t rows[16][64];
};
thread_local TileConfig config;
thread_local Tile tiles[8];
std::atomic<long> emulated;
struct sigaction previous_action;

// A decoded instruction with a three-byte VEX prefix in the map 0F 38.
struct Instruction {
    uint8_t prefix, opcode, reg, rm, source;  // prefix: 0 none, 1 66h, 2 F3h, 3 F2h; source: vvvv
    bool has_memory;
    uint64_t address, index;  // of the memory operand; index: scaled, not part of address
    int length;
};

uint64_t general_register(const ucontext_t* context, int number) {
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return uint64_t(context->uc_mcontext.gregs[order[number]]);
}

// Returns false for any other kind of instruction.
bool decode(Instruction& in, const ucontext_t* context) {
    const uint64_t start = uint64_t(context->uc_mcontext.gregs[REG_RIP]);
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(start);
    if (bytes[0] != 0xC4 || (bytes[1] & 0x1F) != 2 || (bytes[2] & 0x84) != 0) return false;
    const int index_extension = bytes[1] & 0x40 ? 0 : 8, base_extension = bytes[1] & 0x20 ? 0 : 8;
    in = {};
    in.prefix = bytes[2] & 3;
    in.source = ~bytes[2] >> 3 & 15;
    in.opcode = bytes[3];
    const int mode = bytes[4] >> 6, rm = bytes[4] & 7;
    in.reg = bytes[4] >> 3 & 7;
    in.rm = uint8_t(rm);
    in.has_memory = mode != 3;
    in.length = 5;
    if (!in.has_memory) return true;
    bool has_base = true, rip_relative = false;
    int base = rm + base_extension;
    if (rm == 4) {
        const uint8_t sib = bytes[in.length++];
        const int index = (sib >> 3 & 7) + index_extension;
        if (index != 4) in.index = general_register(context, index) << (sib >> 6);
        base = (sib & 7) + base_extension;
        has_base = !((sib & 7) == 5 && mode == 0);
    } else if (rm == 5 && mode == 0) {
        has_base = false;
        rip_relative = true;
    }
    if (has_base) in.address = general_register(context, base);
    if (mode == 1) in.address += uint64_t(int64_t(int8_t(bytes[in.length++])));
    if (mode == 2 || !has_base) {
        int32_t offset;
        memcpy(&offset, bytes + in.length, sizeof offset);
        in.address += uint64_t(int64_t(offset));
        in.length += 4;
    }
    if (rip_relative) in.address += start + uint64_t(in.length);
    return true;
}

float flush_subnormal(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// TDPBF16PS: the even and the odd elements of the pairs have separate partial sums, which are added to the
// accumulators at the end.
void multiply(Tile& accumulators, const Tile& a, const Tile& b, int rows, int pairs, int columns) {
    auto element = [](const uint8_t* p) {
        bf16 x;
        memcpy(&x, p, sizeof x);
        return flush_subnormal(x);
    };
    for (int i = 0; i < rows; i++) {
        float partial[16][2] = {};
        for (int k = 0; k < pairs; k++)
            for (int j = 0; j < columns; j++)
                for (int half = 0; half < 2; half++) {
                    const float x = element(a.rows[i] + 4 * k + 2 * half),
                                y = element(b.rows[k] + 4 * j + 2 * half);
                    partial[j][half] =
                        flush_subnormal(float(double(x) * double(y) + double(partial[j][half])));
                }
        for (int j = 0; j < columns; j++) {
            float sum;
            memcpy(&sum, accumulators.rows[i] + 4 * j, sizeof sum);
            sum = flush_subnormal(flush_subnormal(sum) + flush_subnormal(partial[j][0] + partial[j][1]));
            memcpy(accumulators.rows[i] + 4 * j, &sum, sizeof sum);
        }
    }
}

bool execute(const Instruction& in) {
    const int reg = in.reg;
    uint8_t* memory = reinterpret_cast<uint8_t*>(in.address);
    if (in.opcode == 0x49 && in.prefix == 0) {  // ldtilecfg, tilerelease
        if (in.has_memory)
            memcpy(&config, memory, sizeof config);
        else
            config = {};
        memset(tiles, 0, sizeof tiles);
        return true;
    }
    if (config.palette != 1) return false;                        // not configured: the CPU faults, too
    if (in.opcode == 0x49 && in.prefix == 3 && !in.has_memory) {  // tilezero
        tiles[reg] = {};
        return true;
    }
    if (in.opcode == 0x4B && in.prefix == 3 && in.has_memory) {  // tileloadd
        tiles[reg] = {};
        for (int i = 0; i < config.rows[reg]; i++)
            memcpy(tiles[reg].rows[i], memory + uint64_t(i) * in.index, config.row_bytes[reg]);
        return true;
    }
    if (in.opcode == 0x4B && in.prefix == 2 && in.has_memory) {  // tilestored
        for (int i = 0; i < config.rows[reg]; i++)
            memcpy(memory + uint64_t(i) * in.index, tiles[reg].rows[i], config.row_bytes[reg]);
        return true;
    }
    if (in.opcode == 0x5C && in.prefix == 2 && !in.has_memory && in.source < 8) {  // tdpbf16ps
        multiply(tiles[reg], tiles[in.rm], tiles[in.source], config.rows[reg], config.row_bytes[in.rm] / 4,
                 config.row_bytes[reg] / 4);
        return true;
    }
    return false;
}

void handle(int, siginfo_t*, void* data) {
    ucontext_t* context = static_cast<ucontext_t*>(data);
    Instruction in;
    if (decode(in, context) && execute(in)) {
        context->uc_mcontext.gregs[REG_RIP] += in.length;
        emulated++;
    } else {
        signal(SIGILL, SIG_DFL);  // the instruction faults again, which ends the program
    }
}
}  // namespace

AmxEmulator::AmxEmulator() {
    if (!is_possible()) return;
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &previous_action);
}
AmxEmulator::~AmxEmulator() {
    if (is_possible()) sigaction(SIGILL, &previous_action, nullptr);
}
bool AmxEmulator::is_possible() { return best_simd_level() >= SIMD_AVX512 && best_simd_level() < SIMD_AMX; }
long AmxEmulator::count() { return emulated; }
#else
AmxEmulator::AmxEmulator() = default;
AmxEmulator::~AmxEmulator() = default;
bool AmxEmulator::is_possible() { return false; }
long AmxEmulator::count() { return 0; }
#endif
