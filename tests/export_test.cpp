// --export: what other programs read of a model, and what becomes of the files that were there. The tests of
// other programs need a Python that has them: LLMC_TEST_PYTHON names it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>

#include "llmc/base/file.h"
#include "llmc/text/tokenizer.h"
#include "tests/tiny_run.h"

static std::string python() {
    const char* named = getenv("LLMC_TEST_PYTHON");
    return named ? named : "python3";
}

static bool python_has(const std::string& modules) {
    return program_succeeds({python(), "-c", "import " + modules});
}

// A tokenizer of 256 bytes, some merges and end-of-text.
static void write_small_tokenizer(const std::string& path) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.tokens.insert(tokenizer.tokens.end() - 1, {"on", "ce", "once", " up", " upon"});
    tokenizer.tokens[259] = " u";
    tokenizer.tokens[260] = " up";
    tokenizer.end_of_text = tokenizer.vocab_size() - 1;
    write_tokenizer(tokenizer, path);
}

// Models of a text, trained until they continue it with certainty: their texts agree in every precision.
struct Export : ::testing::Test {
    static inline std::unique_ptr<TemporaryFolder> shared;

    static void SetUpTestSuite() {
        shared = std::make_unique<TemporaryFolder>();
        std::string text;
        for (int i = 0; i < 300; i++) text += "once upon a time there was a small house by the sea.\n";
        write_whole_file(*shared / "my.txt", {text});
        write_small_tokenizer(*shared / "small.bin");
        train("bytes", "bytes");
        train("bpe", *shared / "small.bin");
    }
    static void TearDownTestSuite() { shared.reset(); }
    static void train(const std::string& name, const std::string& tokenizer) {
        expect_ok(run_program("prepare_data --out", *shared / "data", "--name", name, "--tokenizer",
                              tokenizer, "--val-tokens 600", *shared / "my.txt"));
        const std::string data = *shared / ("data/" + name);
        expect_ok(run_program(with(
            {program, "-i", data + "_train.bin", "-j", data + "_val.bin", "-o", run_of(name)},
            words_of("--device cpu -e custom:layers=2,heads=2,channels=32,max_seq_len=64 -b 4 -t 64 -x 120 "
                     "-l 0.005 -s 0 -n 120"))));
    }
    static std::string run_of(const std::string& name) { return *shared / ("run_" + name); }
    static ProgramResult export_to(const std::string& format, const std::string& path,
                                   const Words& more = {"-e", run_of("bytes")}) {
        return run_program(with({program, "--export", format, path}, more));
    }
    static std::string greedy_text(const std::string& model) {
        return output_of(run_program({BINARY_DIR "/generate", "-e", model, "--device", "cpu", "-n", "30",
                                      "--temperature", "0", "once upon"}));
    }
    // As Python prints it.
    static std::string list_of_tokens(const std::string& name, const char* text,
                                      bool begins_document = false) {
        Tokenizer tokenizer = open_tokenizer(name == "bpe" ? *shared / "small.bin" : "bytes");
        std::vector<uint16_t> tokens;
        if (begins_document) tokens.push_back(uint16_t(tokenizer.end_of_text));
        tokenizer.encode(text, tokens);
        std::string list;
        for (uint16_t token : tokens) list += (list.empty() ? "[" : ", ") + std::to_string(token);
        return list + "]\n";
    }
    // Calls check(path, tokenizer's name) for a GGUF file of each tokenizer and precision.
    template <class Check>
    void for_each_file(Check check) {
        for (const char* name : {"bytes", "bpe"})
            for (const char* precision : {"fp32", "bf16", "fp16", "q8_0"}) {
                const std::string path = folder / format_string("%s_%s.gguf", name, precision);
                expect_ok(export_to("gguf", path, {"-e", run_of(name), "--precision", precision}));
                check(path, name);
            }
    }
    TemporaryFolder folder;
};

// --- other programs ---

TEST_F(Export, LlamaCppContinuesTextsAsGenerateDoes) {
    if (!python_has("llama_cpp")) GTEST_SKIP() << python() << " has no llama_cpp; set LLMC_TEST_PYTHON";
    for_each_file([&](const std::string& path, const std::string& name) {
        const std::string theirs = output_of(
            run_program({python(), "-c",
                         "import sys, llama_cpp\n"
                         "model = llama_cpp.Llama(sys.argv[1], n_ctx=64, n_threads=1, verbose=False)\n"
                         "print(model.tokenize(b'once upon h\\xc3\\xa9\\n  y'))\n"
                         "out = model('once upon', max_tokens=30, temperature=0)\n"
                         "print('once upon' + out['choices'][0]['text'])",
                         path}));
        const std::string tokens = list_of_tokens(name, "once upon h\xc3\xa9\n  y", true);
        EXPECT_EQ(theirs, tokens + greedy_text(run_of(name))) << path;
    });
}

TEST_F(Export, TransformersReadsGguf) {
    if (!python_has("transformers, torch, gguf, accelerate"))
        GTEST_SKIP() << python() << " has no transformers, torch, gguf and accelerate; set LLMC_TEST_PYTHON";
    for_each_file([&](const std::string& path, const std::string& name) {
        const std::string theirs = output_of(
            run_program({python(), "-c",
                         "import sys, torch, transformers\n"
                         "folder, file = sys.argv[1:]\n"
                         "tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)\n"
                         "model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file,\n"
                         "            n_positions=64, dtype=torch.float32).eval()\n"
                         "ids = tokenizer('once upon', return_tensors='pt').input_ids\n"
                         "out = model.generate(ids, max_new_tokens=30, do_sample=False,\n"
                         "                     attention_mask=torch.ones_like(ids))\n"
                         "print(tokenizer.decode(out[0][1:]))",
                         folder.path, std::filesystem::path(path).filename().string()}));
        EXPECT_EQ(theirs, greedy_text(run_of(name))) << path;
    });
}

TEST_F(Export, TransformersReadsTheFolderInEachPrecision) {
    if (!python_has("transformers, torch"))
        GTEST_SKIP() << python() << " has no transformers and torch; set LLMC_TEST_PYTHON";
    const std::map<std::string, std::string> types = {
        {"fp32", "torch.float32"}, {"bf16", "torch.bfloat16"}, {"fp16", "torch.float16"}};
    for (const char* name : {"bytes", "bpe"})
        for (const auto& [precision, type] : types) {
            expect_ok(export_to("hf", folder / "hf", {"-e", run_of(name), "--precision", precision}));
            const std::string theirs = output_of(run_program(
                {python(), "-c",
                 "import sys, torch, tokenizers, transformers\n"
                 "tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])\n"
                 "whole = tokenizers.Tokenizer.from_file(sys.argv[1] + '/tokenizer.json')\n"
                 "text = 'once upon h\\u00e9<|endoftext|>  y\\n'\n"
                 "assert whole.encode(text).ids == tokenizer.encode(text), text\n"
                 "assert whole.decode(whole.encode('once upon h\\u00e9').ids) == 'once upon h\\u00e9'\n"
                 "model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()\n"
                 "assert model.generation_config.eos_token_id == tokenizer.eos_token_id\n"
                 "print(model.dtype)\n"
                 "print(tokenizer.encode('once upon h\\u00e9'))\n"
                 "ids = torch.tensor([[tokenizer.eos_token_id] + tokenizer.encode('once upon')])\n"
                 "out = model.float().generate(ids, max_new_tokens=30, do_sample=False)\n"
                 "print(tokenizer.decode(out[0][1:]))",
                 folder / "hf"}));
            EXPECT_EQ(theirs,
                      type + "\n" + list_of_tokens(name, "once upon h\xc3\xa9") + greedy_text(run_of(name)));
        }
}

// --- what is written ---

TEST_F(Export, AModelCardSaysWhatIsKnownOfTheRun) {
    expect_ok(export_to("hf", folder / "mine"));
    const std::string card = read_whole_file(folder / "mine/README.md");
    for (const char* part : {"# mine\n", "2 layers, 2 heads, 32 channels", "| steps | 120 |",
                             "| tokens trained on | 30,720 |", "| training data | bytes_train.bin |",
                             "| learning-rate | 0.005 |", "(step 119) |\n| validation loss | "})
        EXPECT_TRUE(contains(card, part));
    EXPECT_FALSE(contains(card, shared->path));  // no folder of this machine
    expect_ok(export_to("hf", folder / "again", {"-e", folder / "mine"}));
    EXPECT_TRUE(contains(read_whole_file(folder / "again/README.md"), "Nothing is known of its training"));
    EXPECT_EQ(greedy_text(folder / "again"), greedy_text(run_of("bytes")));
}

TEST_F(Export, PrecisionIsHonoured) {
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
        expect_ok(export_to("hf", folder / "hf", {"-e", run_of("bytes"), "--precision", precision}));
        EXPECT_EQ(greedy_text(folder / "hf"), greedy_text(run_of("bytes")));
    }
    EXPECT_TRUE(contains(read_whole_file(folder / "hf/model.safetensors"), "\"dtype\":\"F16\""));
    EXPECT_TRUE(contains(read_whole_file(folder / "hf/config.json"), "\"torch_dtype\": \"float16\""));
    expect_refusal(export_to("hf", folder / "x", {"-e", run_of("bytes"), "--precision", "q8_0"}), "q8_0");
    expect_refusal(run_program("train_gpt2 --overfit-one-batch 1 --precision q8_0"), "q8_0");
}

TEST_F(Export, AFileWithoutATokenizerIsRefused) {
    const std::string bare = folder / "bare.bin";
    std::filesystem::copy(run_of("bpe") + "/model_00000120.bin", bare);
    expect_refusal(export_to("gguf", folder / "m.gguf", {"-e", bare}), "bare.bin", "--tokenizer");
    const Words named = {"-e", bare, "--tokenizer", *shared / "small.bin"};
    expect_ok(export_to("gguf", folder / "new/m.gguf", named));
    EXPECT_FALSE(file_exists(folder / "m.gguf"));
}

// --- what was there before ---

TEST_F(Export, AFolderWithOtherFilesIsRefusedAndStaysAsItIs) {
    for (const char* name :
         {"model.safetensors.index.json", "model-00001-of-00002.safetensors", "pytorch_model.bin",
          "added_tokens.json", "special_tokens_map.json", "adapter_config.json", "tokenizer.json",
          "generation_config.json", "model.safetensors", "README.md", "notes.txt"}) {
        const std::string other = folder / std::string("with_") + name;
        create_folders(other);
        write_whole_file(other + "/" + name, {"{}"});
        expect_refusal(export_to("hf", other), other, name, "new folder");
        EXPECT_EQ(names_in(other), Words{name});
        EXPECT_EQ(read_whole_file(other + "/" + name), "{}");
    }
}

TEST_F(Export, AnEarlierExportsFolderIsReplacedAsAWhole) {
    const std::string hf = folder / "hf";
    expect_ok(export_to("hf", hf, {"-e", run_of("bpe")}));
    create_folders(hf + "/.git");
    expect_ok(export_to("hf", hf));
    EXPECT_EQ(greedy_text(hf), greedy_text(run_of("bytes")));
    EXPECT_EQ(read_whole_file(hf + "/merges.txt"), "#version: 0.2\n");
    std::filesystem::copy(run_of("bpe") + "/model_00000120.bin", folder / "bare.bin");
    expect_ok(export_to("hf", hf, {"-e", folder / "bare.bin"}));  // without a tokenizer
    const Words rest = {".git", "README.md", "config.json", "generation_config.json", "model.safetensors"};
    EXPECT_EQ(names_in(hf), rest);
    write_whole_file(hf + "/chat_template.jinja", {"x"});
    expect_refusal(export_to("hf", hf), "chat_template.jinja");
    expect_refusal(export_to("hf", *shared / "my.txt"), "my.txt");
    EXPECT_EQ(read_whole_file(hf + "/chat_template.jinja"), "x");
}

TEST_F(Export, InputsAreRefusedUnderAllNames) {
    const std::string hf = folder / "hf", tokenizer = folder / "tokenizer.bin";
    expect_ok(export_to("hf", hf, {"-e", run_of("bpe")}));
    std::filesystem::create_directory_symlink(hf, folder / "link");
    std::filesystem::copy(*shared / "small.bin", tokenizer);
    std::filesystem::copy(run_of("bpe") + "/model_00000120.bin", folder / "bare.bin");
    std::map<std::string, std::string> before;
    for (const std::string& name : names_in(hf)) before[hf + "/" + name] = read_whole_file(hf + "/" + name);
    before[tokenizer] = read_whole_file(tokenizer);
    before[folder / "bare.bin"] = read_whole_file(folder / "bare.bin");
    const Words bare = {"-e", folder / "bare.bin"};
    for (const auto& [output, inputs] :
         std::vector<std::pair<std::string, Words>>{{hf, {"-e", hf}},
                                                    {hf, {"-e", hf + "/model.safetensors"}},
                                                    {folder / "link", {"-e", hf, "--precision", "bf16"}},
                                                    {hf + "/", {"-e", folder / "link"}},
                                                    {hf, with(bare, {"--tokenizer", hf + "/tokenizer.json"})},
                                                    {hf, with(bare, {"--tokenizer", folder / "link"})}})
        expect_refusal(export_to("hf", output, inputs), "is an input, too");
    expect_refusal(export_to("gguf", folder / "bare.bin", with(bare, {"--tokenizer", tokenizer})));
    expect_refusal(export_to("gguf", tokenizer, with(bare, {"--tokenizer", tokenizer})));
    for (const auto& [path, content] : before) EXPECT_TRUE(read_whole_file(path) == content) << path;
}

TEST_F(Export, OneProcessOfAJobWrites) {
    if (!program_succeeds({"mpirun", "--version"})) GTEST_SKIP() << "there is no mpirun";
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    const std::string made = output_of(run_program({"mpirun", "--oversubscribe", "-np", "2", program, "-e",
                                                    run_of("bytes"), "--export", "hf", folder / "hf"}));
    EXPECT_EQ(count_lines(made), 2) << made;  // which checkpoint, and what was written
    EXPECT_EQ(greedy_text(folder / "hf"), greedy_text(run_of("bytes")));
}

// What the files of a chat model say of its tokens' roles, its template and its sampling.
TEST(ExportRoles, AreKeptByARunAndItsExport) {
    TemporaryFolder folder;
    const std::string chat = folder / "chat", back = folder / "back", run = folder / "run";
    const Words shape = args("-e custom:layers=1,heads=1,channels=8,max_seq_len=16,vocab=300 --device cpu");
    expect_ok(run_program(with({program, "--tokenizer", "bytes", "--export", "hf", chat}, shape)));
    write_whole_file(
        chat + "/tokenizer_config.json",
        {R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "<|endoftext|>",)"
         R"( "pad_token": {"content": "<pad>", "lstrip": false}, "padding_side": "left"})"});
    write_whole_file(chat + "/special_tokens_map.json", {R"({"sep_token": "<s>"})"});
    write_whole_file(chat + "/chat_template.jinja", {"{{ messages }} </s>"});
    write_whole_file(chat + "/generation_config.json", {R"({"temperature": 0.25, "pad_token_id": 258})"});
    std::string text;
    for (int i = 0; i < 1000; i++) text += "some text, and more of it\n";
    write_whole_file(folder / "text", {text});
    expect_ok(run_program("train_gpt2 -e", chat, "--text", folder / "text", "-o", run,
                          "-x 1 -b 1 -t 16 -s 0 --device cpu"));
    std::filesystem::remove_all(chat);
    expect_ok(run_program("train_gpt2 -e", run, "--export hf", back));
    const std::string config = read_whole_file(back + "/tokenizer_config.json");
    for (const char* member : {R"("bos_token": "<s>")", R"("pad_token": "<pad>")", R"("sep_token": "<s>")",
                               R"("eos_token": "<|endoftext|>")", R"("padding_side": "left")",
                               R"("chat_template": "{{ messages }} </s>")"})
        EXPECT_TRUE(contains(config, member));
    const std::string generation = read_whole_file(back + "/generation_config.json");
    EXPECT_TRUE(contains(generation, R"("temperature": 0.25)"));
    const std::string model = read_whole_file(back + "/config.json");
    for (const char* member : {R"("bos_token_id": 257)", R"("eos_token_id": 256)", R"("pad_token_id": 258)"})
        EXPECT_TRUE(contains(generation, member) && contains(model, member)) << member << generation;
    EXPECT_EQ(open_tokenizer(back).vocab_size(), 259);
    const std::string gguf = folder / "model.gguf";
    expect_ok(run_program("train_gpt2 -e", run, "--export gguf", gguf));
    for (const char* key : {"tokenizer.chat_template", "tokenizer.ggml.padding_token_id"})
        EXPECT_TRUE(contains(read_whole_file(gguf), key));
    const std::string member = R"("chat_template": "{{ messages }} </s>")",
                      listed =
                          R"("chat_template": [{"name": "default", "template": "{{ messages }} of it"}])";
    const size_t at = config.find(member);
    write_whole_file(back + "/tokenizer_config.json",
                     {config.substr(0, at), listed, config.substr(at + member.size())});
    expect_ok(run_program("train_gpt2 -e", back, "--export gguf", gguf));
    EXPECT_TRUE(contains(read_whole_file(gguf), "{{ messages }} of it"));
    std::filesystem::create_directories(back + "/additional_chat_templates");
    expect_refusal(
        run_program("prepare_data", folder / "text", "--tokenizer", back, "--out", folder.path, "--name x"),
        "additional_chat_templates: ");
}
