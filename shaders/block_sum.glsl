// Reductions over the workgroup: every invocation calls them and gets the result. The order of the additions
// is fixed, so results are bitwise reproducible on a device. A subgroup may be as small as one invocation.
shared float block_scratch[1024];

float block_sum(float v) {
    v = subgroupAdd(v);
    barrier();  // invocations may still read the sums of the previous call
    if (subgroupElect()) block_scratch[gl_SubgroupID] = v;
    barrier();
    float sum = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += block_scratch[i];
    return sum;
}

float block_max(float v) {
    v = subgroupMax(v);
    barrier();
    if (subgroupElect()) block_scratch[gl_SubgroupID] = v;
    barrier();
    float m = block_scratch[0];
    for (uint i = 1; i < gl_NumSubgroups; i++) m = max(m, block_scratch[i]);
    return m;
}
