#include "llmc/model/ownership.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"

std::vector<Shard> Ownership::within(const TensorRange& range) const {
    const size_t end = range.first + range.count;
    const auto before = [](const Shard& s, const TensorRange& r) {
        return s.tensor < r.tensor || (s.tensor == r.tensor && s.first + s.count <= r.first);
    };
    std::vector<Shard> found;
    for (auto s = std::lower_bound(shards.begin(), shards.end(), range, before);
         s != shards.end() && s->tensor == range.tensor && s->first < end; s++) {
        const size_t first = std::max(s->first, range.first);
        found.push_back({s->tensor, first, std::min(s->first + s->count, end) - first, s->owner});
    }
    return found;
}

std::vector<Shard> Ownership::owned_by(int owner) const {
    std::vector<Shard> found = shards;
    std::erase_if(found, [owner](const Shard& s) { return s.owner != owner; });
    return found;
}

const std::vector<OptimizerInfo>& all_optimizers() {
    static const std::vector<OptimizerInfo> table = {
        {OptimizerKind::adamw, "adamw", 1, true},  // llm.c's
        {OptimizerKind::muon, "muon", 2, false},
    };
    return table;
}

const OptimizerInfo& optimizer_info(OptimizerKind kind) { return all_optimizers().at(size_t(kind)); }

std::vector<std::string> optimizer_names() {
    std::vector<std::string> names;
    for (const OptimizerInfo& info : all_optimizers()) names.push_back(info.name);
    return names;
}

std::optional<OptimizerKind> optimizer_of_state(int state_version) {
    for (const OptimizerInfo& info : all_optimizers())
        if (state_version == info.state_version) return info.kind;
    return std::nullopt;
}

bool is_linear_weight(int tensor) {
    return parameter_info[tensor].per_layer && parameter_info[tensor].is_matrix();
}

bool has_moment(OptimizerKind kind, Moment moment, int tensor) {
    return moment != MOMENT_V || !is_linear_weight(tensor) ||
           optimizer_info(kind).has_moment_v_of_linear_weights;
}

static Ownership divide_elements(const ModelConfig& config, int num_processes) {
    Ownership table;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
        const size_t all = parameter_size(config, tensor);
        const size_t n = num_processes > 1 ? parameter_layer_size(config, tensor) : all;
        const size_t unit = n % num_processes ? 8 : 1, most = ceil_div(n, unit * num_processes) * unit;
        for (size_t layer = 0; layer < all; layer += n)
            for (size_t first = 0; first < n; first += most)
                table.shards.push_back({tensor, layer + first, std::min(most, n - first), int(first / most)});
    }
    return table;
}

// The largest weights first, each to the process that has least to do.
static Ownership divide_matrices(const ModelConfig& config, int num_processes) {
    Ownership table = divide_elements(config, num_processes);
    std::erase_if(table.shards, [](const Shard& s) { return is_linear_weight(s.tensor); });
    std::vector<int> work(num_processes);
    for (const int tensor : {FCW, FCPROJW, QKVW, ATTPROJW})
        for (int layer = 0; layer < config.num_layers; layer++) {
            const auto least = std::min_element(work.begin(), work.end());
            const size_t n = parameter_layer_size(config, tensor);
            table.shards.push_back({tensor, layer * n, n, int(least - work.begin())});
            // in units of C^3: shorter^2 (3 longer + shorter) for each matrix of rows and columns
            *least += tensor == QKVW ? 12 : tensor == ATTPROJW ? 4 : 13;
        }
    std::ranges::sort(table.shards, [](const Shard& a, const Shard& b) {
        return a.tensor != b.tensor ? a.tensor < b.tensor : a.first < b.first;
    });
    return table;
}

Ownership ownership_of(const ModelConfig& config, OptimizerKind kind, int num_processes) {
    return kind == OptimizerKind::muon && num_processes > 1 ? divide_matrices(config, num_processes)
                                                            : divide_elements(config, num_processes);
}

std::vector<TensorRange> linear_weight_ranges(const ModelConfig& config, int first, int end) {
    std::vector<TensorRange> ranges;
    for (int layer = first; layer < end; layer++)
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
            const size_t n = parameter_layer_size(config, tensor);
            if (is_linear_weight(tensor)) ranges.push_back({tensor, layer * n, n});
        }
    return ranges;
}

std::vector<TensorRange> other_ranges(const ModelConfig& config) {
    std::vector<TensorRange> ranges;
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++)
        if (!is_linear_weight(tensor)) ranges.push_back({tensor, 0, parameter_size(config, tensor)});
    return ranges;
}

std::vector<TensorRange> group_ranges(const ModelConfig& config, int first, int end) {
    std::vector<TensorRange> ranges = linear_weight_ranges(config, first, end);
    if (first == 0)
        for (const TensorRange& range : other_ranges(config)) ranges.push_back(range);
    return ranges;
}

// Each group has r times the layers of the one before, which is sent after it in the backward pass, and
// received before it in the forward pass; the first has one.
static std::vector<int> growing_groups(int num_layers, int most) {
    std::vector<int> begin;
    for (int tenths = 10; begin.empty() || begin.back() < num_layers; tenths++) {
        begin = {0};
        for (int i = 0; i < most; i++) begin.push_back(begin.back() + int(std::pow(tenths / 10.0, i)));
    }
    begin.back() = num_layers;
    return begin;
}

std::vector<int> groups_of_layers(const ModelConfig& config, bool wte_last) {
    const int L = config.num_layers;
    std::vector<int> begin = growing_groups(L, std::min(4, L));
    if (!wte_last) return begin;
    size_t last = 0;
    for (const TensorRange& range : linear_weight_ranges(config, begin[begin.size() - 2], L))
        last += range.count;
    if (L == 1 || parameter_size(config, WTE) > last) {
        begin = growing_groups(L, std::min(3, L));
        begin.push_back(L);
    }
    begin.back()++;
    return begin;
}

size_t token_set_words(const ModelConfig& config) { return ceil_div(config.padded_vocab_size, 32); }

std::vector<TensorRange> token_rows(const ModelConfig& config, const TokenSet& tokens, size_t first,
                                    size_t count) {
    const size_t C = size_t(config.channels), end = first + count, near = 2 * C;
    std::vector<TensorRange> rows;
    for (size_t row = first / C; count && row * C < end; row++) {
        if (!(tokens[row / 32] >> row % 32 & 1)) continue;
        const size_t begins = std::max(row * C, first), ends = std::min((row + 1) * C, end);
        if (!rows.empty() && begins <= rows.back().first + rows.back().count + near)
            rows.back().count = ends - rows.back().first;
        else
            rows.push_back({WTE, begins, ends - begins});
    }
    return rows;
}
