// Evaluations of a model: its loss on validation data, HellaSwag, a sample of text.
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "llmc/data/dataloader.h"
#include "llmc/data/hellaswag.h"
#include "llmc/data/ignored_target.h"
#include "llmc/distributed/communicator.h"
#include "llmc/generate/text_generator.h"
#include "llmc/model/gpt2.h"
#include "llmc/run/division.h"
#include "llmc/run/progress.h"
#include "llmc/text/text_stream.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_roles.h"

// The losses (B*T) of a batch; `inspect` as of gpt2_head().
template <class Real>
void batch_losses(GPT2<Real>& g, int B, int T, const std::vector<int>& inputs,
                  const std::vector<int>& targets, std::vector<float>& losses,
                  const std::function<void(int first_row, int num_rows)>& inspect = nullptr) {
    gpt2_set_batch(g, inputs.data(), targets.data(), B * T, false);
    gpt2_forward(g, B, T);
    gpt2_head(g, B, T, 1, Gradients::none, inspect);
    losses.resize(size_t(B) * T);
    g.memory.download(losses.data(), g.acts.losses, losses.size());
}

// Calls add(target, loss) for each token that counts and is not ignored. next(inputs, targets, counts) fills
// a batch (B,T) and says of each row how many of its first tokens count, or returns false.
template <class Real, class Next, class Add>
void for_each_loss(GPT2<Real>& g, int B, int T, const Next& next, const Add& add,
                   const std::function<void(int first_row, int num_rows)>& inspect = nullptr) {
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size()), counts(B);
    std::vector<float> losses;
    while (next(inputs, targets, counts)) {
        batch_losses(g, B, T, inputs, targets, losses, inspect);
        for (int row = 0; row < B; row++)
            for (size_t i = size_t(row) * T; i < size_t(row) * T + counts[row]; i++)
                if (targets[i] != ignored_target) add(targets[i], losses[i]);
    }
}

// The mean loss over the tokens of the first max_batches (-1: all) batches of the loader, of which each of
// the job's processes computes its own part. Every target that is not ignored
// counts once, even though the last batch of an epoch is filled up with the first tokens. None if goes_on,
// which is called after each batch and returns the same in all processes, has returned false.
template <class Real>
std::optional<float> validation_loss(GPT2<Real>& g, DataLoader& loader, const OwnPart& own, int T,
                                     int max_batches, Communicator& job,
                                     const std::function<bool(int done, int total)>& goes_on) {
    loader.reset();
    const uint64_t batches =
        std::min<uint64_t>(loader.num_batches(), max_batches < 0 ? ~0ull : uint64_t(max_batches));
    const int B = own.micro_batch, all = own.sequences.count;
    std::vector<int> own_inputs(size_t(all) * T), own_targets(own_inputs.size());
    uint64_t done = 0;
    bool stopped = false;
    int first = all, fresh = 0;  // of this process's sequences, the micro-batch's first; their new tokens
    const auto next = [&](std::vector<int>& inputs, std::vector<int>& targets, std::vector<int>& counts) {
        if (first >= all) {
            stopped = done > 0 && !goes_on(int(done), int(batches));
            if (stopped || done == batches) return false;
            fresh = loader.next_batch(own_inputs.data(), own_targets.data(), own.sequences);
            first = 0;
            done++;
        }
        const int rows = std::min(B, all - first);
        std::copy_n(own_inputs.data() + first * T, rows * T, inputs.data());
        std::copy_n(own_targets.data() + first * T, rows * T, targets.data());
        for (int row = 0; row < B; row++)
            counts[row] = row < rows ? std::clamp(fresh - (first + row) * T, 0, T) : 0;
        first += rows;
        return true;
    };
    double totals[2] = {};  // of the losses, of the tokens
    for_each_loss(g, B, T, next, [&](int, float loss) {
        totals[0] += loss;
        totals[1]++;
    });
    if (stopped) return std::nullopt;
    job.all_reduce_sum(totals, 2);
    return float(totals[0] / totals[1]);
}

struct HellaSwagScore {
    int right = 0, examples = 0;
    int not_finite = 0;  // examples without a result: a loss of one of their endings is not finite
};

// Evaluates the examples, which the processes of a job share; job null: a single process. goes_on is called
// after each batch and returns the same in all processes; none if it has returned false. Call gpt2_allocate()
// before.
template <class Real>
std::optional<HellaSwagScore> score_hellaswag(GPT2<Real>& g, const std::vector<HellaSwagExample>& examples,
                                              Communicator* job, const std::function<bool()>& goes_on) {
    std::vector<HellaSwagExample> own;
    for (size_t i = job ? job->rank : 0; i < examples.size(); i += job ? job->size : 1)
        own.push_back(examples[i]);
    const HellaSwagRows work = make_hellaswag_rows(own, g.acts.T);
    const int T = std::max(work.T, 1), B = int(size_t(g.acts.B) * g.acts.T / T);
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
    std::vector<float> losses;
    std::vector<double> means(4 * own.size());
    int64_t batches = (int64_t(work.rows.size()) + B - 1) / B;
    if (job) job->all_reduce_max(&batches, 1);
    for (size_t at = 0; at < size_t(batches) * B; at += B) {
        const std::span rows = std::span(work.rows).subspan(std::min(at, work.rows.size()));
        const size_t count = std::min<size_t>(B, rows.size());  // 0: other processes have more
        for (size_t i = 0; i < count; i++)
            work.fill(own[rows[i].example], rows[i], &inputs[i * T], &targets[i * T]);
        if (count > 0) batch_losses(g, B, T, inputs, targets, losses);
        for (size_t i = 0; i < count; i++) {
            const HellaSwagRows::Row& row = rows[i];
            double sum = 0;
            for (int t = row.first; t < row.end; t++) sum += losses[i * T + t];
            means[4 * row.example + row.ending] = sum / (row.end - row.first);
        }
        if (!goes_on()) return std::nullopt;
    }
    double sums[2] = {double(count_right(own, means)), double(count_not_finite(means))};
    if (job) job->all_reduce_sum(sums, 2);
    return HellaSwagScore{
        .right = int(sums[0]), .examples = int(examples.size()), .not_finite = int(sums[1])};
}

// "HellaSwag: 20/40 = 0.500000". Error if there is no result for some examples.
inline void print_hellaswag(const HellaSwagScore& score) {
    if (score.not_finite)
        fail(
            "HellaSwag: the losses of %d of %d examples are not finite, so there is no accuracy: the model "
            "has diverged, or overflows in this precision (--precision fp32)",
            score.not_finite, score.examples);
    printf("HellaSwag: %d/%d = %f\n", score.right, score.examples,
           double(score.right) / double(score.examples));
}

// Tokens of the cache that a sample needs: training may have left little memory.
inline int sample_capacity(int positions, int length) { return std::min(length, positions - 1) + 1; }

struct SampleOptions {
    int length, positions;  // tokens; positions of the model that it may use
    SamplerOptions sampler = {};
    std::vector<int> question = {};  // with a tokenizer: the text is its answer, up to end-of-text
};

// Prints a text of `length` tokens, drawn with random numbers from coin_state; without a tokenizer, the
// tokens' numbers. goes_on is called `length` times: if it returns false, the text ends.
template <class Real>
void sample_text(const GPT2<Real>& g, const std::optional<Tokenizer>& tokenizer, const SampleOptions& options,
                 uint64_t& coin_state, const std::function<bool()>& goes_on) {
    const bool answers = !options.question.empty();
    const int vocab_size = tokenizer ? tokenizer->vocab_size() : g.config.vocab_size;  // without padding
    const int end_of_text = tokenizer ? tokenizer->end_of_text : vocab_size - 1;
    const std::set<int64_t> ends = tokenizer ? ends_of_text(*tokenizer) : std::set<int64_t>{end_of_text};
    TextGenerator<Real> generator(g, sample_capacity(options.positions, options.length), 1,
                                  {.sampler = options.sampler, .vocab_size = vocab_size});
    generator.start(answers ? options.question : std::vector<int>{end_of_text}, {coin_state});
    TextStream text = {.escape = prints_to_terminal()};
    printf("%s:\n---\n",
           answers ? "a question of the validation set, and the model's [answer]" : "generating");
    for (size_t i = 1; i < options.question.size(); i++) text.write(tokenizer->decode(options.question[i]));
    if (answers) text.write("[");
    bool has_ended = false;
    for (int i = 0; i < options.length; i++) {
        int token = end_of_text;
        if (!has_ended) {
            generator.next(&token);
            random_u32(coin_state);  // which drew the token
        }
        has_ended = answers && ends.contains(token);
        if (!tokenizer)
            text.write(format_string("%d ", token));
        else if (!has_ended)
            text.write(token == end_of_text ? "\n\n" : tokenizer->decode(token));
        if (!goes_on()) break;
    }
    if (answers) text.write("]");
    text.cut();
    printf("\n---\n");
}
