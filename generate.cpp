// Generates text with a trained GPT-2 and prints it token by token.
//
//     generate -e gpt2_124M.bin "Once upon a time"
//     generate -e model.safetensors --file prompt.txt -n 200 --temperature 0.8 --top-k 40 --seed 7
//     echo "To be" | generate -e model.bin -
//     generate -e model.bin --prompts questions.txt --samples 4 --stop '.'
//     generate -e model.bin -i
//     generate -e runs/qa --question "Who?"; generate -e runs/qa --chat
//
// Standard output gets only the texts; device and speed go to standard error. The same seed gives the same
// text on the same device.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/utf8.h"
#include "llmc/generate/text_generator.h"
#include "llmc/kernels/self_test.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/command_line.h"
#include "llmc/options/shared_options.h"
#include "llmc/options/start_program.h"
#include "llmc/run/line_editor.h"
#include "llmc/run/trained_model.h"
#include "llmc/text/chat_template.h"
#include "llmc/text/jinja_functions.h"
#include "llmc/text/text_file.h"
#include "llmc/text/text_stream.h"
#include "llmc/text/tokenizer_roles.h"

struct GenerateOptions {
    ModelOptions model;
    std::string prompt, prompt_file, prompts_file;
    std::vector<std::string> stops;
    int tokens = 128, samples = 1;
    SamplerOptions sampler;
    float repetition_penalty = 1;
    uint64_t seed = 42;
    bool no_echo = false, ignore_end = false, interactive = false;
    std::string question, system, chat_template;  // with the model's template, or a file's
    bool chat = false;
    bool asks() const { return chat || !question.empty(); }
};

// A newline at the end comes from an editor or echo and is not part of the prompt.
static std::string without_line_end(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

// The lines of a file that are not empty.
static std::vector<std::string> read_lines(const std::string& path) {
    std::vector<std::string> lines;
    for (std::string line : lines_of(read_text_file(path)))
        if (line = without_line_end(line); !line.empty()) lines.push_back(line);
    if (lines.empty()) fail("%s has no prompt: each line is one", path.c_str());
    return lines;
}

static std::vector<std::string> read_prompts(const GenerateOptions& options) {
    const int given = !options.prompt.empty() + !options.prompt_file.empty() + !options.prompts_file.empty();
    if (given + options.interactive + options.chat + !options.question.empty() > 1)
        fail(
            "a prompt, --file, --prompts, -i, --chat and --question each say what to continue: give one of "
            "them");
    if (!options.asks() && (!options.system.empty() || !options.chat_template.empty()))
        fail("--system and --template are for --chat and --question");
    if (options.no_echo && (options.asks() || options.interactive))
        fail("--no-echo has no effect with --question, --chat and -i, which never print the prompt");
    if (options.ignore_end && options.asks())
        fail("--ignore-end is for texts: an answer of --question and --chat ends where the model ends it");
    if (!options.prompts_file.empty()) return read_lines(options.prompts_file);
    if (!options.prompt_file.empty()) return {without_line_end(read_text_file(options.prompt_file))};
    if (options.prompt != "-") return {options.prompt};
    return {without_line_end(read_text_file("-"))};
}

// The prompt's tokens after an end-of-text token, which starts every document in the training data.
static std::vector<int> prompt_tokens(Tokenizer& tokenizer, std::string_view prompt, bool is_chat) {
    std::vector<uint16_t> encoded = {uint16_t(tokenizer.end_of_text)};
    const std::string& end = tokenizer.decode(tokenizer.end_of_text);  // a template may begin with it
    if (prompt.starts_with(end)) prompt.remove_prefix(end.size());
    if (is_chat)
        encode_prompt(prompt, tokenizer, encoded);
    else
        tokenizer.encode(prompt, encoded, AddedTokens::all);
    return std::vector<int>(encoded.begin(), encoded.end());
}

static volatile std::sig_atomic_t interrupted = 0;
static void interrupt(int) { interrupted = 1; }

// A text while it is generated.
struct Text {
    StopTexts stop;
    std::string shown = "";  // what has been decoded and not been printed
    std::string whole = "";
    bool ended = false;
    int count = 0;  // generated tokens
};

template <class Real>
struct Generator {
    const GenerateOptions& options;
    Tokenizer& tokenizer;
    const std::set<int64_t> ends;
    const int context;
    TextGenerator<Real> generator;

    Generator(const GenerateOptions& with, Tokenizer& t, const GPT2<Real>& g)
        : options(with),
          tokenizer(t),
          ends(ends_of_text(t)),
          context(g.config.max_seq_len),
          generator(g, context, with.samples, {with.sampler, with.repetition_penalty, t.vocab_size()}) {}

    // Tokens that an answer may have behind its question.
    int answer_room() const { return std::clamp(options.tokens, 0, context / 2); }
    // Returns the first text.
    std::string continue_prompt(const std::string& prompt, const std::string& title);

   private:
    std::vector<uint64_t> first_random_states() const;
    void add_token(Text& text, int token) const;
    void generate(std::vector<Text>& texts, TextStream& out);
    void note_length(int tokens, int read) const;
    void print_start(TextStream& out, const std::string& title, int sample, const std::string& prompt) const;
};

// The state of each sample's random numbers.
template <class Real>
std::vector<uint64_t> Generator<Real>::first_random_states() const {
    std::vector<uint64_t> random_states;
    for (int i = 0; i < options.samples; i++) {
        const uint64_t state = 1295 + options.seed + i;  // with the seed 42, llm.c's
        random_states.push_back(state ? state : 1);      // the generator cannot leave the state 0
    }
    return random_states;
}

// Sees whether the text ends with this token.
template <class Real>
void Generator<Real>::add_token(Text& text, int token) const {
    text.ended = ends.contains(token) && !options.ignore_end;
    if (text.ended) return;
    text.count++;
    std::string more = text.stop.add(token == tokenizer.end_of_text ? "\n\n" : tokenizer.decode(token));
    if (options.asks() && text.whole.empty()) more.erase(0, more.find_first_not_of(' '));
    text.whole += more;
    text.shown += more;
    text.ended = text.stop.found;
}

// Generates until all texts have ended. A single one is printed meanwhile.
template <class Real>
void Generator<Real>::generate(std::vector<Text>& texts, TextStream& out) {
    std::vector<int> next(texts.size());
    for (int i = 0; i < options.tokens; i++) {
        generator.next(next.data());
        bool all_ended = true;
        for (size_t b = 0; b < texts.size(); b++) {
            if (!texts[b].ended) add_token(texts[b], next[b]);
            all_ended = all_ended && texts[b].ended;
        }
        if (texts.size() == 1) out.write(std::exchange(texts[0].shown, ""));
        if (all_ended || interrupted) break;
    }
    for (Text& text : texts) {
        const std::string rest = text.stop.finish();
        text.shown += rest;
        text.whole += rest;
    }
}

template <class Real>
void Generator<Real>::print_start(TextStream& out, const std::string& title, int sample,
                                  const std::string& prompt) const {
    std::string line = title;
    if (options.samples > 1)
        line += format_string("%ssample %d of %d", title.empty() ? "" : ", ", sample + 1, options.samples);
    if (!line.empty()) out.write("--- " + line + " ---\n");
    if (!options.no_echo && !options.interactive && !options.asks()) out.write(prompt);
}

// Says what of a prompt is not used, `read` of its tokens, or not to the end of an answer.
template <class Real>
void Generator<Real>::note_length(int tokens, int read) const {
    const char* what = !options.asks()          ? "prompt"
                       : options.system.empty() ? "question with its template"
                                                : "question with its template and --system";
    if (read < tokens)
        fprintf(stderr,
                "generate: note: the %s has %d tokens and the model's context is %d: only the last %d are "
                "used\n",
                what, tokens - 1, context, read);
    else if (options.asks() && tokens + answer_room() > context)
        fprintf(stderr,
                "generate: note: the %s has %d tokens and the model's context is %d: after %s of the "
                "answer, the beginning is forgotten\n",
                what, tokens - 1, context, counted(context - tokens, "token").c_str());
}

// Every byte has a token; those of another encoding are of other letters.
static void note_not_utf8(std::string_view text) {
    if (const size_t at = find_not_utf8(text); at != text.npos)
        fprintf(stderr, "generate: note: the prompt is not UTF-8 at byte %zu; its bytes are used unchanged\n",
                at);
}

// Prints the prompt's continuations. A title is given if there are several prompts.
template <class Real>
std::string Generator<Real>::continue_prompt(const std::string& prompt, const std::string& title) {
    if (!options.asks()) note_not_utf8(prompt);
    const std::vector<int> tokens = prompt_tokens(tokenizer, prompt, options.asks());
    const int read = int(tokens.size()) > context ? generator.reader.kept() : int(tokens.size());
    note_length(int(tokens.size()), read);
    TextStream out;
    if (options.samples == 1) print_start(out, title, 0, prompt);
    generator.prepare(int(tokens.size()));
    note_memory(generator.g.pad, stderr);
    const double start = now();
    generator.start(tokens, first_random_states());
    generator.wait();
    const double first_token = now();
    std::vector<Text> texts(options.samples, Text{.stop = {options.stops}});
    generate(texts, out);
    const double reading = first_token - start, writing = now() - first_token;
    int count = 0;
    for (int i = 0; i < options.samples; i++) {
        if (options.samples > 1) print_start(out, title, i, prompt);
        out.write(texts[i].shown);
        texts[i].count > 0 ? out.cut() : out.finish();
        out.write("\n");
        count += texts[i].count;
    }
    if (!options.interactive && !options.chat)
        fprintf(stderr, "%d tokens read in %.2f s, %d written in %.2f s: %.1f tokens/s\n", read, reading,
                count, writing, count / std::max(writing, 1e-9));
    return texts[0].whole;
}

static void read_lines_typed(const std::function<void(const std::string& line)>& take) {
    while (const std::optional<std::string> line = read_typed_line("> ")) {
        if (trimmed(*line).empty()) continue;
        interrupted = 0;
        const auto before = std::signal(SIGINT, interrupt);
        take(*line);
        std::signal(SIGINT, before);
    }
}

// Continues each line that is typed. Control-C ends a continuation; at the prompt, it deletes the line.
template <class Real>
static void converse(Generator<Real>& generator) {
    fprintf(stderr, "each line is a prompt; Control-C ends its continuation, %s the program\n",
            end_of_input_key);
    read_lines_typed([&](const std::string& line) { generator.continue_prompt(line, ""); });
}

// The prompt of a conversation. Of one without room for an answer, the oldest turns are left out of messages.
// Of a single question that is too long, the generator keeps the end.
static std::string fitting_prompt(nlohmann::json& messages, const ChatTemplate& chat, Tokenizer& tokenizer,
                                  int most_tokens) {
    static bool is_noted = false;
    for (;;) {
        const std::string prompt = chat.prompt(messages);
        if (int(prompt_tokens(tokenizer, prompt, true).size()) <= most_tokens) return prompt;
        const int first = messages[0]["role"] == "system";
        if (int(messages.size()) <= first + 2) return prompt;
        messages.erase(messages.begin() + first, messages.begin() + first + 2);  // with its answer
        if (!std::exchange(is_noted, true))
            fprintf(stderr,
                    "generate: note: the conversation outgrows the model's context: its oldest questions are "
                    "left out\n");
    }
}

// Answers each question that is typed, which follows the ones before it.
template <class Real>
static void answer_questions(Generator<Real>& generator, const GenerateOptions& options,
                             Tokenizer& tokenizer) {
    const ChatTemplate chat(tokenizer);
    nlohmann::json messages = nlohmann::json::array();
    const auto say = [&](const char* role, const std::string& text) {
        if (std::string(role) != "assistant") note_not_utf8(text);
        messages.push_back({{"role", role}, {"content", text}});
        const std::string mark = chat.mark_in(nlohmann::json::array({messages.back()}));
        if (!mark.empty() && std::string(role) != "assistant")
            fprintf(stderr,
                    "generate: note: the text has %s, a mark of the template, as if another turn began\n",
                    printable(mark).c_str());
    };
    const auto ask = [&](const std::string& question) {
        say("user", chat.as_text(question, tokenizer));
        const std::string prompt =
            fitting_prompt(messages, chat, tokenizer, generator.context - generator.answer_room());
        say("assistant", trimmed(generator.continue_prompt(prompt, "")));
    };
    if (!options.system.empty()) say("system", chat.as_text(options.system, tokenizer));
    if (!options.chat) return ask(options.question);
    fprintf(stderr, "each line is a question; Control-C ends its answer, %s the program\n", end_of_input_key);
    read_lines_typed([&](const std::string& line) { ask(line); });
}

template <class Real>
static void generate(const GenerateOptions& options, TrainedModel& model,
                     const std::vector<std::string>& prompts) {
    const auto pad = open_checked_device(options.model.device, {}, stderr);
    const auto g = load_model<Real>(model, pad.get(), [&](GPT2<Real>& counted) {
        const TextGenerator<Real> generator(counted, model.positions(), options.samples);
        counted.memory.count("samples", generator.memory_bytes());
    });
    Generator<Real> generator(options, *model.tokenizer, *g);
    if (options.asks()) return answer_questions(generator, options, *model.tokenizer);
    if (options.interactive) return converse(generator);
    for (size_t i = 0; i < prompts.size(); i++)
        generator.continue_prompt(
            prompts[i], prompts.size() > 1 ? format_string("prompt %zu of %zu", i + 1, prompts.size()) : "");
}

static void add_options(CommandLine& line, GenerateOptions& o) {
    add_model_options(line, o.model);
    line.add("PROMPT", o.prompt,
             "text to continue; -: read it from standard input, without a newline at its end");
    line.add("--file", o.prompt_file, "read the prompt from this file, without a newline at its end")
        .is(PathKind::file)
        .not_empty();
    line.add("--prompts", o.prompts_file, "continue each line of this file that is not empty")
        .is(PathKind::file)
        .not_empty();
    line.add("-i,--interactive", o.interactive, "continue each line that is typed");
    line.add("--question", o.question, "answer this, of a model that learnt questions and answers")
        .not_empty();
    line.add("--chat", o.chat, "answer each question that is typed, which follows the ones before it");
    line.add("--system", o.system, "a system message before the questions").not_empty();
    line.add("--template", o.chat_template,
             "of the questions, as " + command_of("train_gpt2") +
                 " --template reads it (default: the model's own)")
        .is(PathKind::file)
        .not_empty();
    line.add("--samples num-samples num-return-sequences", o.samples,
             "texts for each prompt, generated side by side; the seeds count up")
        .between(1, 1024);
    line.add("--stop", o.stops, "end a text before this; may be given several times");
    line.add("-n,--tokens max-new-tokens max-tokens length", o.tokens, "most tokens to generate");
    add_sampler_options(line, o.sampler);
    line.add("--min-p", o.sampler.min_p,
             "sample from the tokens at least this times as likely as the likeliest")
        .between(0, 1);
    line.add("--repetition-penalty repeat-penalty", o.repetition_penalty,
             "makes tokens that are in the text less likely; 1: no change, 1.2: a usual value")
        .between(0.01, 100);
    line.add("--seed", o.seed, "the same seed gives the same text on the same device");
    line.add("--no-echo", o.no_echo, "do not print the prompt");
    line.add("--ignore-end", o.ignore_end, "continue with a new document after end-of-text");
}

int main(int argc, char** argv) {
    start_program(argv);
    GenerateOptions options;
    CommandLine line("generate", "Generates text with a trained GPT-2, on the CPU or on any Vulkan device.");
    add_options(line, options);
    return line.run(argc, argv, [&] {
        const bool is_cold = options.sampler.temperature == 0;
        const bool is_greedy = is_cold || options.sampler.top_k == 1;
        const std::string why =
            std::string(is_cold ? "--temperature 0" : "--top-k 1") + " always takes the likeliest token";
        line.note({{"top-k", why, is_cold},
                   {"temperature", why, is_greedy && !is_cold},
                   {"top-p", why, is_greedy},
                   {"min-p", why, is_greedy},
                   {"seed", why, is_greedy}});
        TrainedModel model = open_model(options.model);
        if (!model.tokenizer)
            fail("no tokenizer of %d tokens for %s: name one with --tokenizer", model.config.vocab_size,
                 options.model.model.c_str());
        if (options.asks() && !options.chat_template.empty()) {
            model.tokenizer->template_name = "--template " + options.chat_template;
            model.tokenizer->roles =
                with_chat_template(model.tokenizer->roles, read_chat_template(options.chat_template));
        }
        if (options.asks() && chat_template_of(model.tokenizer->roles).empty())
            fail(
                "%s has learnt no questions and answers: it has no chat template; %s -e %s --text chat.jsonl "
                "teaches it some",
                options.model.model.c_str(), command_of("train_gpt2").c_str(),
                shell_word(options.model.model).c_str());
        if (options.asks() && options.samples > 1) fail("--samples is not for questions");
        if (options.asks())
            if (const std::string stop = ChatTemplate(*model.tokenizer).stop(); !stop.empty())
                options.stops.push_back(stop);
        if (std::count(options.stops.begin(), options.stops.end(), "") > 0) fail("--stop is empty");
        const std::vector<std::string> prompts = read_prompts(options);
        with_precision(options.model.precision,
                       [&]<class Real>(Real) { generate<Real>(options, model, prompts); });
    });
}
