// Softmax and cross-entropy: version 2 with 16-byte accesses, several of them under way, and fewer instructions: the
// running sum is rescaled once for a group of packs, exponentials are powers of 2, and columns that are special (the
// target, those past the last whole pack) are looked at by themselves. Needs rows of whole, aligned packs of four or eight.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

const uint UNDER_WAY = 4;  // reads of an invocation at a time
const float LOG2E = 1.44269504, NONE = -3.4e38;  // NONE: below every logit

float largest = NONE, sum = 0;  // of this invocation's columns: the maximum, and the sum of exp(x - largest)

// Adds the first `count` packs of x to the sum.
void add(mat2x4 x[UNDER_WAY], uint count) {
    vec4 most = x[0][0], powers = vec4(0);
    [[unroll]] for (uint j = 0; j < count; j++)
        [[unroll]] for (uint k = 0; k < FOURS; k++) most = max(most, x[j][k]);
    const float before = largest;
    largest = max(largest, max(max(most.x, most.y), max(most.z, most.w)));
    [[unroll]] for (uint j = 0; j < count; j++)
        [[unroll]] for (uint k = 0; k < FOURS; k++) powers += exp2((x[j][k] - largest) * LOG2E);
    sum = sum * exp2((before - largest) * LOG2E) + ((powers.x + powers.y) + (powers.z + powers.w));
}

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint V = args.V, whole = V / WIDTH, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    mat2x4 x[UNDER_WAY];
    uint pack = first;
    for (; pack + (UNDER_WAY - 1) * BLOCK < whole; pack += UNDER_WAY * BLOCK) {
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) x[j] = load_wide(logits, pack + j * BLOCK);
        add(x, UNDER_WAY);
    }
    for (; pack < whole; pack += BLOCK) {
        x[0] = load_wide(logits, pack);
        add(x, 1);
    }
    for (uint c = whole * WIDTH + first; c < V; c += BLOCK) {
        x[0] = mat2x4(vec4(load(logits, c), NONE, NONE, NONE), vec4(NONE));
        add(x, 1);
    }
    const float row_largest = block_max(largest);
    const float row_sum = block_sum(sum * exp2((largest - row_largest) * LOG2E));
    // the invocation that looks after the target's pack, or column
    const bool has_target = first == (target < whole * WIDTH ? target / WIDTH : target - whole * WIDTH) % BLOCK;
    const float at_target = has_target ? load(logits, target) : 0;
    if (has_target) args.losses.x[row] = log(row_sum) + row_largest - at_target;
    if (args.write_gradients == 0) return;

    const float factor = args.dloss / row_sum;
    // backwards: the end of the row was read last, so that it is the likeliest to be in a cache still
    for (uint c = whole * WIDTH + first; c < args.Vp; c += BLOCK)
        store(logits, c, c < V ? exp2((load(logits, c) - row_largest) * LOG2E) * factor : 0);
    uint count = whole > first ? (whole - first + BLOCK - 1) / BLOCK : 0;  // packs of this invocation
    for (; count % UNDER_WAY != 0; count--) {
        x[0] = load_wide(logits, first + (count - 1) * BLOCK);
        [[unroll]] for (uint k = 0; k < FOURS; k++) x[0][k] = exp2((x[0][k] - row_largest) * LOG2E) * factor;
        store_wide_quickly(logits, first + (count - 1) * BLOCK, x[0]);
    }
    for (; count > 0; count -= UNDER_WAY) {
        const uint start = first + (count - UNDER_WAY) * BLOCK;
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) x[j] = load_wide(logits, start + j * BLOCK);
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) {
            [[unroll]] for (uint k = 0; k < FOURS; k++) x[j][k] = exp2((x[j][k] - row_largest) * LOG2E) * factor;
            store_wide_quickly(logits, start + j * BLOCK, x[j]);
        }
    }
    if (has_target) store(logits, target, exp2((at_target - row_largest) * LOG2E) * factor - args.dloss);
}
