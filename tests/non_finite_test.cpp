// NaN and infinity in one element of each input of each kernel version: wherever the CPU's result is not
// finite, the GPU's is not either, so that no kernel hides a fault of the model from the training step. In
// fp32, whose code the other storage types share.
#include <algorithm>
#include <set>

#include "tests/table_rows.h"

// Of few tokens, each occurs.
static std::vector<KernelCase> rows_of(const std::string& layer) {
    KernelShape shape = {
        .B = 1, .T = 5, .C = 32, .NH = 2, .V = 31, .Vp = 32, .layers = 1, .linear = {{32, 24}}};
    if (layer.starts_with("encoder")) shape.V = 3, shape.Vp = 4;
    std::vector<KernelCase> cases = kernel_cases<float>(shape);
    if (!layer.empty()) std::erase_if(cases, [&](const KernelCase& c) { return c.layer != layer; });
    return cases;
}

// The optimizer, and the sampler, which throws: their own tests feed them values that are not finite.
static const std::set<std::string> tested_elsewhere = {"adamw_update", "muon_update", "global_norm",
                                                       "next_token"};

static std::vector<std::string> layers() {
    std::set<std::string> names;
    for (const KernelCase& c : rows_of(""))
        if (!tested_elsewhere.count(c.layer)) names.insert(c.layer);
    return {names.begin(), names.end()};
}

using Tensors = std::vector<std::vector<float>>;

// An element, by its array and by where it is there.
struct Fault {
    float value;
    size_t array;
    int sixths;  // of attention: in v, k and q
};

// The arrays of a run whose operands have a fault; null: none.
static Tensors run_with(LaunchPad* pad, const KernelRun& run, const Fault* fault) {
    Operands operands(pad);
    const auto launch = run.prepare(operands);
    if (fault) {
        const size_t n = operands.fp32_values(fault->array).size();
        operands.set_fp32(fault->array, n * size_t(fault->sixths) / 6, fault->value);
    }
    launch();
    if (pad) pad->commit(true);
    Tensors results;
    for (size_t i = 0; i < operands.num_arrays(); i++) results.push_back(operands.fp32_values(i));
    return results;
}

static bool is_finite(const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

static void expect_not_finite_where(const Tensors& want, const Tensors& got) {
    for (size_t t = 0; t < want.size(); t++)
        for (size_t i = 0; i < want[t].size(); i++)
            if (!std::isfinite(want[t][i]) && std::isfinite(got[t][i])) {
                ADD_FAILURE() << "array " << t << "[" << i << "] is " << got[t][i] << ", on the CPU "
                              << want[t][i];
                break;
            }
}

// Some fault of each input must reach a result.
static void check(const KernelCase& c) {
    Operands before(nullptr);
    c.layer_run.prepare(before);
    const Tensors without = run_with(nullptr, c.layer_run, nullptr);
    for (size_t input = 0; input < without.size(); input++) {
        if (!is_finite(before.fp32_values(input))) continue;  // an output
        bool spreads = false;
        for (const Fault& fault :
             {Fault{NAN, input, 1}, {-NAN, input, 3}, {NAN, input, 5}, {INFINITY, input, 3}}) {
            if (std::isinf(fault.value) && c.layer == "gelu_backward") continue;  // the slope there is 1
            SCOPED_TRACE(format_string("%f in array %zu at %d/6", double(fault.value), input, fault.sixths));
            const Tensors want = run_with(nullptr, c.layer_run, &fault);
            for (size_t t = 0; t < want.size(); t++)
                spreads |= without[t] != before.fp32_values(t) && !is_finite(want[t]);
            for_each_run<float>(c, [&](LaunchPad& pad, const KernelRun& run) {
                expect_not_finite_where(want, run_with(&pad, run, &fault));
            });
        }
        EXPECT_TRUE(spreads) << "no result depends on array " << input << " of " << c.layer;
    }
}

struct NonFinite : testing::TestWithParam<std::string> {};

TEST_P(NonFinite, IsNotHidden) {
    for (const KernelCase& c : rows_of(GetParam())) check(c);
}

INSTANTIATE_TEST_SUITE_P(layers, NonFinite, testing::ValuesIn(layers()),
                         [](const auto& name) { return name.param; });
