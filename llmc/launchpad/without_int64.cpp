#include "llmc/launchpad/without_int64.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>

#include "llmc/base/error.h"

using Id = uint32_t;
using Words = std::span<const uint32_t>;

// As the SPIR-V specification numbers them.
// clang-format off
enum Opcode : uint32_t {
    OpUndef = 1, OpExtInst = 12, OpCapability = 17, OpTypeVoid = 19, OpTypeBool = 20, OpTypeInt = 21,
    OpTypeVector = 23, OpTypeArray = 28, OpTypeRuntimeArray = 29, OpTypeStruct = 30, OpTypePointer = 32,
    OpTypeFunction = 33, OpTypeForwardPointer = 39, OpConstant = 43, OpConstantComposite = 44,
    OpSpecConstant = 50, OpSpecConstantComposite = 51, OpSpecConstantOp = 52, OpFunction = 54,
    OpFunctionParameter = 55, OpFunctionCall = 57, OpVariable = 59, OpLoad = 61, OpStore = 62,
    OpCompositeConstruct = 80, OpCompositeExtract = 81, OpCopyObject = 83, OpUConvert = 113,
    OpSConvert = 114, OpConvertPtrToU = 117, OpConvertUToPtr = 120, OpBitcast = 124, OpIAdd = 128,
    OpISub = 130, OpIMul = 132, OpUDiv = 134, OpUMod = 137, OpIAddCarry = 149, OpISubBorrow = 150,
    OpUMulExtended = 151, OpLogicalOr = 166, OpLogicalAnd = 167, OpLogicalNot = 168, OpSelect = 169,
    OpIEqual = 170, OpINotEqual = 171, OpUGreaterThan = 172, OpUGreaterThanEqual = 174, OpULessThan = 176,
    OpULessThanEqual = 178, OpShiftRightLogical = 194, OpShiftRightArithmetic = 195,
    OpShiftLeftLogical = 196, OpBitwiseOr = 197, OpBitwiseXor = 198, OpBitwiseAnd = 199, OpPhi = 245,
    OpLoopMerge = 246, OpBranchConditional = 250, OpSwitch = 251
};
// clang-format on
static const uint32_t INT64_CAPABILITY = 11, UMIN = 38, UMAX = 41;  // the two of GLSL.std.450
static const size_t HEADER = 5, BOUND = 3;                          // words

static uint32_t opcode(Words words) { return words[0] & 0xffff; }

static bool is_one_of(uint32_t op, std::initializer_list<uint32_t> opcodes) {
    return std::find(opcodes.begin(), opcodes.end(), op) != opcodes.end();
}

static bool declares_type(uint32_t op) { return op >= OpTypeVoid && op <= OpTypeForwardPointer; }

// The first word of a type's declaration that names a type that it is made of.
static size_t first_element_type(uint32_t op) {
    if (op == OpTypePointer) return 3;
    return is_one_of(op, {OpTypeArray, OpTypeRuntimeArray, OpTypeStruct, OpTypeFunction}) ? 2 : SIZE_MAX;
}

// Whether an instruction does the same to a vector of two as to a 64-bit integer.
static bool works_on_pairs(uint32_t op) {
    return is_one_of(op, {OpUndef, OpFunction, OpFunctionParameter, OpFunctionCall, OpLoad, OpSelect, OpPhi,
                          OpBitwiseOr, OpBitwiseXor, OpBitwiseAnd});
}

// Whether the word after the result of an instruction that has one, or the third operand, is no id.
static bool has_literal_there(uint32_t op) {
    return is_one_of(op, {OpConstant, OpSpecConstant, OpSpecConstantOp, OpFunction, OpVariable, OpStore,
                          OpLoopMerge, OpBranchConditional, OpSwitch});
}

// Whether an instruction takes pairs as it takes 64-bit integers, to put them in a larger value.
static bool builds_of_parts(uint32_t op) {
    return is_one_of(op, {OpConstantComposite, OpSpecConstantComposite, OpCompositeConstruct});
}

namespace {

// The two halves of a 64-bit integer, of type uint.
struct Pair {
    Id lo, hi;
};

class Rewriter {
   public:
    explicit Rewriter(Words spirv) : in(spirv), out(in.begin(), in.begin() + HEADER), bound(in[BOUND]) {}

    std::vector<uint32_t> run() {
        for_each_instruction([this](Words words) { find_type(words); });
        if (long_types.empty()) return {in.begin(), in.end()};
        for (Id* type : {&uint_type, &bool_type, &pair_type, &carry_type})
            if (!*type) *type = bound++;
        for_each_instruction([this](Words words) { rewrite(words); });
        out[BOUND] = bound;
        return std::move(out);
    }

   private:
    Words in;
    std::vector<uint32_t> out;
    Id bound;  // the next id that is free
    Id uint_type = 0, bool_type = 0, pair_type = 0, carry_type = 0;
    Id zero = 0;                       // the first of the constants 0 to 32
    std::set<Id> long_types, longs;    // 64-bit integers: types, values
    std::map<Id, uint64_t> constants;  // values of integer constants

    template <class Function>
    void for_each_instruction(Function f) {
        for (size_t i = HEADER; i < in.size(); i += in[i] >> 16) f(in.subspan(i, in[i] >> 16));
    }

    // A type may be declared only once, so the kernel's own uint, bool and uvec2 are used if there are such.
    void find_type(Words words) {
        if (opcode(words) == OpTypeInt && words[2] == 64) long_types.insert(words[1]);
        if (opcode(words) == OpTypeInt && words[2] == 32 && words[3] == 0) uint_type = words[1];
        if (opcode(words) == OpTypeBool) bool_type = words[1];
        if (opcode(words) == OpTypeVector && words[2] == uint_type && words[3] == 2) pair_type = words[1];
    }

    void append(uint32_t op, std::initializer_list<uint32_t> operands) {
        out.push_back(uint32_t(operands.size() + 1) << 16 | op);
        out.insert(out.end(), operands);
    }
    // Appends an instruction with a result, by default a new one, which is returned.
    Id emit(uint32_t op, Id type, std::initializer_list<uint32_t> operands, Id result = 0) {
        if (!result) result = bound++;
        out.push_back(uint32_t(operands.size() + 3) << 16 | op);
        out.insert(out.end(), {type, result});
        out.insert(out.end(), operands);
        return result;
    }
    Id emit(uint32_t op, std::initializer_list<uint32_t> operands) { return emit(op, uint_type, operands); }
    Id emit_bool(uint32_t op, std::initializer_list<uint32_t> operands) {
        return emit(op, bool_type, operands);
    }
    Id constant(uint32_t value) const { return zero + value; }
    Pair halves(Id value) {
        const Id lo = emit(OpCompositeExtract, {value, 0});
        return {lo, emit(OpCompositeExtract, {value, 1})};
    }
    void join(Pair value, Id result) { emit(OpCompositeConstruct, pair_type, {value.lo, value.hi}, result); }

    // The types and constants of this file, before the kernel's first type.
    void declare() {
        append(OpTypeInt, {uint_type, 32, 0});
        append(OpTypeBool, {bool_type});
        append(OpTypeVector, {pair_type, uint_type, 2});
        append(OpTypeStruct, {carry_type, uint_type, uint_type});
        zero = emit(OpConstant, {0});
        for (uint32_t value = 1; value <= 32; value++) emit(OpConstant, {value});
    }

    void rewrite(Words words) {
        const uint32_t op = opcode(words);
        if (op == OpCapability && words[1] == INT64_CAPABILITY) return;
        if (!zero && declares_type(op)) declare();
        if (declares_type(op)) return rewrite_type(words);
        if (op == OpConstant)
            constants[words[2]] = words[3] | (words.size() > 4 ? uint64_t(words[4]) << 32 : 0);
        if (zero && words.size() > 2 && long_types.contains(words[1])) return rewrite_long(words);
        if (words.size() > 3 && longs.contains(words[3]) && rewrite_use(words)) return;
        out.insert(out.end(), words.begin(), words.end());
    }

    void rewrite_type(Words words) {
        const uint32_t op = opcode(words);
        const Id type = words[1];
        if (type == uint_type || type == bool_type || type == pair_type || long_types.contains(type)) return;
        const size_t first = first_element_type(op);
        for (size_t i = 0; i < words.size(); i++)
            out.push_back(i >= first && long_types.contains(words[i]) ? pair_type : words[i]);
    }

    // Instructions whose result is a 64-bit integer.
    void rewrite_long(Words words) {
        const uint32_t op = opcode(words);
        const Id result = words[2];
        longs.insert(result);
        if (works_on_pairs(op)) {
            out.insert(out.end(), words.begin(), words.end());
            out[out.size() - words.size() + 1] = pair_type;
            return;
        }
        switch (op) {
            case OpConstant: {
                const Id lo = emit(OpConstant, {words[3]});
                emit(OpConstantComposite, pair_type, {lo, emit(OpConstant, {words[4]})}, result);
                return;
            }
            case OpSpecConstantOp:
                if (words[3] != OpUConvert) break;
                emit(OpSpecConstantComposite, pair_type, {words[4], zero}, result);
                return;
            case OpUConvert:
                return join({words[3], zero}, result);
            case OpSConvert: {
                const Id lo = emit(OpBitcast, {words[3]});
                return join({lo, emit(OpShiftRightArithmetic, {words[3], constant(31)})}, result);
            }
            case OpConvertPtrToU:
                emit(OpBitcast, pair_type, {words[3]}, result);
                return;
            case OpBitcast:  // between signed and unsigned
                emit(OpCopyObject, pair_type, {words[3]}, result);
                return;
            case OpShiftLeftLogical:
            case OpShiftRightLogical:
                if (!constants.contains(words[4])) break;
                return join(shifted(halves(words[3]), op == OpShiftLeftLogical, constants.at(words[4])),
                            result);
            case OpExtInst: {
                if (words[4] != UMIN && words[4] != UMAX) break;
                const Id less = is_less(halves(words[5]), halves(words[6]));
                const bool min = words[4] == UMIN;
                emit(OpSelect, pair_type, {less, words[min ? 5 : 6], words[min ? 6 : 5]}, result);
                return;
            }
            default:
                if (is_one_of(op, {OpIAdd, OpISub, OpIMul, OpUDiv, OpUMod}))
                    return join(arithmetic(op, halves(words[3]), halves(words[4])), result);
        }
        refuse(op);
    }
    [[noreturn]] static void refuse(uint32_t op) {
        fail("kernels have SPIR-V instruction %u on 64-bit integers: add it to without_int64.cpp", op);
    }

    Pair arithmetic(uint32_t op, Pair a, Pair b) {
        if (op == OpIAdd || op == OpISub) return sum(op, a, b);
        if (op == OpIMul) return product(a, b);
        return divided(a, b, op == OpUMod);
    }
    // Or the difference: the carry, or the borrow, is added or subtracted likewise.
    Pair sum(uint32_t op, Pair a, Pair b) {
        const Pair lo = halves(emit(op == OpIAdd ? OpIAddCarry : OpISubBorrow, carry_type, {a.lo, b.lo}));
        const Id hi = emit(op, {a.hi, b.hi});
        return {lo.lo, emit(op, {hi, lo.hi})};
    }
    Pair product(Pair a, Pair b) {
        const Pair low = halves(emit(OpUMulExtended, carry_type, {a.lo, b.lo}));
        const Id first = emit(OpIMul, {a.lo, b.hi}), second = emit(OpIMul, {a.hi, b.lo});
        return {low.lo, emit(OpIAdd, {low.hi, emit(OpIAdd, {first, second})})};
    }
    // Long division, bit by bit, of numbers below 2^63.
    Pair divided(Pair a, Pair b, bool remainder) {
        Pair quotient = {zero, zero}, rest = {zero, zero};
        for (uint32_t bit = 64; bit-- > 0;) {
            rest = shifted(rest, true, 1);
            const Id from = emit(OpShiftRightLogical, {bit < 32 ? a.lo : a.hi, constant(bit % 32)});
            rest.lo = emit(OpBitwiseOr, {rest.lo, emit(OpBitwiseAnd, {from, constant(1)})});
            const Id less = is_less(rest, b);
            const Pair reduced = sum(OpISub, rest, b);
            rest = {emit(OpSelect, {less, rest.lo, reduced.lo}), emit(OpSelect, {less, rest.hi, reduced.hi})};
            quotient = shifted(quotient, true, 1);
            quotient.lo = emit(OpBitwiseOr, {quotient.lo, emit(OpSelect, {less, zero, constant(1)})});
        }
        return remainder ? rest : quotient;
    }
    Pair shifted(Pair a, bool left, uint64_t by) {
        const uint32_t n = uint32_t(by) % 32;
        const uint32_t there = left ? OpShiftLeftLogical : OpShiftRightLogical;
        const uint32_t back = left ? OpShiftRightLogical : OpShiftLeftLogical;
        Id to = left ? a.hi : a.lo, from = left ? a.lo : a.hi;  // bits move from one to the other
        if (by >= 32) {
            to = from;
            from = zero;
        }
        if (n) {
            const Id across = emit(back, {from, constant(32 - n)});
            to = emit(OpBitwiseOr, {emit(there, {to, constant(n)}), across});
            from = emit(there, {from, constant(n)});
        }
        return left ? Pair{from, to} : Pair{to, from};
    }

    // Instructions that take a 64-bit integer as the first operand; false: they need no change.
    bool rewrite_use(Words words) {
        switch (opcode(words)) {
            case OpUConvert:
                emit(OpCompositeExtract, words[1], {words[3], 0}, words[2]);
                return true;
            case OpConvertUToPtr:
                emit(OpBitcast, words[1], {words[3]}, words[2]);
                return true;
            case OpIEqual:
            case OpINotEqual:
            case OpULessThan:
            case OpULessThanEqual:
            case OpUGreaterThan:
            case OpUGreaterThanEqual:
                rewrite_comparison(words);
                return true;
            default:
                if (!has_literal_there(opcode(words)) && !builds_of_parts(opcode(words)))
                    refuse(opcode(words));
                return false;
        }
    }
    void rewrite_comparison(Words words) {
        const uint32_t op = opcode(words);
        const Pair a = halves(words[3]), b = halves(words[4]);
        const bool swap = op == OpUGreaterThan || op == OpULessThanEqual;
        const bool negate = op == OpINotEqual || op == OpULessThanEqual || op == OpUGreaterThanEqual;
        const Id found = op == OpIEqual || op == OpINotEqual ? is_equal(a, b)
                         : swap                              ? is_less(b, a)
                                                             : is_less(a, b);
        emit(negate ? OpLogicalNot : OpCopyObject, bool_type, {found}, words[2]);
    }
    Id is_equal(Pair a, Pair b) {
        const Id lo = emit_bool(OpIEqual, {a.lo, b.lo});
        return emit_bool(OpLogicalAnd, {lo, emit_bool(OpIEqual, {a.hi, b.hi})});
    }
    Id is_less(Pair a, Pair b) {
        const Id hi = emit_bool(OpULessThan, {a.hi, b.hi}), same = emit_bool(OpIEqual, {a.hi, b.hi});
        const Id lo = emit_bool(OpLogicalAnd, {same, emit_bool(OpULessThan, {a.lo, b.lo})});
        return emit_bool(OpLogicalOr, {hi, lo});
    }
};

}  // namespace

std::vector<uint32_t> without_int64(std::span<const uint32_t> spirv) { return Rewriter(spirv).run(); }
