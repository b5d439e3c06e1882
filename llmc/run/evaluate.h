// Evaluations of a model: its loss on validation data, HellaSwag, a sample of text.
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "llmc/data/batch_slice.h"
#include "llmc/data/hellaswag.h"
#include "llmc/data/text_stream.h"
#include "llmc/data/tokenizer.h"
#include "llmc/distributed/communicator.h"
#include "llmc/generate/sampler.h"
#include "llmc/model/decoder.h"
#include "llmc/model/gpt2.h"

// The mean loss over the tokens of the first max_batches (-1: all) batches of (B,T) from each of the job's
// processes, which share the work; the loader draws the batches of all. Every token counts once, even though
// the last batch of an epoch is filled up with the first tokens. progress is called after each batch.
template <class Real>
float validation_loss(GPT2<Real>& g, DataLoader& loader, int B, int T, int max_batches, Communicator& job,
                      const std::function<void(int done, int total)>& progress = nullptr) {
    loader.reset();
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
    std::vector<float> losses(inputs.size());
    const uint64_t batches =
        std::min<uint64_t>(loader.num_batches(), max_batches < 0 ? ~0ull : uint64_t(max_batches));
    double totals[2] = {};  // of the losses, of the tokens
    for (uint64_t i = 0; i < batches; i++) {
        const int fresh = next_batch_slice(loader, inputs.data(), targets.data(), B * T, job.rank, job.size);
        gpt2_set_batch(g, inputs.data(), targets.data(), B * T, false);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1, Gradients::none);
        g.memory.download(losses.data(), g.losses, losses.size());
        totals[0] = std::accumulate(losses.begin(), losses.begin() + fresh, totals[0]);
        totals[1] += fresh;
        if (progress) progress(int(i) + 1, int(batches));
    }
    job.all_reduce_sum(totals, 2);
    return float(totals[0] / totals[1]);
}

// How many examples the model answers correctly. Call gpt2_allocate() before.
template <class Real>
int hellaswag_correct(GPT2<Real>& g, const std::vector<HellaSwagExample>& examples) {
    const HellaSwagRows work = make_hellaswag_rows(examples, g.T);
    const int T = work.T, B = int(size_t(g.B) * g.T / T);
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
    std::vector<float> losses(inputs.size());
    std::vector<double> means(4 * examples.size());
    for (size_t at = 0; at < work.rows.size(); at += B) {
        const int rows = int(std::min<size_t>(B, work.rows.size() - at));
        for (int i = 0; i < rows; i++)
            work.fill(examples[work.rows[at + i].example], work.rows[at + i], &inputs[size_t(i) * T],
                      &targets[size_t(i) * T]);
        gpt2_set_batch(g, inputs.data(), targets.data(), B * T, false);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1, Gradients::none);
        g.memory.download(losses.data(), g.losses, losses.size());
        for (int i = 0; i < rows; i++) {
            const HellaSwagRows::Row& row = work.rows[at + i];
            double sum = 0;
            for (int t = row.first; t < row.end; t++) sum += losses[size_t(i) * T + t];
            means[4 * row.example + row.ending] = sum / (row.end - row.first);
        }
    }
    return count_right(examples, means);
}

// The same, with the examples shared out among the processes of a job.
template <class Real>
int hellaswag_correct(GPT2<Real>& g, const std::vector<HellaSwagExample>& examples, Communicator& job) {
    std::vector<HellaSwagExample> own;
    for (size_t i = job.rank; i < examples.size(); i += job.size) own.push_back(examples[i]);
    double correct = own.empty() ? 0 : hellaswag_correct(g, own);
    job.all_reduce_sum(&correct, 1);
    return int(correct);
}

inline void print_hellaswag(int correct, size_t examples) {
    printf("HellaSwag: %d/%zu = %f\n", correct, examples, double(correct) / double(examples));
}

// Prints a text of `length` tokens, drawn with random numbers from coin_state; without a tokenizer, the
// tokens' numbers.
template <class Real>
void sample_text(const GPT2<Real>& g, const std::optional<Tokenizer>& tokenizer, int length,
                 const SamplerOptions& options, uint64_t& coin_state) {
    const int vocab_size = tokenizer ? tokenizer->vocab_size() : g.config.vocab_size;  // without padding
    const int end_of_text = tokenizer ? tokenizer->end_of_text : vocab_size - 1;
    // no larger than needed: training may have left little memory
    Decoder<Real> decoder(g, std::min(length + 1, g.config.max_seq_len));
    TextStream text;
    std::vector<float> logits(g.config.vocab_size);
    printf("generating:\n---\n");
    for (int token = end_of_text, i = 0; i < length; i++) {
        decoder.append(&token, 1);
        decoder.read_logits(logits.data());
        token = sample_token(logits.data(), vocab_size, random_f32(coin_state), options);
        if (!tokenizer)
            text.write(format_string("%d ", token));
        else
            text.write(token == end_of_text ? "\n\n" : tokenizer->decode(token));
    }
    text.finish();
    printf("\n---\n");
}
