// What attention over a cache is compared with: causal attention over the whole text.
#pragma once
#include <vector>

#include "llmc/layers/attention.h"

// out (T,C) of one text, from its qkv (T, 3 C), by the CPU version in fp32.
inline std::vector<float> whole_attention(const std::vector<float>& qkv, int T, int C, int NH) {
    std::vector<float> out(size_t(T) * C), lse(size_t(NH) * T);
    attention_forward_cpu<float>(
        {.out = out.data(), .lse = lse.data(), .qkv = qkv.data(), .B = 1, .T = T, .C = C, .NH = NH});
    return out;
}
