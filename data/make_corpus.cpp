// make_corpus: writes the default corpus (llmc/text/corpus.h) in any size, from a seed, with its exact
// entropy: the loss of a perfect model.
//     make_corpus --out data/corpus.txt --bytes 4000000 --seed 1 --val-tokens 32768
// writes data/corpus.txt, which prepare_data --split-documents blank-line tokenizes, and data/corpus.json
// with the number of tokens and the entropy in nats. --check FILE reads stories, for instance a model's
// samples, and counts how many of them the grammar could have written.
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/corpus_file.h"
#include "llmc/options/command_line.h"
#include "llmc/options/start_program.h"
#include "llmc/text/corpus.h"

struct Options : CorpusOptions {
    std::string check;
};

// Takes the next story, which ends with a blank line, off the text, which continues in the file. Returns ""
// if there is none: a truncated story at the end does not count.
static std::string take_story(std::string& text, const File& file, const std::string& path) {
    const size_t longest = 1 << 20, piece = 1 << 12;
    size_t end;
    while ((end = text.find("\n\n")) == std::string::npos) {
        const size_t before = text.size();
        if (before > longest) fail("%s: no blank line ends a story within %zu bytes", path.c_str(), longest);
        text.resize(before + piece);
        text.resize(before + read_some(file, path, &text[before], piece));
        if (text.size() == before) return "";
    }
    const std::string story = text.substr(0, end + 2);
    text.erase(0, story.size());
    return story;
}

static void check(const std::string& path) {
    const std::string end_of_text = "<|endoftext|>";
    const File file = open_to_read(path);
    std::string text, first_fault;
    uint64_t stories = 0, good = 0, bytes = 0;
    double nats = 0;
    for (std::string story; !(story = take_story(text, file, path)).empty();) {
        if (story.starts_with(end_of_text)) story.erase(0, end_of_text.size());
        stories++;
        try {
            nats += read_story(story).nats;
            bytes += story.size();
            good++;
        } catch (const Error& error) {
            if (first_fault.empty())
                first_fault = format_string("; story %llu is %s", (unsigned long long)stories, error.what());
        }
    }
    if (stories == 0) fail("%s has no story that ends with a blank line", path.c_str());
    const std::string rate = good > 0 ? format_string(", with %.5f nats per byte", nats / double(bytes)) : "";
    print_line(stdout, "%s: the grammar accepts %llu of %llu stories%s%s", path.c_str(),
               (unsigned long long)good, (unsigned long long)stories, rate.c_str(), first_fault.c_str());
}

int main(int argc, char** argv) {
    start_program(argv);
    Options options;
    CommandLine line(
        "make_corpus",
        "Writes stories whose exact entropy is known, or checks whether a text consists of them.");
    line.accept_cpu_as_device();
    line.add("--out output out-dir output-dir", options.out,
             "text file to write; its numbers go beside it, named .json")
        .is(PathKind::file);
    line.add("--bytes", options.bytes, "minimum size in bytes");
    line.add("--stories", options.stories, "minimum number of stories");
    line.add("--seed", options.seed, "the same seed gives the same text");
    line.add("--tokenizer", options.tokenizer, "tokenizer that counts tokens: a file, or bytes")
        .is(PathKind::tokenizer);
    line.add("--val-tokens", options.val_tokens, "size of the validation part, rounded up to whole stories");
    line.add("--check", options.check, "text file whose stories to check").is(PathKind::file);
    return line.run(argc, argv, [&] {
        if (!options.check.empty()) return check(options.check);
        if (options.out.empty()) fail("--out FILE is needed");
        if (options.bytes == 0 && options.stories == 0) fail("--bytes N or --stories N is needed");
        const StopWritingAtSignals stops;
        write_corpus(options);
    });
}
