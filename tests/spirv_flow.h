// The SPIR-V of a kernel: its types and values, its blocks, what decides whether a block is executed, and
// which values differ within a workgroup.
#pragma once
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "llmc/launchpad/shaders.h"
#include "tests/vulkan_device_layer/spirv.h"

enum MoreOpcodes : uint32_t {
    OpTypeArray = 28,
    OpConstantTrue = 41,
    OpSpecConstantTrue = 48,
    OpSpecConstantFalse = 49,
    OpSpecConstant = 50,
    OpSpecConstantOp = 52,
    OpVariable = 59,
    OpVectorShuffle = 79,
    OpCompositeConstruct = 80,
    OpCompositeExtract = 81,
    OpCompositeInsert = 82,
    OpUConvert = 113,
    OpIAdd = 128,
    OpIMul = 132,
    OpUDiv = 134,
    OpUMod = 137,
    OpLogicalOr = 166,
    OpLogicalNot = 168,
    OpIEqual = 170,
    OpINotEqual = 171,
    OpUGreaterThan = 172,
    OpUGreaterThanEqual = 174,
    OpControlBarrier = 224,
    OpPhi = 245,
    OpLoopMerge = 246,
    OpSelectionMerge = 247,
    OpLabel = 248,
    OpBranch = 249,
    OpBranchConditional = 250,
    OpSwitch = 251,
    OpGroupNonUniformElect = 333,
    OpGroupNonUniformAll = 334,
    OpGroupNonUniformBallot = 339,
    OpGroupNonUniformIAdd = 349,
    OpGroupNonUniformLogicalXor = 364,
    OpTypeCooperativeMatrix = 4456,
    OpCooperativeMatrixLoad = 4457,
    OpCooperativeMatrixStore = 4458,
    OpCooperativeMatrixMulAdd = 4459,
};
const uint32_t SPEC_ID = 1, BUILT_IN = 11;              // decorations
const uint32_t INPUT = 1, WORKGROUP = 4, FUNCTION = 7;  // storage classes
enum BuiltIn : uint32_t {
    NUM_WORKGROUPS = 24,
    WORKGROUP_ID = 26,
    LOCAL_INVOCATION_ID = 27,
    SUBGROUP_SIZE = 36,
    NUM_SUBGROUPS = 38,
    SUBGROUP_ID = 40,
    LANE = 41,
};

struct Module {
    std::string name;
    std::vector<Instruction> code;
    std::map<uint32_t, Instruction> by_id;  // of types, variables and results

    explicit Module(const EmbeddedShader& shader)
        : name(shader.name), code(Spirv({shader.code, shader.end}).instructions()) {
        for (const Instruction& i : code) {
            const uint32_t op = Spirv::opcode(i);
            if (is_type(op))
                by_id[i[1]] = i;
            else if (has_result(i))
                by_id[i[2]] = i;
        }
    }
    static bool is_type(uint32_t op) {
        return (op >= OpTypeBool && op <= OpTypePointer) || op == OpTypeCooperativeMatrix;
    }
    bool has_result(const Instruction& i) const { return i.size() > 2 && is_type(op(i[1])); }
    const Instruction& at(uint32_t id) const { return by_id.at(id); }
    uint32_t op(uint32_t id) const { return by_id.contains(id) ? Spirv::opcode(at(id)) : 0; }
    bool uses_matrices() const {
        return std::ranges::any_of(
            code, [](const Instruction& i) { return Spirv::opcode(i) == OpCooperativeMatrixLoad; });
    }
    const Instruction& pointer_type(uint32_t pointer) const { return at(at(pointer)[1]); }
};

// The ids that an instruction with a result reads; others of its words are literals.
inline std::vector<uint32_t> operands_of(const Instruction& i) {
    const uint32_t op = Spirv::opcode(i);
    size_t first = 3, end = i.size();
    if (op == OpExtInst) first = 5;
    if (op == OpLoad || op == OpCompositeExtract) end = 4;
    if (op == OpCompositeInsert || op == OpVectorShuffle) end = 5;
    if (op == OpCooperativeMatrixLoad || op == OpCooperativeMatrixMulAdd) end = 6;
    if (op >= OpGroupNonUniformElect && op <= OpGroupNonUniformLogicalXor) first = 4;
    if (op >= OpGroupNonUniformIAdd && op <= OpGroupNonUniformLogicalXor) first = 5;
    return {i.begin() + long(std::min(first, end)), i.begin() + long(end)};
}

// What an OpSpecConstantOp computes.
inline uint32_t result_of(uint32_t op, uint32_t a, uint32_t b, uint32_t c) {
    const std::map<uint32_t, uint32_t> results = {
        {OpUConvert, a},         {OpIAdd, a + b},
        {OpISub, a - b},         {OpIMul, a * b},
        {OpUDiv, b ? a / b : 0}, {OpUMod, b ? a % b : 0},
        {OpLogicalOr, a || b},   {OpLogicalAnd, a && b},
        {OpLogicalNot, !a},      {OpSelect, a ? b : c},
        {OpIEqual, a == b},      {OpINotEqual, a != b},
        {OpUGreaterThan, a > b}, {OpUGreaterThanEqual, a >= b},
        {OpULessThan, a < b},
    };
    if (const auto found = results.find(op); found != results.end()) return found->second;
    throw std::runtime_error("OpSpecConstantOp " + std::to_string(op));
}

// Bytes of the variables that a workgroup shares, with these specialization constants.
inline uint64_t shared_bytes(const Module& m, const std::vector<uint32_t>& constants) {
    std::map<uint32_t, uint32_t> value, number;
    std::map<uint32_t, uint64_t> size;  // by type; of a pointer, of what it points to
    uint64_t all = 0;
    for (const Instruction& i : m.code) {
        const auto specialized = [&](uint32_t otherwise) {
            return number.contains(i[2]) && number[i[2]] < constants.size() ? constants[number[i[2]]]
                                                                            : otherwise;
        };
        const auto operand = [&](size_t word) { return word < i.size() ? value[i[word]] : 0; };
        const uint32_t op = Spirv::opcode(i);
        if (op == OpDecorate && i[2] == SPEC_ID) number[i[1]] = i[3];
        if (op == OpTypeBool) size[i[1]] = 4;
        if (op == OpTypeInt || op == OpTypeFloat) size[i[1]] = i[2] / 8;
        if (op == OpTypeVector) size[i[1]] = i[3] * size[i[2]];
        if (op == OpTypeArray) size[i[1]] = value[i[3]] * size[i[2]];
        if (op == OpTypePointer) size[i[1]] = size[i[3]];
        if (op == OpConstant) value[i[2]] = i[3];
        if (op == OpConstantTrue) value[i[2]] = 1;
        if (op == OpSpecConstant) value[i[2]] = specialized(i[3]);
        if (op == OpSpecConstantTrue) value[i[2]] = specialized(1);
        if (op == OpSpecConstantFalse) value[i[2]] = specialized(0);
        if (op == OpSpecConstantOp) value[i[2]] = result_of(i[3], operand(4), operand(5), operand(6));
        if (op == OpVariable && i[3] == WORKGROUP) all += size[i[1]];
    }
    return all;
}

// In what a value may differ, as bits: between the lanes of a subgroup, between subgroups.
enum Divergence : uint32_t { NOTHING = 0, LANES = 1, SUBGROUPS = 2 };

class Flow {
   public:
    // A piece of code that is executed as a whole.
    struct Block {
        std::vector<const Instruction*> code;
        std::vector<size_t> next;
        std::set<size_t> branches;  // the blocks whose last branches decide whether this one is executed
    };

    explicit Flow(const Module& module) : m(module) {
        find_blocks();
        find_branches();
        find_differences();
    }
    const std::vector<Block>& all_blocks() const { return blocks; }

    // In what the ways to a block differ.
    uint32_t control(size_t block) const {
        uint32_t all = NOTHING;
        for (const size_t branch : blocks[block].branches) all |= condition(branch);
        return all;
    }

    // Whether lanes may have taken different ways on the way to a block, since the workgroup last took one.
    // but_ifs: other ways than those of an `if` without loop or return.
    bool is_after_divergence(size_t to, bool but_ifs) const {
        std::vector<bool> seen(blocks.size());
        std::vector<size_t> open;
        for (size_t b = 0; b < blocks.size(); b++)
            if (control(b) && condition(b) & LANES && !(but_ifs && is_if(b))) open.push_back(b);
        while (!open.empty()) {
            const size_t b = open.back();
            open.pop_back();
            for (const size_t next : blocks[b].next) {
                if (seen[next] || !control(next)) continue;
                if (next == to) return true;
                seen[next] = true;
                open.push_back(next);
            }
        }
        return false;
    }

   private:
    const Module& m;
    std::vector<Block> blocks;
    std::map<uint32_t, size_t> block_of;     // by label
    std::map<uint32_t, uint32_t> differs;    // by id
    std::map<uint32_t, uint32_t> built_ins;  // by variable

    void find_blocks() {
        for (const Instruction& i : m.code) {
            const uint32_t op = Spirv::opcode(i);
            if (op == OpDecorate && i[2] == BUILT_IN) built_ins[i[1]] = i[3];
            if (op == OpLabel) {
                block_of[i[1]] = blocks.size();
                blocks.emplace_back();
            }
            if (!blocks.empty()) blocks.back().code.push_back(&i);
        }
        blocks.back().code.pop_back();  // OpFunctionEnd
        for (Block& block : blocks) {
            const Instruction& last = *block.code.back();
            const auto lead_to = [&](size_t first, size_t step) {
                for (size_t word = first; word < last.size(); word += step)
                    block.next.push_back(block_of.at(last[word]));
            };
            if (Spirv::opcode(last) == OpBranch) lead_to(1, 1);
            if (Spirv::opcode(last) == OpBranchConditional) lead_to(2, 1);
            if (Spirv::opcode(last) == OpSwitch) lead_to(2, 2);
        }
    }

    // [a][b]: every way on from block a leads to block b.
    std::vector<std::vector<bool>> find_certain() const {
        const size_t n = blocks.size();
        std::vector<std::vector<bool>> certain(n, std::vector<bool>(n, true));
        for (bool changed = true; changed;) {
            changed = false;
            for (size_t a = n; a-- > 0;) {
                std::vector<bool> all(n, !blocks[a].next.empty());
                for (const size_t next : blocks[a].next)
                    for (size_t b = 0; b < n; b++) all[b] = all[b] && certain[next][b];
                all[a] = true;
                changed = changed || all != certain[a];
                certain[a] = all;
            }
        }
        return certain;
    }

    void find_branches() {
        const std::vector<std::vector<bool>> certain = find_certain();
        for (size_t a = 0; a < blocks.size(); a++)
            for (const size_t next : blocks[a].next)
                for (size_t b = 0; b < blocks.size(); b++)
                    if (certain[next][b] && (a == b || !certain[a][b])) blocks[b].branches.insert(a);
        for (bool changed = true; changed;) {
            changed = false;
            for (Block& block : blocks)
                for (const size_t branch : std::set(block.branches))
                    for (const size_t other : blocks[branch].branches)
                        changed = block.branches.insert(other).second || changed;
        }
    }

    uint32_t difference(uint32_t id) const {
        const auto found = differs.find(id);
        return found == differs.end() ? uint32_t(NOTHING) : found->second;
    }
    uint32_t condition(size_t block) const {
        const Instruction& last = *blocks[block].code.back();
        const uint32_t op = Spirv::opcode(last);
        return op == OpBranchConditional || op == OpSwitch ? difference(last[1]) : uint32_t(NOTHING);
    }
    // The instruction before the last branch, which says where its ways meet.
    uint32_t merge(size_t block) const {
        const auto& code = blocks[block].code;
        return code.size() < 2 ? 0 : Spirv::opcode(*code[code.size() - 2]);
    }
    // Whether all ways from a block's branch lead to its merge block, without a loop, a return or a jump.
    bool is_if(size_t block) const {
        if (merge(block) != OpSelectionMerge) return false;
        const auto& code = blocks[block].code;
        std::set<size_t> seen = {block_of.at((*code[code.size() - 2])[1])};
        std::vector<size_t> open = blocks[block].next;
        while (!open.empty()) {
            const size_t b = open.back();
            open.pop_back();
            if (!seen.insert(b).second) continue;
            if (merge(b) == OpLoopMerge || blocks[b].next.empty()) return false;
            open.insert(open.end(), blocks[b].next.begin(), blocks[b].next.end());
        }
        return true;
    }
    uint32_t variable_of(uint32_t pointer) const {
        while (m.op(pointer) == OpAccessChain) pointer = m.at(pointer)[3];
        return pointer;
    }

    // Memory that is written is read after a barrier, so that one address holds one value for all.
    uint32_t difference_of_load(uint32_t pointer) const {
        const uint32_t variable = variable_of(pointer);
        if (m.pointer_type(variable)[2] != INPUT) return difference(pointer);
        const uint32_t which = built_ins.at(variable);
        for (const uint32_t same : {NUM_WORKGROUPS, WORKGROUP_ID, SUBGROUP_SIZE, NUM_SUBGROUPS})
            if (which == same) return NOTHING;
        return which == SUBGROUP_ID ? SUBGROUPS : which == LANE ? LANES : LANES | SUBGROUPS;
    }

    uint32_t difference_of(const Instruction& i) const {
        const uint32_t op = Spirv::opcode(i), REDUCE = 0;
        uint32_t all = NOTHING;
        if (op == OpLoad) return difference_of_load(i[3]);
        if (op == OpPhi) {
            for (size_t word = 3; word < i.size(); word += 2)
                all |= difference(i[word]) | control(block_of.at(i[word + 1]));
            return all;
        }
        for (const uint32_t operand : operands_of(i)) all |= difference(operand);
        if (op == OpGroupNonUniformElect) return LANES;
        const bool votes = op >= OpGroupNonUniformAll && op <= OpGroupNonUniformBallot;
        const bool adds = op >= OpGroupNonUniformIAdd && op <= OpGroupNonUniformLogicalXor;
        if (votes || (adds && i[4] == REDUCE)) return all & ~uint32_t(LANES);
        return adds ? all | LANES : all;
    }

    void find_differences() {
        bool changed = true;
        const auto add = [&](uint32_t id, uint32_t difference) {
            const uint32_t before = differs[id];
            if ((differs[id] |= difference) != before) changed = true;
        };
        while (changed) {
            changed = false;
            for (size_t b = 0; b < blocks.size(); b++)
                for (const Instruction* i : blocks[b].code) {
                    if (m.has_result(*i)) add((*i)[2], difference_of(*i));
                    if (Spirv::opcode(*i) != OpStore) continue;
                    const uint32_t to = variable_of((*i)[1]);
                    if (m.pointer_type(to)[2] == FUNCTION)
                        add(to, difference((*i)[1]) | difference((*i)[2]) | control(b));
                }
        }
    }
};
