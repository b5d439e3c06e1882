// Evaluates a trained GPT-2: loss, perplexity and bits per byte on token shards or text, and HellaSwag.
//
//     eval -e model.bin -i 'data/fineweb_val_*.bin'
//     eval -e runs/my-text --text other.txt
//     eval -e model.safetensors --hellaswag hellaswag_val.bin --device gpu --precision bf16 -b 32
//
// A shard, or the tokens of a text, are divided into sequences of T tokens, the last of which may be shorter.
// Every token except the first is predicted once, from the tokens before it in its sequence.
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "llmc/base/ceil_div.h"
#include "llmc/data/example_packer.h"
#include "llmc/data/ignored_target.h"
#include "llmc/data/preparation.h"
#include "llmc/data/sidecar.h"
#include "llmc/data/token_file.h"
#include "llmc/kernels/self_test.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/command_line.h"
#include "llmc/options/shared_options.h"
#include "llmc/options/start_program.h"
#include "llmc/run/evaluate.h"
#include "llmc/run/progress.h"
#include "llmc/run/trained_model.h"

struct EvalOptions {
    ModelOptions model;
    std::vector<std::string> data, text;
    std::string hellaswag;
    TextOptions of_text = {};
    int batch = 4, sequence = 0, max_batches = -1;
};

// Sums over the predicted tokens.
struct Score {
    double nats = 0;
    uint64_t tokens = 0, bytes = 0;   // bytes of text, without end-of-text tokens
    uint64_t answers = 0, exact = 0;  // of questions and answers; exact: each token is the likeliest one
};

// Reads the shards as sequences of T tokens, B at a time.
struct Sequences {
    const std::vector<TokenShard>& shards;
    int B, T, vocab_size;
    size_t shard = 0;
    uint64_t at = 0;  // first token of the next sequence

    double share_read() const {
        double read = double(at), all = 0;
        for (size_t i = 0; i < shards.size(); i++) {
            if (i < shard) read += double(shards[i].tokens);
            all += double(shards[i].tokens);
        }
        return read / all;
    }
    // Fills inputs and targets (B,T), and counts (B) with the number of tokens in each row. Returns false if
    // no sequence is left.
    bool next(std::vector<int>& inputs, std::vector<int>& targets, std::vector<int>& counts) {
        std::fill(inputs.begin(), inputs.end(), 0);
        std::fill(targets.begin(), targets.end(), 0);
        std::fill(counts.begin(), counts.end(), 0);
        for (int row = 0; row < B; row++) {
            while (shard < shards.size() && at + 1 >= shards[shard].tokens) shard++, at = 0;
            if (shard == shards.size()) return row > 0;
            counts[row] = int(std::min<uint64_t>(T, shards[shard].tokens - 1 - at));
            std::vector<uint16_t> tokens(counts[row] + 1);
            read_tokens(shards[shard], at, tokens.size(), tokens.data());
            check_tokens(shards[shard], at, tokens, vocab_size);
            std::copy_n(tokens.begin(), counts[row], inputs.begin() + size_t(row) * T);
            std::copy_n(tokens.begin() + 1, counts[row], targets.begin() + size_t(row) * T);
            ignore_targets(shards[shard], at + 1,
                           std::span(targets).subspan(size_t(row) * T, size_t(counts[row])));
            at += counts[row];
        }
        return true;
    }
};

// Reads texts as Sequences reads shards, with end-of-text before each document.
struct TextSequences {
    std::unique_ptr<TextReader> reader;
    Tokenizer* tokenizer;
    int B, T;
    std::vector<uint16_t> tokens = {};
    size_t at = 0;  // first token of the next sequence
    uint64_t skipped_lines = 0;
    std::string not_utf8 = "";                 // the first file that is not
    std::optional<ExamplePacker> packer = {};  // of questions and answers
    ExampleNotes notes = {};
    std::vector<bool> counts = {};  // of their tokens: whether it is an answer's
    bool has_ended = false;         // likewise

    double share_read() const {  // 0: unknown
        return reader->total_bytes ? double(reader->bytes_read) / double(reader->total_bytes) : 0;
    }
    void ignore(std::span<int> targets, size_t first) const {
        for (size_t i = 0; packer && i < targets.size(); i++)
            if (!counts[first + i]) targets[i] = ignored_target;
    }

    // Reads until `wanted` tokens follow, or the text ends.
    void read(size_t wanted) {
        if (reader->options.is_chat) return read_examples(wanted);
        for (TextBlock block; tokens.size() - at < wanted && reader->next(block); block = {}) {
            const EncodedBlock encoded = encode_block(block, reader->options, *tokenizer);
            skipped_lines += encoded.skipped_lines;
            if (encoded.not_utf8 != std::string::npos && not_utf8.empty()) not_utf8 = block.path;
            tokens.erase(tokens.begin(), tokens.begin() + std::ptrdiff_t(at));
            at = 0;
            const uint16_t end = uint16_t(tokenizer->end_of_text);
            if (encoded.begins_document && (tokens.empty() || tokens.back() != end)) tokens.push_back(end);
            const bool repeats_end = !encoded.tokens.empty() && !tokens.empty() && encoded.tokens[0] == end &&
                                     tokens.back() == end;
            tokens.insert(tokens.end(), encoded.tokens.begin() + repeats_end, encoded.tokens.end());
        }
    }
    // Each example has a sequence of its own, as a question that is asked.
    void read_examples(size_t wanted) {
        if (!packer) packer = ExamplePacker{uint64_t(T), uint16_t(tokenizer->end_of_text)};
        packer->take = [this](std::span<const uint16_t> more, const std::vector<bool>& targets) {
            tokens.insert(tokens.end(), more.begin(), more.end());
            counts.insert(counts.end(), targets.begin(), targets.end());
        };
        for (TextBlock block; tokens.size() - at < wanted && !has_ended; block = {}) {
            tokens.erase(tokens.begin(), tokens.begin() + std::ptrdiff_t(at));
            counts.erase(counts.begin(), counts.begin() + std::ptrdiff_t(at));
            at = 0;
            has_ended = !reader->next(block);
            if (has_ended) return packer->finish();
            const EncodedBlock encoded = encode_block(block, reader->options, *tokenizer);
            skipped_lines += encoded.skipped_lines;
            notes.add(encoded);
            for (const EncodedExample& example : encoded.examples) {
                packer->add(example);
                packer->end_sequence();
            }
        }
    }
    bool next(std::vector<int>& inputs, std::vector<int>& targets, std::vector<int>& lengths) {
        std::fill(inputs.begin(), inputs.end(), 0);
        std::fill(targets.begin(), targets.end(), 0);
        for (int row = 0; row < B; row++) {
            read(size_t(T) + 1);
            const size_t left = tokens.size() - std::min(tokens.size(), at + 1);
            lengths[row] = int(std::min<size_t>(T, left));
            const auto first = tokens.begin() + std::ptrdiff_t(at);
            std::copy_n(first, lengths[row], inputs.begin() + size_t(row) * T);
            if (lengths[row]) std::copy_n(first + 1, lengths[row], targets.begin() + size_t(row) * T);
            ignore(std::span(targets).subspan(size_t(row) * T, size_t(lengths[row])), at + 1);
            at += lengths[row];
        }
        return lengths[0] > 0;
    }
};

// Counts the answers of a batch, and the exact ones, where some targets are ignored. An answer is what counts
// between two tokens that do not, of one sequence.
struct Answers {
    int T;
    bool has_ignored = false;
    std::vector<int> targets = {}, lengths = {};  // (B,T), (B)
    std::vector<bool> right = {};                 // (B,T): whether the target is the likeliest token

    void begin(const std::vector<int>& of_batch, const std::vector<int>& of_rows) {
        has_ignored = std::ranges::count(of_batch, ignored_target) > 0;
        targets = of_batch;
        lengths = of_rows;
        right.assign(targets.size(), false);
    }
    // Sees rows whose logits are computed.
    template <class Real>
    void look(GPT2<Real>& g, int first, int num_rows) {
        std::vector<float> logits(size_t(g.config.vocab_size));
        for (int row = 0; has_ignored && row < num_rows; row++) {
            const int target = targets[size_t(first + row)];
            if (target == ignored_target) continue;
            g.memory.download_floats(logits.data(), g.acts.logits + size_t(row) * g.config.padded_vocab_size,
                                     logits.size());
            right[size_t(first + row)] = std::ranges::max_element(logits) - logits.begin() == target;
        }
    }
    void count(Score& score) {
        for (size_t row = 0; has_ignored && row < lengths.size(); row++) {
            bool is_exact = true;
            const size_t first = row * size_t(T), end = first + size_t(lengths[row]);
            for (size_t i = first; i < end; i++) {
                if (targets[i] == ignored_target) continue;
                is_exact = is_exact && right[i];
                if (i + 1 < end && targets[i + 1] != ignored_target) continue;
                score.answers++;
                score.exact += std::exchange(is_exact, true);
            }
        }
    }
};

// On a terminal, once it takes more than two seconds.
struct EvalProgress {
    std::optional<Phase> phase = {};
    double last = now() + 1.9;

    void show(double share) {
        if (!on_terminal() || now() - last < 0.1) return;
        last = now();
        update_phase(phase, "evaluating", share > 0 ? format_string("%.1f%%", 100 * share) : "");
    }
};

template <class Real, class Source>
static Score score(GPT2<Real>& g, Source& sequences, int max_batches,
                   const std::optional<Tokenizer>& tokenizer) {
    Score score;
    int batch = 0;
    EvalProgress progress;
    Answers answers = {.T = g.acts.T};
    const auto next = [&](std::vector<int>& inputs, std::vector<int>& targets, std::vector<int>& lengths) {
        answers.count(score);
        progress.show(max_batches > 0 ? double(batch) / max_batches : sequences.share_read());
        if (batch++ == max_batches || !sequences.next(inputs, targets, lengths)) return false;
        answers.begin(targets, lengths);
        return true;
    };
    const auto add = [&](int target, float loss) {
        score.nats += loss;
        score.tokens++;
        if (tokenizer && target != tokenizer->end_of_text) score.bytes += tokenizer->decode(target).size();
    };
    for_each_loss(g, g.acts.B, g.acts.T, next, add,
                  [&](int first, int num_rows) { answers.look(g, first, num_rows); });
    return score;
}

static void print_score(const Score& score, const EvalOptions& options, int positions) {
    if (score.tokens == 0)
        fail("no token that was read is a target: the answers begin later%s%s",
             options.max_batches < 0 ? "" : "; -m -1 reads all batches",
             options.sequence == positions ? "" : "; -t takes longer sequences");
    const double loss = score.nats / double(score.tokens);
    if (!std::isfinite(loss))
        fail(
            "the loss is not finite: the model has diverged, or overflows in this precision (--precision "
            "fp32)");
    const std::string perplexity =
        std::isfinite(std::exp(loss)) ? format_string("%.4f", std::exp(loss)) : "over 1e308";
    printf("tokens %llu | loss %f nats | perplexity %s | ", (unsigned long long)score.tokens, loss,
           perplexity.c_str());
    if (score.bytes)
        printf("%f bits per byte\n", score.nats / std::log(2) / double(score.bytes));
    else
        printf("bits per byte: unknown without the tokenizer (--tokenizer)\n");
    if (score.answers)
        printf("exact answers: %llu/%llu = %f\n", (unsigned long long)score.exact,
               (unsigned long long)score.answers, double(score.exact) / double(score.answers));
}

// The shards to evaluate on. Error if another tokenizer made them. A model that says nothing about its
// tokenizer gets the shards' tokenizer.
static std::vector<TokenShard> open_shards(const EvalOptions& options, TrainedModel& model) {
    if (options.data.empty()) return {};
    const std::vector<TokenShard> shards = open_token_shards(options.data);
    if (const auto made_with = tokenizer_of_shards(options.data)) {
        check_data_fits(*made_with, options.data[0], model.source, model.config);
        if (!model.tokenizer) model.tokenizer = open_recorded_tokenizer(*made_with);
    } else {
        warn_of_bytes(shards, model.config.vocab_size);
    }
    for (const TokenShard& shard : shards) {
        if (!shard.cuts_examples(options.sequence)) continue;
        warn("-t %d cuts examples of %s, which are packed into sequences of %d tokens", options.sequence,
             shard.path.c_str(), shard.packed);
        break;
    }
    return shards;
}

// The texts of --text. Documents end as they did in the model's training, unless an option says it.
static TextSequences open_texts(const EvalOptions& options, TrainedModel& model) {
    if (!model.tokenizer)
        fail("--text: the tokenizer of %s is not known: name it with --tokenizer", model.source.name.c_str());
    PreparationOptions text = {options.of_text};
    text.files = options.text;
    find_text(text);
    SeenFiles seen;
    for (const std::string& file : text.found.files) seen.add_once(file);
    if (text.split == DocumentSplit::automatic)
        text.split = text.is_jsonl() ? DocumentSplit::none : model.source.split;
    if (text.split == DocumentSplit::automatic && model.source.is_file)
        print_line(
            stderr,
            "note: a file is taken as one document, since nothing says how the model's training divided "
            "texts; if at blank lines, give --split-documents blank-line");
    note_left_out(text);
    TextSequences sequences = {std::make_unique<TextReader>(text.found.files, text), &*model.tokenizer,
                               options.batch, options.sequence};
    take_template(text, *model.tokenizer);
    sequences.reader->tokenizer = &*model.tokenizer;
    sequences.read(2);
    if (sequences.tokens.size() < 2) fail("--text %s has no text", options.text[0].c_str());
    return sequences;
}

// The tokens of a sequence if -t does not say it: for questions and answers alone, enough for the longest of
// the first ones, or as many as do not cut those of shards.
static int usual_sequence(const EvalOptions& options, TrainedModel& model) {
    PreparationOptions text = {options.of_text};
    text.files = options.text;
    int packed = 1;
    if (!options.data.empty())
        for (const TokenShard& shard : open_token_shards(options.data))
            packed = std::max(packed, shard.packed);
    if (packed > 1 && packed <= model.positions()) return model.positions() / packed * packed;
    if (options.text.empty() || !options.data.empty() || !options.hellaswag.empty() || !model.tokenizer)
        return model.positions();
    find_text(text);
    if (!text.is_chat) return model.positions();
    take_template(text, *model.tokenizer);
    const size_t longest = longest_example(text, text.found.files, *model.tokenizer);
    if (longest == 0) return model.positions();
    return std::min(model.positions(), int(ceil_div(longest, 64) * 64));
}

template <class Real>
static void evaluate(const EvalOptions& options, TrainedModel& model) {
    const ModelConfig& config = model.config;
    const std::vector<TokenShard> shards = open_shards(options, model);
    uint64_t tokens = 0;
    for (const TokenShard& shard : shards) tokens = std::max(tokens, shard.tokens);
    if (!options.data.empty() && tokens < 2)
        fail("'%s' has no shard of at least two tokens: there is nothing to predict",
             options.data[0].c_str());
    std::vector<HellaSwagExample> examples;
    if (!options.hellaswag.empty()) examples = read_hellaswag(options.hellaswag, config.vocab_size);

    std::optional<TextSequences> texts;
    if (!options.text.empty()) texts = open_texts(options, model);
    const auto pad = open_checked_device(options.model.device, {}, stderr);
    const auto allocate = [&](GPT2<Real>& g) { gpt2_allocate(g, options.batch, options.sequence, false); };
    const auto g = load_model<Real>(model, pad.get(), allocate);
    allocate(*g);
    note_memory(pad.get(), stderr);
    Sequences sequences = {shards, options.batch, options.sequence, config.vocab_size};
    if (!shards.empty())
        print_score(score(*g, sequences, options.max_batches, model.tokenizer), options, model.positions());
    if (texts) {
        Score of_text = score(*g, *texts, options.max_batches, model.tokenizer);
        if (options.of_text.loss_on_questions) of_text.answers = 0;  // those that count are not answers alone
        print_score(of_text, options, model.positions());
    }
    if (texts) note_left_out(*texts->reader);
    if (texts && texts->skipped_lines)
        print_line(stderr, "note: bad lines left out: %llu", (unsigned long long)texts->skipped_lines);
    if (texts && !texts->not_utf8.empty())
        print_line(stderr, "note: %s is not UTF-8; its bytes are used unchanged", texts->not_utf8.c_str());
    if (texts && texts->packer) {
        texts->notes.cut = texts->packer->cut;
        texts->notes.print(options.sequence, options.sequence == model.positions());
    }
    if (examples.empty()) return;
    EvalProgress progress;
    const auto score = score_hellaswag(*g, examples, nullptr, [&] {
        progress.show(0);
        return true;
    });
    progress.phase.reset();
    print_hellaswag(*score);
}

static void add_options(CommandLine& line, EvalOptions& o) {
    add_model_options(line, o.model);
    line.add("-i,--data", o.data, "token shards: a file or a quoted glob pattern; may be repeated")
        .is(PathKind::pattern);
    line.add("--text", o.text, "a text, or a folder of texts, for the model's own tokenizer; may be repeated")
        .is(PathKind::text);
    add_text_options(line, o.of_text);
    line.add("--hellaswag", o.hellaswag,
             "HellaSwag file, made by " + command_of("prepare_data") + " hellaswag")
        .is(PathKind::file);
    line.add("-b,--batch-size bs batch micro-batch", o.batch, "sequences per batch (B)").between(1, 1 << 20);
    line.add("-t,--sequence-length block-size context seq-len ctx max-length n-ctx", o.sequence,
             "tokens per sequence (T; 0: the most with which the model was trained)")
        .between(0, 1 << 20);
    line.add("-m,--max-batches", o.max_batches, "most batches to evaluate (-1: all)").at_least(-1);
}

int main(int argc, char** argv) {
    start_program(argv);
    EvalOptions options;
    CommandLine line("eval", "Evaluates a trained GPT-2 on token shards, texts and HellaSwag.");
    add_options(line, options);
    return line.run(argc, argv, [&] {
        if (options.data.empty() && options.hellaswag.empty() && options.text.empty())
            fail("nothing to evaluate on: give token shards with -i, --text FILE, or --hellaswag FILE");
        if (options.text.empty()) refuse_text_options(line);
        const bool has_tokens = !options.data.empty() || !options.text.empty();
        line.note({{"max-batches", "HellaSwag's file is read as a whole", !has_tokens},
                   {"tokenizer", "HellaSwag's file has tokens", !has_tokens}});
        TrainedModel model = open_model(options.model);
        const ModelConfig& config = model.config;
        if (options.sequence == 0) options.sequence = usual_sequence(options, model);
        if (options.sequence > config.max_seq_len)
            fail("-t %d is more than the model's max_seq_len %d", options.sequence, config.max_seq_len);
        if (options.sequence > model.positions())
            fail("-t %d: the model was trained with at most %d tokens in a sequence: use -t %d or less",
                 options.sequence, model.positions(), model.positions());
        if (int64_t(options.batch) * options.sequence > 1 << 30)
            fail("-b %d times -t %d is more than 2^30 tokens", options.batch, options.sequence);
        if (options.max_batches == 0) fail("-m 0: at least one batch is needed");
        with_precision(options.model.precision, [&]<class Real>(Real) { evaluate<Real>(options, model); });
    });
}
