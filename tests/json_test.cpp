// JSON from foreign files: what is accepted, the limits on depth and size, and values in messages.
#include "llmc/base/json.h"

#include <gtest/gtest.h>

#include "llmc/base/file.h"
#include "llmc/data/sidecar.h"
#include "llmc/run/run_state.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/tokenizer_info.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

static std::string refusal(const std::string& text) {
    return message_of([&] { parse_json_object(text, "file.json"); });
}

// An object that nests `depth` levels, itself included.
static std::string nested(int depth) {
    return R"({"a": )" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
}

TEST(Json, OnlyObjectsAreAccepted) {
    EXPECT_EQ(parse_json_object(R"({"a": [1, "x"]})", "x")["a"][0], 1);
    for (const char* text : {"", " ", "[]", "3", "null", "{", "{}x", R"({"a": })", "{\"a\": \"\xff\"}"})
        EXPECT_TRUE(refusal(text).starts_with("file.json is not a JSON object"))
            << text << ": " << refusal(text);
    for (const std::string& zero : {std::string(1, '\0'), std::string("\0x", 2)})
        EXPECT_EQ(refusal("{\"a\": 1}" + zero), "file.json is not a JSON object: it has a zero byte");
}

TEST(Json, DepthIsLimited) {
    EXPECT_EQ(refusal(nested(max_json_depth)), "");
    const std::string message = "file.json has JSON nested deeper than 64 levels, which is refused";
    EXPECT_EQ(refusal(nested(max_json_depth + 1)), message);
    EXPECT_EQ(refusal(nested(1000000)), message);
    EXPECT_EQ(refusal(std::string(1000000, '[')), message);
    std::string objects;
    for (int i = 0; i < 100000; i++) objects += R"({"a":)";
    EXPECT_EQ(refusal(objects), message);
}

// Libraries take the first or the last one.
TEST(Json, NamesInAnObjectDiffer) {
    EXPECT_EQ(refusal(R"({"a": {"b": 1, "b": 2}})"), "file.json has two members 'b' in one JSON object");
    EXPECT_EQ(refusal(R"({"a": {"b": 1}, "b": [{"a": 1, "b": {}}, {"a": 1}]})"), "");
}

TEST(Json, BracketsInStringsDoNotCount) {
    const std::string brackets(1000, '[');
    EXPECT_EQ(refusal(R"({"a": ")" + brackets + R"("})"), "");
    EXPECT_EQ(refusal(R"({"a": "\"")" + std::string() + R"(, "b": "\\\"[)" + brackets + R"("})"), "");
    EXPECT_NE(refusal(R"({"a": "\\")" + std::string(R"(, "b": )") + brackets), "");
    EXPECT_EQ(refusal(R"({"a": "\"[[", "b": ")" + brackets + R"("})"), "");
    std::string siblings = R"({"a": [)";  // wide, not deep
    for (int i = 0; i < 1000; i++) siblings += "[{}],";
    EXPECT_EQ(refusal(siblings + "0]}"), "");
}

TEST(Json, SizeIsLimited) {
    const std::string text = R"({"a": ")" + std::string(max_json_bytes, 'x') + R"("})";
    EXPECT_TRUE(contains(refusal(text), "at most 67108864 can be read"));
}

TEST(Json, MembersKeepTheirOrder) {
    EXPECT_EQ(json_text(JsonMembers{{"b", 1}, {"a", {1, 2}}}, -1), R"({"b":1,"a":[1,2]})");
    EXPECT_EQ(json_text(nlohmann::json{{"b", 1}, {"a", 0.5}}), R"({"a":0.5,"b":1})");
}

TEST(Json, ValuesInMessagesAreShort) {
    EXPECT_EQ(describe_json(nlohmann::json::array({1, 2})), "an array");
    EXPECT_EQ(describe_json(nlohmann::json::object()), "an object");
    EXPECT_EQ(describe_json("a\nb\xff"), "\"a\\nb\\ufffd\"");
    EXPECT_EQ(describe_json(1e-5), "1e-05");
    EXPECT_LT(describe_json(std::string(1000, 'x')).size(), 70u);
}

// Files with other members than ours, to every reader that passes on what the library says.
TEST(Json, ReasonsDoNotNameTheLibrary) {
    const TemporaryFolder folder;
    const std::string tokenizer = folder / "tokenizer.json", shard = folder / "a_train.bin";
    write_whole_file(tokenizer, {R"({"model": {"type": "BPE", "vocab": 3, "merges": 4}})"});
    write_whole_file(folder / "a.json", {R"({"tokenizer_of_shards": {}, "shards": [{"part": 1}]})"});
    const std::string messages[] = {
        message_of([&] { read_hugging_face_tokenizer(tokenizer); }),
        message_of([&] { tokenizer_info_from_json(R"({"name": 1})", "a.json"); }),
        message_of([&] {
            check_listed_shards(shard, {{shard, 1}});
        }),
        message_of([&] { run_state_from_json(R"({"precision": 1})", "run_00000001.json"); }),
    };
    for (const std::string& message : messages) {
        EXPECT_NE(message, "");
        EXPECT_FALSE(contains(message, "json.exception"));
    }
}
