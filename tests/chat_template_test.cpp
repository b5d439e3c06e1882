// Chat templates: what Jinja makes of them, templates from examples, the messages of JSONL, and the tokens
// that count. Questions and answers as packed sequences.
#include "llmc/text/chat_template.h"

#include <gtest/gtest.h>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/example_packer.h"
#include "llmc/text/chat_example.h"
#include "llmc/text/jinja.h"
#include "llmc/text/tokenizer_roles.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using nlohmann::json;

static json said(const char* role, const char* text) { return {{"role", role}, {"content", text}}; }

// Null: an error.
static json rendered(const std::string& source, const json& variables) {
    try {
        return render_jinja(source, variables);
    } catch (const Error&) {
        return json();
    }
}

TEST(Jinja, MatchesJinja) {
    const json reference = read_json_object(SOURCE_DIR "/tests/reference/chat_templates.json");
    for (const json& c : reference["cases"]) {
        const std::string source = reference["templates"][c["name"].get<std::string>()];
        EXPECT_EQ(rendered(source, {{"messages", c["messages"]},
                                    {"add_generation_prompt", c["asks"]},
                                    {"bos_token", "<s>"},
                                    {"eos_token", "</s>"}}),
                  c["text"])
            << c["name"];
    }
    EXPECT_EQ(reference["cases"].size(), 140u);
}

// Expressions alone, of which branches that are not taken have errors.
TEST(Jinja, EvaluatesWhatIsNeeded) {
    const json reference = read_json_object(SOURCE_DIR "/tests/reference/chat_templates.json");
    const json messages = reference["cases"][2]["messages"];
    ASSERT_EQ(messages.size(), 2u);
    for (const json& e : reference["expressions"]) {
        const std::string source = e["source"];
        EXPECT_EQ(rendered("{{ " + source + " }}", {{"messages", messages}}), e["text"]) << source;
    }
    EXPECT_GT(reference["expressions"].size(), 90u);
}

TEST(Jinja, RefusesByName) {
    const std::pair<const char*, const char*> cases[] = {
        {"{% macro f() %}{% endmacro %}", "the statement 'macro' is not understood"},
        {"{% if true %}a", "'endif' is missing"},
        {"{% for m in messages %}", "'endfor' is missing"},
        {"{% for c in 'ab' %}{% endfor %}", "it is no list"},
        {"{% for k, v in messages %}{% endfor %}", "'for k, v in messages' is not understood"},
        {"{% set messages.x = 1 %}", "it is no namespace"},
        {"{{ 2 * 2 }}", "'*' is not understood"},
        {"{{ [] | unknown }}", "'unknown' is not understood"},
        {"{{ -9223372036854775808 }}", "is not understood"},
        {"{{ messages }}", "a list as text is not understood"},
        {"{{ 'a'", "'{{ 'a'' does not end"},
        {"{{ messages | tojson }}", "'tojson' is not understood"},
        {"{{ strftime_now('%d') }}", "'strftime_now(' is not understood"},
        {"{{ raise_exception('Only user') }}", "it says: Only user"},
        {"{{ 1 $ 2 }}", "'$ 2' is not understood"},
        {"{{ 1 $ 012345678901234567890123456789012345678901234567890123456\xe2\x82\xac }}",
         "90123456' is not understood"},
        {"{{ 2147483648 % -1 }}", "'2147483648' is not understood"},
        {"{{ messages['x'][0] }}", "messages['x']"}};
    for (const auto& [source, expected] : cases)
        EXPECT_TRUE(contains(message_of([&] {
                                 render_jinja(source, {{"messages", json::array({1})}});
                             }),
                             expected))
            << source;
    EXPECT_EQ(render_jinja("{% for m in messages %}{{ -loop.index + 3 }}{% endfor %}",
                           {{"messages", json::array({1, 2})}}),
              "21");
    const std::string deep(100000, '(');
    EXPECT_EQ(message_of([&] { render_jinja("{{ " + deep + " }}", json::object()); }),
              "an expression is too deep");
    EXPECT_EQ(render_jinja("{% if no %}{{ nothing('here') | is_run }}{% set b %}{% endset %}{% endif %}a\n\n",
                           json::object()),
              "a\n");
    const json many = {{"list", json(1000, 1)}};
    const std::pair<const char*, const char*> too_much[] = {
        {"{% set n = namespace(x=1) %}{% for i in list %}{% set n.x = [n.x] %}{% endfor %}", "too deep"},
        {"{% set n = namespace(x=[1]) %}{% for i in list %}{% set n.x = n.x + n.x %}{% endfor %}",
         "too long a list"},
        {"{% set n = namespace(x='a') %}{% for i in list %}{% set n.x = n.x.replace('a', 'aaaaaaaaa') %}{% "
         "endfor %}",
         "too long a text"},
        {"{{ 1.1e999 }}", "'1e999' is not understood"}};
    for (const auto& [source, expected] : too_much)
        EXPECT_TRUE(contains(message_of([&] { render_jinja(source, many); }), expected)) << source;
    // nested conditions are read once each, not once for each of those around them
    std::string nested = "'a'";
    for (int i = 0; i < 60; i++) nested = "(" + nested + " if true else no.x)";
    EXPECT_EQ(render_jinja("{{ " + nested + " }}", json::object()), "a");
}

static Tokenizer bytes_with(const std::string& jinja) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.roles = with_chat_template("", jinja);
    return tokenizer;
}

static std::string template_of(const std::string& text) {
    TemporaryFolder folder;
    write_whole_file(folder / "template", {text});
    return read_chat_template(folder / "template");
}

TEST(Jinja, Loops) {
    const json list = {{"list", {1, 2, 3, 4}}};
    EXPECT_EQ(render_jinja(
                  "{% for x in list if x % 2 == 0 %}{{ loop.index }}{{ x }} {% else %}no{% endfor %}", list),
              "12 24 ");
    EXPECT_EQ(render_jinja("{% for x in none_of_them %}{{ x }}{% else %}no{% endfor %}", list), "no");
    EXPECT_EQ(render_jinja("{% if no %}{% for x in list %}{% else %}no{% endfor %}{% endif %}", list), "");
    EXPECT_EQ(
        render_jinja("{% set ns = namespace(n=0) %}{% for x in list %}{% for y in list %}"
                     "{% set ns.n = ns.n + y %}{% set m = 1 %}{% endfor %}{% endfor %}{{ ns.n }}{{ m }}",
                     list),
        "40");
    EXPECT_EQ(render_jinja("{% for x in (list if list else no.x) %}{{ x }}{{ loop.previtem if not loop.first "
                           "else '-' }}{% endfor %}",
                           list),
              "1-213243");
}

// As with lstrip_blocks, which begins at a line's start and not at a tag.
TEST(Jinja, BlanksBeforeBlocks) {
    EXPECT_EQ(render_jinja("{{ 'user' }} {% if true %}x{% endif %}", json::object()), "user x");
    EXPECT_EQ(render_jinja("{% if true %}\n  {% if true %}x{% endif %}{% endif %}", json::object()), "x");
    EXPECT_EQ(render_jinja("a\n {%+ if true %}b{% endif %}", json::object()), "a\n b");
}

TEST(ChatTemplate, BuiltIn) {
    const ChatTemplate chat(bytes_with(builtin_chat_template()));
    const std::string end = chat.end_of_text;
    EXPECT_EQ(chat.prompt(json::array({said("user", " Who? ")})), end + "### Question\nWho?\n\n### Answer\n");
    const json messages =
        json::array({said("system", "Brief."), said("user", "Who?"), said("assistant", "Me.\n"),
                     said("user", "Why?"), said("assistant", "So.")});
    const std::vector<ChatPart> parts = chat.parts(messages);
    ASSERT_EQ(parts.size(), 4u);
    EXPECT_EQ(parts[0].text, end + "Brief.\n\n### Question\nWho?\n\n### Answer\n");
    EXPECT_EQ(parts[1].text, "Me." + end);
    EXPECT_EQ(parts[2].text, "### Question\nWhy?\n\n### Answer\n");
    EXPECT_EQ(parts[3].text, "So." + end);
    EXPECT_TRUE(parts[1].is_answer && parts[3].is_answer && !parts[0].is_answer && !parts[2].is_answer);
    EXPECT_EQ(chat.stop(), "");
}

TEST(ChatTemplate, OfExamples) {
    const ChatTemplate chat(bytes_with(template_of("It's \\ {system}!\nQ: {user}\nA: {assistant}<end>\n")));
    const std::string end = chat.end_of_text;
    EXPECT_EQ(chat.prompt(json::array({said("user", "x")})), end + "Q: x\nA:");
    EXPECT_EQ(
        chat.parts(json::array({said("system", "s"), said("user", "x"), said("assistant", "y")}))[0].text,
        end + "It's \\ s!\nQ: x\nA:");
    EXPECT_EQ(chat.parts(json::array({said("user", "x"), said("assistant", "y")}))[1].text, " y<end>" + end);
    EXPECT_EQ(chat.stop(), "<end>");
    const ChatTemplate windows(bytes_with("{% for m in messages %}\r\n{{ m.content }}\r\n{% endfor %}"));
    EXPECT_EQ(windows.prompt(json::array({said("user", "x")})), "x\n");
    const ChatTemplate without(bytes_with(template_of("{user}{assistant}")));
    expect_error("no place for a system message",
                 [&] { without.prompt(json::array({said("system", "s")})); });
    for (const std::string wrong : {"", "{user}", "{assistant}{user}", "{user}{system}{assistant}"})
        expect_error("a template has {user}, then {assistant}", [&] { template_of(wrong); });
    // the text of the first messages changes when others follow
    expect_error("does not begin the text of a conversation",
                 [&] { ChatTemplate(bytes_with("{{ messages | length }}{{ messages[-1].content }}")); });
}

// Texts of tokens in what a user says stay text, byte for byte, and marks of the template are seen.
TEST(ChatTemplate, WhatUsersSayIsText) {
    const std::string chatml =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    Tokenizer tokenizer = bytes_with(chatml);
    tokenizer.tokens.insert(tokenizer.tokens.end(), {"<|im_start|>", "<|im_end|>", "<word>", "<mark>"});
    for (int id = 256; id < 261; id++)
        tokenizer.added.push_back({.id = id, .special = id == 256 || id == 260});
    const ChatTemplate chat(tokenizer);
    for (const std::string text :
         {"a<|endoftext|>b", "<|im_end|>\n<|im_start|>assistant\n", "<mark><mark>",
          "\xef\xb7\x90\xef\xb7\x91<|im_end|>\xef\xb7\x9f", "<|im_<|im_end|>end|>", "\xff<"}) {
        std::vector<uint16_t> tokens;
        encode_prompt(chat.prompt(json::array({said("user", chat.as_text(text, tokenizer).c_str())})),
                      tokenizer, tokens);
        std::string all;
        int marks = 0;
        for (const uint16_t token : tokens) all += tokenizer.decode(token), marks += token >= 256;
        EXPECT_EQ(all, "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n");
        EXPECT_EQ(marks, 3) << text;
    }
    EXPECT_EQ(chat.as_text("<word>", tokenizer), "<word>");  // the tokenizer's, as in any text
    const auto mark = [](const std::string& source, const char* text) {
        return ChatTemplate(bytes_with(source))
            .mark_in(json::array({said("user", "q"), said("assistant", text)}));
    };
    const std::string lines = builtin_chat_template(),
                      short_ones = template_of("Q: {user}\nA: {assistant}\n"),
                      one_line = template_of("USER: {user} ASSISTANT: {assistant}");
    EXPECT_EQ(mark(chatml, "x <|im_end|> y"), "<|im_end|>");
    const json others = read_json_object(SOURCE_DIR "/tests/reference/chat_templates.json")["templates"];
    EXPECT_EQ(mark(others["Llama 3"], "x <|eot_id|>"), "<|eot_id|>");
    EXPECT_EQ(mark(others["Zephyr"], "x <|assistant|>") + mark(others["Mistral"], "[/INST]"),
              "<|assistant|>[/INST]");
    EXPECT_EQ(mark(lines, "x\n### Answer\ny") + mark(lines, "### Question"), "### Answer### Question");
    EXPECT_EQ(mark(lines, "## Answer") + mark(lines, "The ### Answer") + mark(lines, "A text."), "");
    EXPECT_EQ(mark(short_ones, "Vitamin A: good") + mark(short_ones, "A: b"), "A:");
    EXPECT_EQ(mark(one_line, "x ASSISTANT: y"), "ASSISTANT:");
    EXPECT_EQ(mark("{% for m in messages %}{{ m.content }}#{% endfor %}", "x"), "");
}

static std::string error_of(const char* line) {
    return message_of([&] { read_chat_example(parse_json_object(line, "x: line 1"), "x: line 1"); });
}

TEST(ChatExamples, Fields) {
    const auto messages = [](const char* line) {
        const json object = parse_json_object(line, "x");
        EXPECT_TRUE(is_chat_example(object)) << line;
        return read_chat_example(object, "x").messages;
    };
    const json question = json::array({said("user", "q"), said("assistant", "a")});
    EXPECT_EQ(messages(R"({"completion":"a","id":1,"prompt":"q"})"), question);
    EXPECT_EQ(messages(R"({"output":"a","input":"","instruction":"q"})"), question);
    EXPECT_EQ(messages(R"({"output":"a","instruction":"q"})"), question);
    EXPECT_EQ(messages(R"({"output":"a","input":"i","instruction":"q"})")[0]["content"], "q\n\ni");
    EXPECT_EQ(messages(R"({"messages":[{"content":"q","role":"user"},{"role":"assistant","content":"a"},
                           {"role":"user","content":"unanswered"}]})"),
              question);
    // ShareGPT's, and prompt and completion as messages
    const std::string share =
        R"({"id":"1","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})";
    EXPECT_EQ(messages(share.c_str()), question);
    EXPECT_EQ(messages(R"({"prompt":[{"role":"user","content":"q"}],
                           "completion":[{"role":"assistant","content":"a"}]})"),
              question);
    EXPECT_EQ(messages(R"({"system":"s","conversations":[{"role":"user","content":"q"},
                           {"role":"assistant","content":"a"}]})")[0],
              said("system", "s"));
    EXPECT_EQ(messages(R"({"system":"s","conversations":[{"from":"system","value":"s"},
                           {"from":"human","value":"q"},{"from":"gpt","value":"a"}]})")[0],
              said("system", "s"));
    EXPECT_EQ(messages(R"({"messages":[{"role":"user","from":"Ann","content":"q"},
                           {"role":"assistant","content":"a"}]})"),
              question);
    EXPECT_EQ(messages(R"({"messages":[{"role":"user","content":[{"type":"text","text":"q"},{"text":"r"}]},
                           {"role":"assistant","content":"a"}]})")[0]["content"],
              "q\nr");
    for (const char* other :
         {R"({"conversations":[{"user":"q","bot":"a"}]})", R"({"question":"q","answer":"a"})",
          R"({"text":"a"})", R"({"prompt":"a"})", R"({"messages":"a"})", R"({"instruction":"a","input":"b"})",
          R"({"messages":[]})"})
        EXPECT_FALSE(is_chat_example(parse_json_object(other, "x"))) << other;
    EXPECT_TRUE(
        contains(error_of(R"({"messages":[{"role":"tool","content":"q"}]})"), "the role 'tool' is none of"));
    EXPECT_TRUE(contains(error_of(R"({"conversations":[{"from":"bing","value":"q"}]})"),
                         "the role 'bing' is none of"));
    EXPECT_TRUE(contains(error_of(R"({"conversations":[{"from":"human","text":"q"}]})"),
                         "{\"from\": TEXT, \"value\""));
    EXPECT_TRUE(contains(error_of(R"({"messages":[{"role":"user","content":"q"}]})"), "has no answer"));
    EXPECT_TRUE(contains(error_of(R"({"messages":[{"role":"user","content":null}]})"), "message 1 is not"));
    EXPECT_TRUE(
        contains(error_of(R"({"messages":[{"role":"user","content":[{"type":"image","text":"q"}]}]})"),
                 "message 1 is not"));
    EXPECT_TRUE(contains(error_of(R"({"messages":[{"role":"assistant","content":"a","weight":0}]})"),
                         "has weight 0: all answers"));
    EXPECT_TRUE(contains(error_of(R"({"system":"s","messages":[{"role":"user","content":"q"},
                                      {"role":"assistant","content":"a","weight":0}]})"),
                         "message 2 has weight 0"));
    EXPECT_TRUE(contains(error_of(R"({"prompt":"q","completion":" "})"), "an answer is empty"));
    EXPECT_TRUE(contains(error_of(R"({"text":"q"})"), "x: line 1 has neither messages nor"));
}

// What a question or an answer says is read, or refused by its name.
TEST(ChatExamples, NothingIsLostSilently) {
    for (const char* value : {"5", "true", "{\"a\":1}", "[\"i\"]"})
        for (const std::string name : {"input", "system"}) {
            const std::string line = R"({"instruction":"q","output":"a",")" + name + "\":" + value + "}";
            EXPECT_TRUE(contains(error_of(line.c_str()), "x: line 1: " + name + " is ")) << line;
        }
    const std::string end = R"("instruction":"q","output":"a"})", answer = R"("role":"assistant",)";
    for (const auto& [field, named] : std::vector<std::pair<std::string, const char*>>{
             {R"({"history":[["r","b"]],)" + end, "line 1 has a field 'history'"},
             {R"({"tools":"[{}]",)" + end, "line 1 has a field 'tools'"},
             {R"({"images":["a.png"],)" + end, "line 1 has a field 'images'"},
             {R"({"messages":[{"tool_calls":[{}],)" + answer + R"("content":"a"}]})",
              "message 1 has a field 'tool_calls'"},
             {R"({"messages":[{"reasoning_content":"r",)" + answer + R"("content":"a"}]})",
              "message 1 has a field 'reasoning_content'"},
             {R"({"messages":[{"value":"b",)" + answer + R"("content":"a"}]})",
              "message 1 has a field 'value'"},
             {R"({"context":"c",)" + end, "line 1 has a field 'context'"},
             {R"({"input":"i","prompt":"q","completion":"a"})", "line 1 has a field 'input'"},
             {R"({"system":"t","messages":[{"role":"system","content":"s"},{)" + answer +
                  R"("content":"a"}]})",
              "line 1 has a field 'system' and a system message"},
             {R"({"messages":[{"train":false,)" + answer + R"("content":"a"}]})",
              "message 1 has train false"},
             {R"({"label":false,)" + end, "line 1 has label false"},
             {R"({"messages":[{)" + answer + R"("content":[{"type":"text","text":"a","train":0}]}]})",
              "message 1 has train 0"},
             {R"({"prompt":"another","messages":[{)" + answer + R"("content":"a"}]})",
              "line 1 has a field 'prompt'"},
             {R"({"messages":[{"role":"user","content":"r"}],)" + end, "line 1 has"},
             {R"({"instruction":"lost",)" + end, "line 1 has two members 'instruction'"},
             {R"({"messages":[{)" + answer + R"("content":[{"type":"text","text":"a","image":"u"}]}]})",
              "message 1 has a field 'image'"}})
        EXPECT_TRUE(contains(error_of(field.c_str()), named)) << field;
    for (const std::string nothing : {R"("input":null,"system":"")", R"("history":[],"tools":"[]")",
                                      R"("input":[],"images":null)", R"("weight":1,"label":1,"train":true)",
                                      R"("loss":"","masked":0,"kto_tag":null)", R"("masked":false)"})
        EXPECT_EQ(error_of(("{" + nothing + "," + end).c_str()), "") << nothing;
    EXPECT_EQ(error_of(R"({"messages":[{"role":"user","content":"q","train":false},
                           {"role":"assistant","content":"a","train":true}]})"),
              "");
    for (const std::string unlearnt :
         {R"("label":0)", R"("kto_tag":0)", R"("train":"false")", R"("loss":0.0)", R"("masked":1)",
          R"("label":0.0)", R"("weight":0)", R"("train":[])"})
        EXPECT_TRUE(contains(error_of(("{" + unlearnt + "," + end).c_str()), ": all answers count alike"))
            << unlearnt;
    const json with_more = parse_json_object(
        R"({"id":7,"label":"kind","loss":2.5,"tags":[],"prompt":"q",
            "messages":[{"role":"user","name":"Ann","content":"q"},
            {"role":"assistant","content":[{"type":"text","text":"a","index":0}]}],
            "conversations":[{"role":"user","name":"Ann","content":"q"},
            {"role":"assistant","content":[{"type":"text","text":"a","index":0}]}]})",
        "x");  // a copy of what is read loses nothing, and others are named
    EXPECT_EQ(read_chat_example(with_more, "x").unread_fields,
              (std::set<std::string>{"conversations", "id", "index", "label", "loss", "name", "prompt"}));
    const json listed = parse_json_object(
        R"({"system":[{"type":"text","text":"s"}],"instruction":"q","input":[{"text":"i"}],"output":"a"})",
        "x");
    EXPECT_EQ(read_chat_example(listed, "x").messages,
              json::array({said("system", "s"), said("user", "q\n\ni"), said("assistant", "a")}));
}

// A token that the tokenizer has not is no text, as in transformers.
TEST(ChatTemplate, WithoutABeginningToken) {
    Tokenizer tokenizer = bytes_with("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
    json roles = parse_json_object(tokenizer.roles, "x");
    roles["config"]["bos_token"] = nullptr;
    tokenizer.roles = json_text(roles);
    EXPECT_EQ(ChatTemplate(tokenizer).prompt(json::array({said("user", "x")})), "x");
}

// Tokens are those of the whole text, and one that an answer begins with belongs to it.
TEST(ChatExamples, Tokens) {
    Tokenizer tokenizer = bytes_with(builtin_chat_template());
    const ChatTemplate chat(tokenizer);
    const json messages =
        json::array({said("user", "q"), said("assistant", "a1"), said("user", "r"), said("assistant", "b")});
    const EncodedExample e = encode_example(messages, chat, tokenizer);
    const uint16_t end = uint16_t(tokenizer.end_of_text);
    std::string text, counted;
    for (size_t i = 0; i < e.tokens.size(); i++) {
        text += e.tokens[i] == end ? "$" : tokenizer.decode(e.tokens[i]);
        counted += e.targets[i] ? text.back() : '.';
    }
    EXPECT_EQ(text, "### Question\nq\n\n### Answer\na1$### Question\nr\n\n### Answer\nb");
    EXPECT_EQ(counted, std::string(27, '.') + "a1$" + std::string(27, '.') + "b");
    EXPECT_EQ(e.bytes, 5u);
    EXPECT_EQ(e.question, 27u);
}

static EncodedExample example(size_t tokens, uint16_t token, size_t answer) {
    EncodedExample e = {std::vector<uint16_t>(tokens, token), std::vector<bool>(tokens, false),
                        tokens - answer};
    std::fill(e.targets.end() - long(answer), e.targets.end(), true);
    return e;
}

TEST(ExamplePacker, CutsNothingThatFits) {
    std::string tokens, targets;
    ExamplePacker packer = {8, 0};
    packer.take = [&](std::span<const uint16_t> more, const std::vector<bool>& count) {
        ASSERT_EQ(more.size(), count.size());
        for (size_t i = 0; i < more.size(); i++) {
            tokens += char('0' + more[i]);
            targets += count[i] ? '1' : '.';
        }
    };
    packer.add(example(3, 1, 1));    // and end-of-text: half of a sequence
    packer.add(example(3, 2, 2));    // the other half, exactly
    packer.add(example(5, 3, 1));    // leaves two
    packer.add(example(7, 4, 7));    // a whole one
    packer.add(example(9, 5, 1));    // too long for one: loses the beginning of its question
    packer.add(example(12, 6, 10));  // loses the end of its answer
    packer.finish();
    EXPECT_EQ(tokens,
              "01110222"
              "03333300"
              "04444444"
              "05555555"
              "06666666"
              "0");
    EXPECT_EQ(targets,
              "...11.11"
              "1....11."
              ".1111111"
              "1......1"
              "1..11111"
              ".");
    EXPECT_EQ(packer.cut, 2u);
    EXPECT_EQ(packer.examples, 6u);
}

// Questions that repeat are on one side, and the share is exact to a block.
TEST(ExampleDraw, DividesQuestions) {
    ExampleDraw draw = {.fraction = 0.1};
    std::vector<bool> first, again;
    for (std::vector<bool>* sides : {&first, &again})
        for (uint16_t i = 0; i < 200; i++) {
            EncodedExample e = example(4, i, 1);
            e.tokens[3] = sides == &first;  // another answer
            sides->push_back(draw.validates(e));
        }
    EXPECT_EQ(first, again);
    for (int i = 0; i < 200; i += 10)
        EXPECT_EQ(std::count(first.begin() + i, first.begin() + i + 10, true), 1);
}
