// SPIR-V as instructions, and edits by which a device seems to compute like another one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

using Instruction = std::vector<uint32_t>;  // the first word has length and opcode

enum Opcode : uint32_t {
    OpExtInst = 12,
    OpTypeBool = 20,
    OpTypeInt = 21,
    OpTypeFloat = 22,
    OpTypeVector = 23,
    OpTypePointer = 32,
    OpConstant = 43,
    OpConstantComposite = 44,
    OpFunction = 54,
    OpLoad = 61,
    OpStore = 62,
    OpAccessChain = 65,
    OpDecorate = 71,
    OpFConvert = 115,
    OpConvertPtrToU = 117,
    OpConvertUToPtr = 120,
    OpFAdd = 129,
    OpISub = 130,
    OpFSub = 131,
    OpBitcast = 124,
    OpLogicalAnd = 167,
    OpSelect = 169,
    OpULessThan = 176,
    OpFOrdLessThan = 184,
    OpFOrdGreaterThan = 186,
    OpBitwiseOr = 197,
    OpBitwiseXor = 198,
    OpBitwiseAnd = 199,
    OpExecutionModeId = 331,
};

class Spirv {
   public:
    explicit Spirv(std::span<const uint32_t> words) : header(words.begin(), words.begin() + 5) {
        for (size_t at = 5; at < words.size(); at += words[at] >> 16)
            code.emplace_back(words.begin() + long(at), words.begin() + long(at + (words[at] >> 16)));
    }
    std::vector<uint32_t> words() const {
        std::vector<uint32_t> all = header;
        for (const Instruction& i : code) all.insert(all.end(), i.begin(), i.end());
        return all;
    }

    // Tells the code of a kernel from others.
    static std::string hash(std::span<const uint32_t> words) {
        uint32_t h = 2166136261u;
        for (const uint32_t word : words) h = (h ^ word) * 16777619u;
        return std::to_string(h);
    }

    const std::vector<Instruction>& instructions() const { return code; }
    static uint32_t opcode(const Instruction& i) { return i[0] & 0xffff; }

    // Conversions to fp16 truncate, overflow to 65504, and if told so, make zeros of subnormals.
    void truncate_halves(bool flush) {
        std::optional<uint32_t> half;
        for (const Instruction& i : code)
            if (opcode(i) == OpTypeFloat && i.size() == 3 && i[2] == 16) half = i[1];
        for (size_t at = 0; at < code.size(); at++) {
            const uint32_t PACK_HALF = 58;
            const bool packs = opcode(code[at]) == OpExtInst && code[at][4] == PACK_HALF;
            const bool converts = opcode(code[at]) == OpFConvert && half && code[at][1] == *half;
            if (!packs && !converts) continue;
            const uint32_t operand = packs ? 5 : 3;
            const uint32_t value = truncated(at, code[at][operand], packs ? 2 : 1, flush);
            code[at][operand] = value;
        }
    }

    // One bit of the code makes subtractions of additions, or of a fused multiply-add something else.
    void flip_bit() {
        const uint32_t FMA = 50, MIX = 46;
        for (Instruction& i : code) {
            if (opcode(i) == OpExtInst && i[4] == FMA) {
                i[4] = MIX;
                return;
            }
            if (opcode(i) != OpFAdd) continue;
            i[0] ^= OpFAdd ^ OpFSub;
            return;
        }
    }

    // Neighbouring invocations of a workgroup change places in gl_LocalInvocationID, but not in a subgroup.
    void swap_lanes() {
        const uint32_t BUILT_IN = 11, LOCAL_INVOCATION_ID = 27, LOCAL_SIZE_ID = 38;
        uint32_t variable = 0, size = 0;
        for (const Instruction& i : code) {
            if (opcode(i) == OpDecorate && i[2] == BUILT_IN && i[3] == LOCAL_INVOCATION_ID) variable = i[1];
            if (opcode(i) == OpExecutionModeId && i[2] == LOCAL_SIZE_ID) size = i[3];
        }
        if (!variable || !size) return;
        const uint32_t zero = constant(type(OpTypeInt, {32, 0}), 0),
                       one = constant(type(OpTypeInt, {32, 0}), 1);
        inserted = 0;
        std::vector<uint32_t> pointers;
        for (size_t at = 0; at < code.size(); at++) {
            const Instruction i = code[at];
            if (opcode(i) == OpAccessChain && i[3] == variable && i[4] == zero) pointers.push_back(i[2]);
            if (opcode(i) != OpLoad || std::ranges::count(pointers, i[3]) == 0) continue;
            const uint32_t loaded = code[at][2] = new_id();
            size_t next = ++at;
            const uint32_t swapped = emit(next, OpBitwiseXor, i[1], {loaded, one});
            const uint32_t inside = emit(next, OpULessThan, type(OpTypeBool, {}), {swapped, size});
            at = next;
            code.insert(code.begin() + long(at),
                        instruction(OpSelect, {i[1], i[2], inside, swapped, loaded}));
        }
    }

    // Accesses of single elements go to memory that is so many bytes below that of vectors.
    void lower_elements(uint64_t bytes) {
        const uint32_t BUFFER = 5349;
        std::vector<uint32_t> elements, types;  // element types, and those of pointers to them
        std::map<uint32_t, uint32_t> type_of;   // of such pointers
        const uint32_t address = type(OpTypeInt, {64, 0}),
                       below = declare(OpConstant, 1, {address, uint32_t(bytes), uint32_t(bytes >> 32)});
        inserted = 0;
        for (size_t at = 0; at < code.size(); at++) {
            const Instruction i = code[at];
            const uint32_t op = opcode(i);
            if (op == OpTypeInt || op == OpTypeFloat) elements.push_back(i[1]);
            if (op == OpTypePointer && i[2] == BUFFER && std::ranges::count(elements, i[3]))
                types.push_back(i[1]);
            if (op == OpAccessChain && std::ranges::count(types, i[1])) type_of[i[2]] = i[1];
            const size_t operand = op == OpLoad ? 3 : 1;
            if ((op != OpLoad && op != OpStore) || !type_of.contains(i[operand])) continue;
            const uint32_t there = emit(at, OpConvertPtrToU, address, {i[operand]});
            const uint32_t moved = emit(at, OpISub, address, {there, below});
            const uint32_t pointer = emit(at, OpConvertUToPtr, type_of[i[operand]], {moved});
            code[at][operand] = pointer;
        }
    }

   private:
    std::vector<uint32_t> header;
    std::vector<Instruction> code;
    size_t inserted = 0;  // declarations, before the code that is being edited

    static Instruction instruction(Opcode op, std::vector<uint32_t> operands) {
        operands.insert(operands.begin(), uint32_t(operands.size() + 1) << 16 | op);
        return operands;
    }
    uint32_t new_id() { return header[3]++; }

    // The id of a declaration whose operands, without the id at `id_at`, are these; a new one if need be.
    uint32_t declare(Opcode op, size_t id_at, const std::vector<uint32_t>& operands) {
        for (const Instruction& i : code) {
            if (opcode(i) != op) continue;
            Instruction rest(i.begin() + 1, i.end());
            rest.erase(rest.begin() + long(id_at));
            if (rest == operands) return i[id_at + 1];
        }
        std::vector<uint32_t> with_id = operands;
        const uint32_t id = new_id();
        with_id.insert(with_id.begin() + long(id_at), id);
        const auto first = std::ranges::find_if(code, [](auto& i) { return opcode(i) == OpFunction; });
        code.insert(first, instruction(op, with_id));
        inserted++;
        return id;
    }
    uint32_t type(Opcode op, const std::vector<uint32_t>& operands) { return declare(op, 0, operands); }
    uint32_t constant(uint32_t of, uint32_t bits) { return declare(OpConstant, 1, {of, bits}); }
    // A type, and a constant, of one or two components.
    uint32_t wide(uint32_t scalar, uint32_t n) { return n == 1 ? scalar : type(OpTypeVector, {scalar, n}); }
    uint32_t constants(uint32_t scalar, uint32_t bits, uint32_t n) {
        const uint32_t one = constant(scalar, bits);
        return n == 1 ? one : declare(OpConstantComposite, 1, {wide(scalar, n), one, one});
    }

    uint32_t emit(size_t& at, Opcode op, uint32_t result_type, std::vector<uint32_t> operands) {
        const uint32_t id = new_id();
        operands.insert(operands.begin(), {result_type, id});
        at += inserted;
        inserted = 0;
        code.insert(code.begin() + long(at++), instruction(op, operands));
        return id;
    }

    // Code before code[at] that truncates `value`; `at` then is the same instruction's new place.
    uint32_t truncated(size_t& at, uint32_t value, uint32_t n, bool flush) {
        const uint32_t uint_type = type(OpTypeInt, {32, 0}), float_type = type(OpTypeFloat, {32});
        const uint32_t uints = wide(uint_type, n), floats = wide(float_type, n),
                       bools = wide(type(OpTypeBool, {}), n);
        const auto word = [&](uint32_t bits) { return constants(uint_type, bits, n); };
        const auto number = [&](float v) {
            uint32_t bits;
            memcpy(&bits, &v, 4);
            return constants(float_type, bits, n);
        };
        const uint32_t sign_bits = word(0x80000000u), magnitude_bits = word(0x7fffffffu),
                       kept = word(0xffffe000u), largest_bits = word(0x477fe000u), largest = number(65504),
                       smallest = number(1.0f / 16384), infinite = constants(float_type, 0x7f800000u, n);
        const uint32_t bits = emit(at, OpBitcast, uints, {value});
        const uint32_t sign = emit(at, OpBitwiseAnd, uints, {bits, sign_bits});
        const uint32_t magnitude =
            emit(at, OpBitcast, floats, {emit(at, OpBitwiseAnd, uints, {bits, magnitude_bits})});
        const uint32_t cut = emit(at, OpBitcast, floats, {emit(at, OpBitwiseAnd, uints, {bits, kept})});
        const uint32_t most =
            emit(at, OpBitcast, floats, {emit(at, OpBitwiseOr, uints, {sign, largest_bits})});
        const uint32_t zero = emit(at, OpBitcast, floats, {sign});
        const uint32_t exceeds = emit(at, OpFOrdGreaterThan, bools, {magnitude, largest});
        const uint32_t is_finite = emit(at, OpFOrdLessThan, bools, {magnitude, infinite});
        const uint32_t overflows = emit(at, OpLogicalAnd, bools, {exceeds, is_finite});
        const uint32_t is_small = emit(at, OpFOrdLessThan, bools, {magnitude, smallest});
        const uint32_t clipped = emit(at, OpSelect, floats, {overflows, most, cut});
        return flush ? emit(at, OpSelect, floats, {is_small, zero, clipped}) : clipped;
    }
};
