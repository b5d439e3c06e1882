// What tests of faults run: a small run with its shards and texts, and commands of the other programs.
#pragma once
#include <filesystem>

#include "llmc/base/lines.h"
#include "tests/tiny_run.h"

inline Words preparation(const std::string& text, const std::string& folder) {
    return args(bin("prepare_data"), text, "--out", folder, "--name x");
}

inline Words evaluation(const std::string& model, const std::string& tokens) {
    return args(bin("eval"), "-e", model, "-i", tokens, "-b 1 -t 16 --device cpu");
}

inline ProgramResult run_faulty(const std::string& watched, const Words& settings, const Words& command) {
    return run_program(faulty(watched, settings, command));
}

inline void write_text(const std::string& path, int lines) {
    write_whole_file(path, {numbered(lines, "some words, and the number ", "\n\n")});
}

// A run with two checkpoints, shards in a folder of their own, and texts in another.
struct Journeys : Data {
    std::string run_folder = *this / "run", shards = *this / "shards", texts = *this / "texts",
                answers = *this / "answers.jsonl";
    Journeys() {
        std::filesystem::create_directories(shards);
        std::filesystem::create_directories(texts + "/below");
        for (const char* name : {"/a.bin", "/b.bin", "/c.bin"}) write_tokens(shards + name, 900, 67);
        write_text(texts + "/a.txt", 20);
        write_text(texts + "/below/b.txt", 30);
        std::string lines;
        for (int i = 0; i < 40; i++)
            lines +=
                format_string(R"({"prompt": "what is %d?", "completion": "one less than %d"})", i, i + 1) +
                "\n";
        write_whole_file(answers, {lines});
        expect_ok(run({"-o", run_folder, "-x", "4", "-n", "2", "-s", "0", "-v", "2", "--device", "cpu"}));
    }
};
