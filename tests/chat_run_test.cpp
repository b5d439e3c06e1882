// Questions and answers from JSONL to an answer, with the programs as they are, on the CPU: the losses are
// those of the answers, the template travels with the run, and exports have it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

#include "llmc/base/json.h"
#include "llmc/data/dataloader.h"
#include "llmc/text/chat_template.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_roles.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

// Questions whose answers a small model learns, in all three forms.
struct ChatRun : testing::Test {
    TemporaryFolder folder;
    const std::string run = folder / "run", chat = folder / "chat.jsonl";

    static std::string line(int i) {
        const std::string answer = i % 2 ? "odd" : "even",
                          question = "Say " + answer + " " + std::to_string(i % 10) + ".";
        if (i % 3 == 0) return R"({"completion": ")" + answer + R"(", "prompt": ")" + question + R"("})";
        if (i % 3 == 1)
            return R"({"output": ")" + answer + R"(", "input": "", "instruction": ")" + question + R"("})";
        return R"({"messages": [{"role": "system", "content": "Brief."}, {"content": ")" + question +
               R"(", "role": "user"}, {"role": "assistant", "content": ")" + answer + R"("}]})";
    }
    void SetUp() override {
        std::string text;
        for (int i = 0; i < 300; i++) text += line(i) + "\n";
        write_whole_file(chat, {text});
    }
    ProgramResult train(const char* steps, const Words& options) const {
        Words words = {bin("train_gpt2"), "--text", chat, "-o", run, "-x", steps};
        for (const Words& more :
             {words_of("--device cpu -e custom:layers=1,heads=2,channels=32 --patience 0 --threads 2"),
              options})
            words.insert(words.end(), more.begin(), more.end());
        return run_program(words);
    }
    ProgramResult answer(const Words& options) const {
        return run_program(with(args(bin("generate"), "-e", run, "--device cpu --temperature 0"), options));
    }
    static double loss_of(const std::string& text) {
        double loss = NAN;
        sscanf(text.c_str() + std::min(text.size(), text.find("loss ")), "loss %lf", &loss);
        return loss;
    }
};

TEST_F(ChatRun, FromJsonlToAnAnswer) {
    expect_ok(train("300", {}), "<|endoftext|>### Question\nSay even 0.\n\n### Answer\n[even<|endoftext|>]\n",
              "--chat answers questions");
    int right = 0;  // of ten questions, of which one is for validation
    for (int i = 0; i < 10; i++) {
        const std::string word = i % 2 ? "odd" : "even";
        right += answer({"--question", "Say " + word + " " + std::to_string(i) + "."}).out == word + "\n";
    }
    EXPECT_GE(right, 9);
    const std::string talk =
        output_of(run_with_input(args(bin("generate"), "-e", run, "--device cpu --temperature 0 --chat"),
                                 "Say odd 3.\n\nSay even 8.\n"));
    EXPECT_EQ(count_lines(talk), 2);
    // the loss of answers, of the file and of the shards
    const std::string score = output_of(run_program("eval -e", run, "--device cpu --text", chat));
    EXPECT_TRUE(score.starts_with("tokens 1350 |")) << score;  // 150 times odd, even, end-of-text
    EXPECT_LT(loss_of(score), 0.5);
    int exact = 0;
    sscanf(score.c_str() + std::min(score.size(), score.find("exact")), "exact answers: %d/300", &exact);
    EXPECT_GE(exact, 270) << score;
    const ProgramResult shards = run_program("eval -e", run, "--device cpu -i", run + "/tokens/text_val.bin");
    EXPECT_TRUE(contains(shards.out, "exact answers: ") && contains(shards.out, "/20 = ")) << shards.out;
}

// With --template and all tokens, of which the questions are known less well.
TEST_F(ChatRun, TemplateAndAllTokens) {
    write_whole_file(folder / "template", {"\xef\xbb\xbf{system}\r\nQ: {user}\r\nA: {assistant}\r\n"});
    expect_ok(train("20", {"--template", folder / "template", "--loss-on-questions"}));
    std::filesystem::create_hard_link(folder / "template", folder / "link");
    expect_ok(train("20", {"--template", folder / "link", "-y", "1"}));
    const ProgramResult all = run_program("eval -e", run, "--device cpu --text", chat,
                                          "--loss-on-questions --template", folder / "template");
    EXPECT_FALSE(all.out.starts_with("tokens 1350 |")) << all.out;
    Tokenizer tokenizer = open_tokenizer("bytes");
    DataLoader loader(run + "/tokens/text_train.bin", 1, 64, 257, false);
    std::vector<int> inputs(64), targets(64);
    loader.next_batch(inputs.data(), targets.data());
    std::string text;
    for (int i = 1; i < 16; i++) {
        text += tokenizer.decode(inputs[i]);
        EXPECT_EQ(targets[i], inputs[i + 1]);
    }
    EXPECT_TRUE(text.starts_with("Q: Say ") && !contains(text, "\r")) << text;
}

TEST_F(ChatRun, ExportsHaveTheTemplate) {
    expect_ok(train("2", {}));
    const std::string hf = folder / "hf", gguf = folder / "my.gguf";
    expect_ok(run_program("train_gpt2 -e", run, "--export hf", hf));
    expect_ok(run_program("train_gpt2 -e", run, "--export gguf", gguf));
    EXPECT_EQ(read_json_object(hf + "/tokenizer_config.json")["chat_template"], builtin_chat_template());
    const std::string bytes = read_whole_file(gguf);
    EXPECT_TRUE(contains(bytes, "tokenizer.chat_template"));
    EXPECT_TRUE(contains(bytes, builtin_chat_template()));
    // and the export is a model of questions and answers again
    EXPECT_EQ(chat_template_of(open_tokenizer(hf).roles), builtin_chat_template());
    expect_ok(run_program({bin("generate"), "-e", hf, "--device", "cpu", "--question", "Say 1.", "-n", "2"}));
    expect_refusal(
        run_program("generate -e custom:layers=1,heads=2,channels=32,vocab=257 --device cpu --question q"),
        "has learnt no questions and answers");
}

// The folder of a model with another template, which finetuning keeps if it is understood.
TEST_F(ChatRun, AnotherModelsTemplate) {
    expect_ok(train("2", {"-t", "128"}));
    const std::string hf = folder / "hf", config = hf + "/tokenizer_config.json", tuned = folder / "tuned";
    expect_ok(run_program("train_gpt2 -e", run, "--export hf", hf));
    const auto finetune = [&](const std::string& chat_template) {
        nlohmann::json members = read_json_object(config);
        members["chat_template"] = chat_template;
        write_whole_file(config, {json_text(members)});
        return run_program("train_gpt2 -e", hf, "--text", chat, "-o", tuned, "--device cpu -x 1");
    };
    expect_refusal(finetune("{% for m in messages %}{{ strftime_now('%d') }}{% endfor %}"),
                   "'strftime_now(' is not understood; name a simple one with --template");
    EXPECT_FALSE(file_exists(tuned));
    const nlohmann::json reference = read_json_object(SOURCE_DIR "/tests/reference/chat_templates.json");
    const std::string chatml = reference["templates"]["ChatML"];
    const std::string trained = output_of(finetune(chatml));
    EXPECT_TRUE(
        contains(trained, "<|im_start|>user\nSay even 0.<|im_end|>\n<|im_start|>assistant\n[even<|im_end|>"));
    EXPECT_FALSE(contains(trained, "are cut"));
    expect_ok(run_program("train_gpt2 -e", tuned, "--export hf", folder / "again"));
    EXPECT_EQ(read_json_object(folder / "again/tokenizer_config.json")["chat_template"], chatml);
}

// The tokens of the export's template are those of the shards, by transformers if it is there.
TEST_F(ChatRun, TransformersMakesTheSameTokens) {
    const char* named = getenv("LLMC_TEST_PYTHON");
    const std::string python = named ? named : "python3";
    if (!program_succeeds({python, "-c", "import transformers"}))
        GTEST_SKIP() << python << " has no transformers library; LLMC_TEST_PYTHON names another Python";
    expect_ok(train("2", {"--tokenizer", "bpe:300"}));
    expect_ok(run_program("train_gpt2 -e", run, "--export hf", folder / "hf"));
    const std::string theirs = output_of(
        run_program({python, "-c",
                     "import sys, json, transformers\n"
                     "t = transformers.AutoTokenizer.from_pretrained(sys.argv[1])\n"
                     "for m in json.loads(sys.argv[2]):\n"
                     "    for n, asks in ((len(m), False), (len(m) - 1, True)):\n"
                     "        print(t.apply_chat_template(m[:n], tokenize=True, return_dict=False, "
                     "add_generation_prompt=asks))",
                     folder / "hf",
                     R"([[{"role": "user", "content": "Say 3."}, {"role": "assistant", "content": " odd\n"}],
             [{"role": "system", "content": "Brief."}, {"role": "user", "content": "h\u00e9\n\nx  1"},
              {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"},
              {"role": "assistant", "content": "  c"}]])"}));
    Tokenizer tokenizer = open_tokenizer(folder / "hf");
    const ChatTemplate template_of_run(tokenizer);
    const auto ours = [&](const std::string& text) {
        std::vector<uint16_t> tokens;
        tokenizer.encode(text, tokens, AddedTokens::all);
        return json_text(nlohmann::json(tokens));
    };
    const auto said = [](const char* role, const char* text) {
        return nlohmann::json{{"role", role}, {"content", text}};
    };
    nlohmann::json one = nlohmann::json::array({said("user", "Say 3."), said("assistant", " odd\n")});
    nlohmann::json two =
        nlohmann::json::array({said("system", "Brief."), said("user", "h\xc3\xa9\n\nx  1"),
                               said("assistant", "a"), said("user", "b"), said("assistant", "  c")});
    std::string expected;
    for (nlohmann::json& messages : {std::ref(one), std::ref(two)}) {
        std::string whole;
        for (const ChatPart& part : template_of_run.parts(messages)) whole += part.text;
        messages.erase(messages.size() - 1);
        expected += ours(whole) + "\n" + ours(template_of_run.prompt(messages)) + "\n";
    }
    std::string found = theirs;
    std::erase(found, ' ');
    std::erase(found, '\r');
    EXPECT_EQ(found, expected);
    // the first conversation's tokens are those that training reads
    const EncodedExample e =
        encode_example(nlohmann::json::array({said("user", "Say 3."), said("assistant", " odd\n")}),
                       template_of_run, tokenizer);
    std::vector<uint16_t> framed = {uint16_t(tokenizer.end_of_text)};
    framed.insert(framed.end(), e.tokens.begin(), e.tokens.end());
    framed.push_back(uint16_t(tokenizer.end_of_text));
    EXPECT_TRUE(found.starts_with(json_text(nlohmann::json(framed)) + "\n"));
}

// The plain text keeps its documents, and decides the tokenizer.
TEST_F(ChatRun, InAMixtureWithPlainText) {
    const std::string plain = folder / "plain.txt";
    write_whole_file(plain, {numbered(1500, "Number ", " is next.\n\n")});
    for (const std::string tokenizer : {"bytes", "bpe:300"}) {
        expect_ok(run_program(
            "train_gpt2 --text", plain + ":0.5", "--text", chat + ":0.5", "-o", folder / tokenizer,
            "-x 1 -e custom:layers=1,heads=2,channels=32 --device cpu --tokenizer", tokenizer));
        const auto tokens = read_shard(folder / (tokenizer + "/tokens/text1_train.bin"));
        const int end = tokenizer == "bytes" ? 256 : 0;
        EXPECT_GT(std::count(tokens.begin(), tokens.end(), end), 1000) << tokenizer;
    }
}

TEST_F(ChatRun, PlansOfSmallFilesAreSmall) {
    std::string text;
    for (int i = 0; i < 20; i++) text += line(i) + "\n";
    write_whole_file(chat, {text});
    const std::string plan = output_of(train("1", {"--dry-run=memory"}));
    EXPECT_FALSE(std::regex_search(plan, std::regex("[0-9]{8,} training tokens"))) << plan;
}

// Every sequence of long examples has a target.
TEST_F(ChatRun, LongExamplesKeepTheirAnswers) {
    std::string text;
    for (int i = 0; i < 300; i++)
        text += R"({"prompt": ")" + std::string(400, char('a' + i % 26)) +
                R"(", "completion": "yes"})"
                "\n";
    write_whole_file(chat, {text});
    const ProgramResult trained = train("3", {"-t", "64", "-b", "2", "-v", "1", "-m", "2"});
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_TRUE(contains(trained.err + trained.out, "are cut"));
    EXPECT_FALSE(contains(trained.out, "nan") || contains(trained.out, "loss 0.000000")) << trained.out;
}

// Options that say nothing, or nothing of questions, and questions with marks or without room.
TEST_F(ChatRun, QuestionsAreTexts) {
    write_whole_file(folder / "template", {"{system}\nQ: {user}\nA: {assistant}\n"});
    expect_ok(train("2", {"-t", "64", "--template", folder / "template"}));
    const auto error = [&](const Words& options) {
        const ProgramResult result = answer(options);
        return std::to_string(result.status) + result.err;
    };
    for (const std::string blank : {"", " \n"})
        for (const std::string& option : args("--question --system --template --file --prompts"))
            EXPECT_TRUE(contains(error({option, blank}), "1generate: " + option + " is empty: give it"))
                << option;
    EXPECT_TRUE(contains(error({"--question", "q", "--no-echo"}), "1generate: --no-echo has no effect"));
    EXPECT_TRUE(contains(error({"--chat", "--ignore-end"}), "1generate: --ignore-end is for texts"));
    EXPECT_TRUE(contains(error({"x", "--template", chat}), "--system and --template are for"));
    // a token's text is its bytes: end-of-text, "Q: ", 3 of the question, 13 of the token's text and "\nA:"
    const auto asked = [&](const std::string& text) { return error({"-n", "3", "--question", text}); };
    EXPECT_TRUE(contains(asked("abc<|endoftext|>"), "\n23 tokens read"));
    EXPECT_TRUE(contains(asked("x\nA: y"), "note: the text has A:, a mark of the template"));
    // 64 positions, of which an answer of 3 tokens needs some
    EXPECT_FALSE(contains(asked(std::string(54, 'a')), "note:"));
    EXPECT_TRUE(
        contains(asked(std::string(56, 'a')), "after 1 token of the answer, the beginning is forgotten"));
    const std::string cut = asked(std::string(100, 'a'));
    EXPECT_TRUE(contains(cut, "has 106 tokens and the model's context is 64: only the last 32 are used"));
    EXPECT_TRUE(contains(cut, "\n32 tokens read"));
    // a model that is asked with another template
    write_whole_file(folder / "bad", {"{{ messages | nothing }}"});
    EXPECT_TRUE(
        contains(error({"--question", "q", "--template", folder / "bad"}), "--template " + (folder / "bad")));
}

// What is wrong is the template's fault, or a line's, and is not advised to what the model cannot do.
TEST_F(ChatRun, FaultsAreNamed) {
    const std::string bad = folder / "bad";
    write_whole_file(bad, {"{{ messages[0].content | nothing }}"});
    for (const Words& words : {Words{bin("prepare_data"), "--out", folder.path, "--name", "x", chat},
                               args(bin("train_gpt2"), "--text", chat, "-o", run, "--device cpu -x 1")}) {
        Words with = words;
        with.insert(with.end(), {"--template", bad});
        const ProgramResult result = run_program(with);
        EXPECT_TRUE(contains(result.err, ": --template " + bad + ": 'nothing' is not understood"));
    }
    const auto prepared = [&](const std::string& text, const Words& options) {
        std::string all;
        for (int i = 0; i < 30; i++) all += line(i) + "\n";
        write_whole_file(chat, {all + text});
        return run_program(with({bin("prepare_data"), "--out", folder.path, "--name", "x", chat}, options))
            .err;
    };
    write_whole_file(bad, {"{user}{assistant}"});
    EXPECT_TRUE(
        contains(prepared("", {"--template", bad}), "chat.jsonl: line 3: --template " + bad + ": it says"));
    for (const std::string place : {"{usr}: {assistant}", "{user}: {assistant} {System}"}) {
        write_whole_file(bad, {place});
        EXPECT_TRUE(contains(prepared("", {"--template", bad}), "} is no place for a text: a template has"));
    }
    const std::string none = R"({"messages": []})", no_name = "bad has JSON objects on its lines: name the";
    // of a file without .jsonl
    for (const auto& [text, says] : std::map<std::string, std::string>{
             {none + "\n" + line(0), "line 1 has neither messages nor"},
             {none + "\n" + none, no_name},
             {"{\"id\": 1}\n{\"id\": 2}", no_name},
             {R"({"data": [{"a": 1}]})", no_name},
         }) {
        write_whole_file(bad, {text});
        const std::string err = run_program("prepare_data --out", folder.path, "--name x", bad).err;
        EXPECT_TRUE(contains(err, says)) << err;
    }
    EXPECT_TRUE(
        contains(prepared(R"({"messages": [{"role": "user", "content": "q"}]})", {}),
                 "line 31 has no answer: no message of the role assistant (or gpt); --skip-bad-lines"));
    EXPECT_TRUE(contains(prepared(R"({"prompt": "q", "completion": "b\n### Question"})", {}),
                         "the texts of 1 example have a mark of the template, as if another turn began: "
                         "### Question, in "));
    for (const std::string text : {"", " \r\n\n", "\xef\xbb\xbf"}) {
        write_whole_file(folder / "empty.jsonl", {text});
        const std::string error =
            run_program("prepare_data --out", folder.path, "--name x", folder / "empty.jsonl").err;
        EXPECT_TRUE(contains(error, "empty.jsonl is empty: JSONL has"));
    }
    write_whole_file(chat, {"\nnonsense\n" + line(1) + "\n{\"prompt\": 1}\n"});
    EXPECT_TRUE(contains(run_program("prepare_data --out", folder.path, "--name x", chat).err,
                         "line 2 is not a JSON object: parse error"));
    // examples that are longer than the model
    SetUp();
    const std::string model = "custom:layers=1,heads=2,channels=32";
    for (const auto& [positions, advice] : std::map<std::string, std::string>{
             {"", "are cut: use longer sequences (-t)"},
             {",max_seq_len=32", "are cut: the model has no more positions"}}) {
        const std::string err = run_program("train_gpt2 --text", chat, "-o", run + positions,
                                            "--device cpu -x 1 -t 32 -e", model + positions)
                                    .err;
        EXPECT_TRUE(contains(err, advice));
    }
    EXPECT_TRUE(contains(run_program("eval -e", run, "--device cpu --text", chat).err,
                         "are cut: the model has no more positions"));
}

// What is said of losses is said of texts like this one, and of options that would help.
TEST_F(ChatRun, AdviceIsForTheText) {
    const std::string plain = folder / "plain.txt", said = "; English documentation of this size gets about";
    const std::map<std::string, bool> are_english = {
        {"Turn the key in the lock, as the manual says.\n", true},
        {"Den Schl\xc3\xbcssel im Schloss umdrehen, wie beschrieben.\n", false},
        {"\xd0\xbc\xd0\xb8\xd1\x80 \xd0\xb4\xd0\xbe\xd0\xbc\n", false}};
    for (const auto& [line_of_text, is_english] : are_english) {
        std::string text;
        for (int i = 0; i < 1000; i++) text += std::to_string(i) + " " + line_of_text;
        write_whole_file(plain, {text});
        const std::string out = run_program("train_gpt2 --text", plain, "-o", folder / "plain",
                                            "--device cpu -x 1 -e custom:layers=1,heads=2,channels=32")
                                    .out;
        EXPECT_EQ(contains(out, said), is_english) << out;
    }
    const ProgramResult trained = train("1", {});
    EXPECT_FALSE(contains(trained.out, said));
    const auto error = [&](const Words& options) {
        return run_program(with({bin("eval"), "-e", run, "--device", "cpu", "--text", chat}, options)).err;
    };
    const std::string none = "no token that was read is a target: the answers begin later";
    EXPECT_TRUE(contains(error({"-t", "1"}), none + "; -t takes longer sequences\n"));
    EXPECT_TRUE(contains(error({"-t", "1", "-m", "1"}), none + "; -m -1 reads all batches; -t takes"));
}

// An answer whose question follows it is left out, and counted.
TEST_F(ChatRun, UnansweredQuestionsAreCounted) {
    std::string text = R"({"conversations": [{"from": "human", "value": "1?"}, {"from": "gpt", "value": "2"},
                           {"from": "human", "value": "3?"}]})";
    std::erase(text, '\n');
    const auto prepared = [&](int unanswered) {
        std::string all;
        for (int i = 0; i < 30; i++) all += line(i) + "\n";
        for (int i = 0; i < unanswered; i++) all += text + "\n";
        write_whole_file(chat, {all});
        return run_program("prepare_data --out", folder.path, "--name q", chat).err;
    };
    EXPECT_FALSE(contains(prepared(0), "no answer follows"));
    EXPECT_TRUE(contains(prepared(1), "no answer follows the last question of 1 example, which"));
    EXPECT_TRUE(contains(prepared(2), "no answer follows the last question of 2 examples, which"));
}

struct ChatShards : ChatRun {
    void SetUp() override {
        ChatRun::SetUp();
        expect_ok(prepare({}));
    }
    ProgramResult prepare(const Words& options) const {
        return run_program(
            with(args(bin("prepare_data"), "--out", folder.path, "--name q -t 96 --val-fraction 0.1", chat),
                 options));
    }
    ProgramResult train_on_shards(const std::string& T) const {
        return run_program("train_gpt2 -i", folder / "q_train.bin", "-j", folder / "q_val.bin", "-o", run,
                           "-t", T, "-b 2 -x 2 --device cpu -e custom:layers=1,heads=2,channels=32");
    }
    ProgramResult evaluate(const Words& options) const {
        return run_program(with({bin("eval"), "-e", run, "--device", "cpu"}, options));
    }
};

TEST_F(ChatShards, LossesOfOtherTokensDoNotCompare) {
    write_token_shard(folder / "plain.bin", std::vector<uint16_t>(2000, 'a').data(), 2000);
    const auto warned = [&](const std::string& train, const std::string& val) {
        return contains(run_program("train_gpt2 -i", folder / train, "-j", folder / val,
                                    "-t 96 -b 1 -x 0 --device cpu -e custom:layers=1,heads=2,channels=32")
                            .err,
                        "the validation loss counts ");
    };
    EXPECT_TRUE(warned("q_train.bin", "plain.bin") && warned("plain.bin", "q_val.bin"));
    EXPECT_FALSE(warned("q_train.bin", "q_val.bin"));
}

// Sequences of another length would cut examples that were packed for this one.
TEST_F(ChatShards, SequencesAreThoseOfTheExamples) {
    const ProgramResult cut = train_on_shards("64");
    EXPECT_EQ(cut.status, 1);
    EXPECT_TRUE(contains(cut.err, "-t 64 cuts the examples of") && contains(cut.err, "use -t 96")) << cut.err;
    for (const std::string T : {"96", "192"}) {
        const ProgramResult trained = train_on_shards(T);
        EXPECT_EQ(trained.status, 0) << trained.err;
        EXPECT_FALSE(contains(trained.err, "cuts"));
    }
    const ProgramResult usual = evaluate({"-i", folder / "q_val.bin"}),
                        given = evaluate({"-i", folder / "q_val.bin", "-t", "96"}),
                        shorter = evaluate({"-i", folder / "q_val.bin", "-t", "50"});
    EXPECT_EQ(usual.status, 0) << usual.err;
    EXPECT_FALSE(contains(usual.err + given.err, "cuts"));
    EXPECT_EQ(shorter.status, 0);
    EXPECT_TRUE(contains(shorter.err, "-t 50 cuts examples of"));
    EXPECT_TRUE(
        contains(evaluate({"--text", chat, "-t", "20"}).err, "300 examples have more than 20 tokens"));
    // a mask of an earlier version does not say it
    const std::string mask = folder / "q_train.mask";
    std::string bytes = read_whole_file(mask);
    EXPECT_EQ(bytes[12], 96);
    bytes[12] = 0;
    write_whole_file(mask, {bytes});
    const ProgramResult unknown = train_on_shards("192");
    EXPECT_EQ(unknown.status, 0) << unknown.err;
    EXPECT_TRUE(contains(unknown.err, "does not say into which sequences"));
}

// The mask and the list are in the folder of the shard, not of the link.
TEST_F(ChatShards, ALinkToAShardIsTheShard) {
    expect_ok(train_on_shards("96"));
    std::filesystem::create_symlink(folder / "q_val.bin", folder / "linked.bin");
    const ProgramResult direct = evaluate({"-i", folder / "q_val.bin"});
    expect_ok(direct);
    EXPECT_EQ(evaluate({"-i", folder / "linked.bin"}).out, direct.out);
}

TEST_F(ChatShards, AMaskThatIsMissingIsNamed) {
    for (const std::string part : {"q_train", "q_val"}) {
        const std::string mask = folder / (part + ".mask"), bytes = read_whole_file(mask);
        remove_file(mask);
        expect_refusal(train_on_shards("96"), part + ".mask is missing");
        write_whole_file(mask, {bytes});
    }
    expect_ok(train_on_shards("96"));
}

TEST_F(ChatShards, OptionsOfOtherTextsAreRefused) {
    const std::string plain = folder / "plain.txt", weighted = chat + ":0.5";
    write_whole_file(plain, {numbered(2000, "Number ", " is next.\n\n")});
    const auto error = [&](Words words) {
        words.insert(words.begin(), {bin("prepare_data"), "--out", folder.path, "--name", "other"});
        return run_program(words).err;
    };
    EXPECT_TRUE(contains(error({"--shard-tokens", "1000", chat}), "--shard-tokens is for plain text"));
    EXPECT_TRUE(contains(error({"-t", "64", plain}), "-t 64 is for questions and answers"));
    EXPECT_TRUE(contains(error({"--field", "prompt", "--as-text", chat}), "leave one out"));
    EXPECT_TRUE(contains(error({"--loss-on-questions", plain}), "--loss-on-questions is for JSONL"));
    EXPECT_FALSE(file_exists(folder / "other_train.bin"));
    EXPECT_EQ(error({"-t", "64", chat}), "");
    for (const Words& texts : {Words{plain, chat}, Words{chat, plain}})
        expect_refusal(
            run_program("train_gpt2 --text", texts[0], "--text", texts[1], "-o", run, "--device cpu"),
            "mixes them by weights, as in --text " + texts[0] + ":0.5 --text " + texts[1] + ":0.5");
    // a mixture may have them
    const ProgramResult both = train("2", {"--text", plain + ":0.5", "--loss-on-questions"});
    EXPECT_TRUE(contains(both.err, "give each a weight"));
    expect_ok(
        run_program("train_gpt2 --text", plain + ":0.5", "--text", weighted, "-o", run,
                    "-x 1 -e custom:layers=1,heads=2,channels=32 --device cpu --loss-on-questions -t 128"));
    for (const Words& options : {Words{"--text", weighted}, Words{"-i", folder / "q_val.bin:0.5"}})
        EXPECT_TRUE(contains(evaluate(options).err, "weights are for the -i and --text of train_gpt2"));
}

// The sample at the end is an answer, and of a conversation the last turns stay.
TEST_F(ChatRun, AnswersAtTheEndAndInLongConversations) {
    const std::string trained = output_of(train("100", {}));
    const size_t sample = trained.find("a question of the validation set, and the model's [answer]:\n---\n");
    ASSERT_NE(sample, std::string::npos) << trained;
    EXPECT_TRUE(contains(trained.substr(sample), "\n\n### Answer\n["));
    std::string questions;
    for (int i = 0; i < 30; i++) questions += "Say odd " + std::to_string(i % 10) + ".\n";
    const ProgramResult talk = run_with_input(
        args(bin("generate"), "-e", run, "--device cpu --temperature 0 --chat --system Brief. -n 16"),
        questions);
    EXPECT_EQ(talk.status, 0) << talk.err;
    const std::string note = "its oldest questions are left out";
    ASSERT_TRUE(contains(talk.err, note));
    EXPECT_FALSE(contains(talk.err.substr(talk.err.find(note) + 1), note));
    EXPECT_FALSE(contains(talk.err, "the prompt has"));
    EXPECT_EQ(count_lines(talk.out), 30);
    // any byte ends this model's texts
    const std::string hf = folder / "hf", tuned = folder / "tuned";
    expect_ok(run_program("train_gpt2 -e", run, "--export hf", hf));
    nlohmann::json ends = {{"eos_token_id", nlohmann::json::array()}};
    for (int token = 0; token < 256; token++) ends["eos_token_id"].push_back(token);
    write_whole_file(hf + "/generation_config.json", {json_text(ends)});
    expect_ok(run_program("train_gpt2 -e", hf, "--text", chat, "-o", tuned, "--device cpu -x 1"),
              "### Answer\n[]\n", "of the validation set");
    EXPECT_EQ(output_of(run_program("generate -e", tuned, "--device cpu -n 9 x")), "x\n");
    EXPECT_NE(output_of(run_program("generate -e", tuned, "--device cpu -n 9 --ignore-end x")), "x\n");
}

TEST_F(ChatRun, BadLinesAreNamed) {
    const auto error = [&](const std::string& bad, const Words& options) {
        std::string text = line(0) + "\n";
        for (int i = 0; i < 40; i++) text += line(i) + "\n";
        write_whole_file(chat, {text + bad + "\n" + line(1) + "\n"});
        const ProgramResult result = train("1", options);
        EXPECT_EQ(result.status != 0, options.empty()) << bad << result.err;
        return result.err;
    };
    const std::pair<const char*, const char*> cases[] = {
        {R"({"messages": [{"role": "tool", "content": "x"}]})",
         "line 42: message 1: the role 'tool' is none of"},
        {R"({"prompt": "x"})", "line 42 has neither"},
        {R"({"prompt": "x", "completion": "a<|endoftext|>b"})", "line 42 has the text <|endoftext|>"},
        {"nonsense", "line 42"}};
    for (const auto& [bad, expected] : cases) {
        EXPECT_TRUE(contains(error(bad, {}), expected));
        EXPECT_TRUE(contains(error(bad, {"--skip-bad-lines"}), "1 bad line was left out")) << bad;
    }
    write_whole_file(chat, {std::string(30000, 'a') + " b\n"});
    EXPECT_TRUE(
        contains(train("1", {"--template", folder / "none"}).err, "--template is for JSONL of questions"));
}
