// The state of a run as JSON: reading gives back exactly what was written, and anything else is refused.
#include "llmc/run/run_state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "llmc/base/json.h"
#include "tests/message_of.h"

static RunState some_state() {
    RunState state;
    state.precision = "bf16";
    state.seed = ~uint64_t(0);
    state.shards = {{"a \"b\".bin", uint64_t(1) << 40}, {"c.bin", 0}};
    state.chunk_tokens = 4096;
    state.first_token = 17;
    state.coin_state = 0x123456789abcdef0;
    state.scaling.factor = 32768;
    state.scaling.since = 17;
    state.scaling.good_steps = 3;
    state.scaling.add(20, 1.1f);
    state.scaling.add(21, NAN);
    for (int i = 0; i < 200; i++) state.judge.judge(1.0f / float(i + 3), std::exp(-float(i)), 1.0f);
    state.judge.judge(NAN, 1, 0);
    state.judge.outliers = 5;
    state.validations.add(14, 3.25, true);
    state.validations.add(21, 4.5, true);
    state.written_for = WrittenFor::signal;
    state.tokens = uint64_t(1) << 40;
    state.division = {{"cpu, 2 threads", 9, 3}, {"a \"GPU\"", 1, 1}, {"out", 0, 0}};
    return state;
}

TEST(RunState, SurvivesJson) {
    const RunState a = some_state(), b = run_state_from_json(run_state_to_json(a), "x");
    EXPECT_EQ(b.precision, a.precision);
    EXPECT_EQ(b.seed, a.seed);
    EXPECT_EQ(b.shards, a.shards);
    EXPECT_EQ(b.chunk_tokens, a.chunk_tokens);
    EXPECT_EQ(b.first_token, a.first_token);
    EXPECT_EQ(b.coin_state, a.coin_state);
    EXPECT_EQ(b.scaling.factor, a.scaling.factor);
    EXPECT_EQ(b.scaling.since, a.scaling.since);
    EXPECT_EQ(b.scaling.good_steps, a.scaling.good_steps);
    ASSERT_EQ(b.scaling.ended.size(), 2u);
    EXPECT_EQ(b.scaling.ended[0], a.scaling.ended[0]);
    EXPECT_EQ(b.scaling.ended[1].first, 21);
    EXPECT_TRUE(std::isnan(b.scaling.ended[1].second));
    EXPECT_EQ(a.judge.losses.values.size(), 128u);
    EXPECT_EQ(b.judge.losses.values, a.judge.losses.values);
    EXPECT_EQ(b.judge.norms.values, a.judge.norms.values);
    EXPECT_EQ(b.judge.not_finite, 1);
    EXPECT_EQ(b.judge.outliers, 5);
    EXPECT_EQ(b.validations, a.validations);
    EXPECT_EQ(b.validations.since_best, 1);
    EXPECT_EQ(b.written_for, WrittenFor::signal);
    EXPECT_EQ(b.tokens, a.tokens);
    EXPECT_EQ(b.division, a.division);
}

// The folder of the run may be moved, and a line that JSON cannot hold does not matter.
TEST(RunState, KeepsTheOptionsWithoutTheFolder) {
    RunState state = some_state();
    state.options = "batch=4\noutput=\"runs/a\"\nmodel=\"\xff.bin\"\nseed=3\n";
    EXPECT_EQ(run_state_from_json(run_state_to_json(state), "x").options, "batch=4\nseed=3\n");
}

TEST(RunState, AnythingElseIsRefused) {
    const std::string good = run_state_to_json(some_state());
    auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    for (const std::string& text :
         {std::string(), std::string("[]"), good.substr(1), with("\"seed\"", "\"sead\""),
          with("4096", "\"many\""), with("32768.0", "0"), with("32768.0", "1e30"),
          with("\"outliers\":5", "\"outliers\":null"), with("\"losses\":[", "\"losses\":[1,1,1,"),
          with("\"bf16\"", "7"), with("\"outliers\":5", "\"outliers\":5.5"), with("3.25", "null"),
          with("\"signal\"", "\"whim\""), with("\"since_best\":1", "\"since_best\":1e9"),
          with("\"outliers\":5", "\"outliers\":99999999999"), with("4096", "-1"), with("4096", "1.8e30"),
          with("\"sequences\":9", "\"sequences\":-9"), with("\"micro_batch\":3", "\"micro_batch\":0")}) {
        const std::string message = message_of([&] { run_state_from_json(text, "some/run.json"); });
        EXPECT_EQ(message.rfind("some/run.json was not written by", 0), 0u) << message << "\n"
                                                                            << text.substr(0, 60);
    }
}

// As earlier versions, which were never released, wrote them.
TEST(RunState, AMissingFieldIsRefused) {
    for (const char* name : {"validations", "written_for", "options", "healthy_checkpoint"}) {
        nlohmann::json j = nlohmann::json::parse(run_state_to_json(some_state()));
        j.erase(name);
        const std::string message = message_of([&] { run_state_from_json(j.dump(), "some/run.json"); });
        EXPECT_TRUE(message.starts_with("some/run.json was not written by this program: ")) << message;
        EXPECT_TRUE(contains(message, name));
    }
}

TEST(Validations, ALossThatIsNotFiniteIsNeverTheBest) {
    Validations v;
    EXPECT_FALSE(v.add(0, 1, false));  // random weights
    EXPECT_EQ(v.since_best, 0);
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) EXPECT_FALSE(v.add(1, bad, true)) << bad;
    EXPECT_EQ(v.best_step, -1);
    EXPECT_EQ(v.since_best, 4);
    EXPECT_TRUE(v.add(2, 3, true));
    for (const float bad : {NAN, -INFINITY, 3.0f, 4.0f}) EXPECT_FALSE(v.add(3, bad, true)) << bad;
    EXPECT_EQ(v.best_step, 2);
    EXPECT_EQ(v.since_best, 4);
    RunState state;
    EXPECT_FALSE(v.add(4, NAN, true));
    state.validations = v;
    EXPECT_TRUE(std::isnan(run_state_from_json(run_state_to_json(state), "x").validations.last_loss));
}

TEST(StepJudge, CountsSkippedUpdates) {
    StepJudge judge;
    judge.loss_limit = 3;
    for (int i = 0; i < 128; i++) EXPECT_TRUE(judge.judge(i % 2 ? 2.0f : 2.1f, 1, 1).applied());
    EXPECT_TRUE(judge.judge(9, 1, 1).outlier);
    EXPECT_TRUE(judge.judge(2, 50, 1).applied());  // the norm has no limit
    EXPECT_TRUE(judge.judge(2, 1, 0).not_finite);  // the device found it
    EXPECT_TRUE(judge.judge(NAN, 1, 1).not_finite);
    EXPECT_FALSE(judge.judge(2, HUGE_VALF, 1).applied());
    EXPECT_TRUE(judge.judge(9, 1, 1).outlier);
    EXPECT_EQ(judge.not_finite, 3);
    EXPECT_EQ(judge.outliers, 2);
    EXPECT_EQ(judge.not_finite_in_a_row, 0);
    EXPECT_EQ(judge.finite_in_a_row, 1);
    judge.judge(NAN, 1, 1);
    judge.judge(NAN, 1, 1);
    EXPECT_EQ(judge.not_finite_in_a_row, 2);
    EXPECT_EQ(judge.finite_in_a_row, 0);
}
