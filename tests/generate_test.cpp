// The program generate: prompts from all sources, reproducible texts, texts longer than the model's context,
// and bad input. The stream that prints whole characters.
#include <gtest/gtest.h>

#include "llmc/base/file.h"
#include "llmc/data/text_stream.h"
#include "llmc/files/hugging_face.h"
#include "llmc/model/initialize.h"
#include "tests/run_program.h"

static const std::string program = BINARY_DIR "/generate";
static const std::string tiny = "custom:layers=2,heads=2,channels=32,max_seq_len=64,vocab=257";

static ProgramResult generate(std::vector<std::string> arguments) {
    const std::vector<std::string> first = {program, "-e", tiny, "--device", "cpu"};
    arguments.insert(arguments.begin(), first.begin(), first.end());
    return run_program(arguments);
}

TEST(TextStream, NeverSplitsACharacter) {
    const std::pair<const char*, size_t> cases[] = {{"", 0},
                                                    {"a", 1},
                                                    {"\xc3", 0},
                                                    {"a\xc3", 1},
                                                    {"\xc3\xa9", 2},
                                                    {"\xe2\x82", 0},
                                                    {"x\xe2", 1},
                                                    {"\xe2\x82\xac", 3},
                                                    {"\xf0\x9f\x98", 0},
                                                    {"\xf0\x9f\x98\x80", 4},
                                                    {"\x80", 1},
                                                    {"\x80\x80\x80\x80", 4},
                                                    {"\xff", 1},
                                                    {"\xc3\xa9\xa9", 3},
                                                    {"a\xc0", 2}};
    for (const auto& [text, whole] : cases) EXPECT_EQ(whole_characters(text), whole) << text;
}

TEST(TextStream, EveryByteArrives) {
    TemporaryFolder folder;
    const std::string path = folder / "text", all = "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\x80z\xe2";
    File file(fopen(path.c_str(), "wb"));
    TextStream stream = {file.get()};
    for (char c : all) {
        stream.write(std::string(1, c));
        const std::string now = read_text(path);
        EXPECT_EQ(whole_characters(now), now.size());
        EXPECT_EQ(now, all.substr(0, now.size()));
    }
    EXPECT_EQ(read_text(path), all.substr(0, all.size() - 1));
    stream.finish();
    EXPECT_EQ(read_text(path), all);
}

TEST(TextStream, ReportsWriteErrors) {
    File full(fopen("/dev/full", "wb"));
    if (!full) GTEST_SKIP() << "no /dev/full";
    TextStream stream = {full.get()};
    EXPECT_ANY_THROW(stream.write("text"));
}

TEST(Generate, PromptFromArgumentFileOrStandardInput) {
    TemporaryFolder folder;
    write_whole_file(folder / "prompt", {"Once upon"});
    const ProgramResult argument = generate({"-n", "40", "Once upon"});
    ASSERT_EQ(argument.status, 0) << argument.err;
    EXPECT_EQ(argument.out.rfind("Once upon", 0), 0u) << argument.out;
    EXPECT_GT(argument.out.size(), 40u);
    EXPECT_NE(argument.err.find("tokens/s"), std::string::npos) << argument.err;
    EXPECT_EQ(generate({"-n", "40", "--file", folder / "prompt"}).out, argument.out);
    const std::string piped = "printf 'Once upon' | " + program + " -e " + tiny + " --device cpu -n 40 -";
    EXPECT_EQ(run_program({"sh", "-c", piped}).out, argument.out);
    for (const char* line_end : {"\n", "\r\n"}) {
        write_whole_file(folder / "line", {"Once upon", line_end});
        EXPECT_EQ(generate({"-n", "40", "--file", folder / "line"}).out, argument.out);
        EXPECT_EQ(run_program(
                      {"sh", "-c",
                       "cat " + folder / "line" + " | " + program + " -e " + tiny + " --device cpu -n 40 -"})
                      .out,
                  argument.out);
    }
    write_whole_file(folder / "lines", {"Once upon\n\n"});
    EXPECT_EQ(generate({"-n", "0", "--file", folder / "lines"}).out, "Once upon\n\n");
    EXPECT_EQ("Once upon" + generate({"-n", "40", "--no-echo", "Once upon"}).out, argument.out);
    EXPECT_EQ(generate({"-n", "0", "Once upon"}).out, "Once upon\n");
    EXPECT_EQ(generate({"-n", "5"}).status, 0);  // a new document
}

TEST(Generate, SameSeedSameTextAlsoPastTheContext) {
    auto text = [](const std::string& seed) {
        return generate({"-n", "300", "--ignore-end", "--seed", seed, "To be"}).out;
    };
    const std::string first = text("7");
    EXPECT_GT(first.size(), 290u);
    EXPECT_EQ(text("7"), first);
    EXPECT_NE(text("8"), first);
}

TEST(Generate, SamplingOptionsHaveAnEffect) {
    auto text = [](std::vector<std::string> options) {
        options.insert(options.end(), {"-n", "60", "--ignore-end", "To be"});
        return generate(options).out;
    };
    const std::string greedy = text({"--temperature", "0"});
    EXPECT_EQ(text({"--top-k", "1", "--seed", "9"}), greedy);
    EXPECT_EQ(text({"--top-p", "0", "--seed", "10"}), greedy);
    EXPECT_NE(text({}), greedy);
    EXPECT_NE(text({"--top-k", "5"}), text({}));
}

TEST(Generate, ReadsHuggingFaceFiles) {
    TemporaryFolder folder;
    const ModelConfig config = parse_descriptor(tiny);
    std::vector<std::vector<float>> tensors;
    float* pointers[NUM_PARAMETER_TENSORS];
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) tensors.emplace_back(parameter_size(config, i));
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) pointers[i] = tensors[i].data();
    initialize_parameters(config, 42, pointers);
    write_hugging_face(folder.path, config, [&](int tensor, size_t offset, float* values, size_t count) {
        std::copy_n(pointers[tensor] + offset, count, values);
    });
    const ProgramResult result =
        run_program({program, "-e", folder / "model.safetensors", "--device", "cpu", "-n", "50", "x"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, generate({"-n", "50", "x"}).out);
}

TEST(Generate, BadInputGivesOneLineAndStatus1) {
    TemporaryFolder folder;
    write_whole_file(folder / "text", {"some text"});
    const std::vector<std::vector<std::string>> cases = {
        {program},
        {program, "-e", "d7", "x"},
        {program, "-e", folder / "missing.bin", "x"},
        {program, "-e", folder / "missing.safetensors", "x"},
        {program, "-e", tiny, "--tokenizer", folder / "text", "x"},
        {program, "-e", "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=99", "--tokenizer", "bytes",
         "x"},
        {program, "-e", tiny, "--file", folder / "missing"},
        {program, "-e", tiny, "--file", folder / "text", "x"},
        {program, "-e", tiny, "-n", "-1", "x"},
        {program, "-e", tiny, "--temperature", "warm", "x"},
        {program, "-e", tiny, "--top-p", "1.5", "x"},
        {program, "-e", tiny, "--precision", "int8", "x"},
        {program, "-e", tiny, "--device", "no such device", "x"},
    };
    for (const std::vector<std::string>& arguments : cases) {
        const ProgramResult result = run_program(arguments);
        std::string shown;
        for (const std::string& argument : arguments) shown += argument + " ";
        EXPECT_EQ(result.status, 1) << shown;
        EXPECT_EQ(count_lines(result.err), 1) << shown << result.err;
        EXPECT_EQ(result.err.rfind("generate: ", 0), 0u) << shown << result.err;
        EXPECT_EQ(result.out, "") << shown;
    }
}
