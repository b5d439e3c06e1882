// The rule that chooses tokenizer, model, batch and steps of train_gpt2 --text, over a grid of texts, devices
// and times.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "llmc/options/time_rule.h"
#include "llmc/text/bpe_trainer.h"

// A device of so many flops per second whose steps take at least `latency` seconds.
struct Device {
    double flops, latency = 0;
    int* measured = nullptr;  // counts the calls

    double operator()(const TextRecipe& r) const {
        if (measured) ++*measured;
        const double each = r.parameters + double(r.shape.layers) * r.shape.channels * r.shape.sequence;
        return std::max(latency, 6 * each * r.shape.tokens_per_step / flops);
    }
};

static const Device devices[] = {{1e10}, {8e10}, {1e12, 2e-3}, {2e13, 1e-3}, {1.6e14, 9e-4}};

static RuleInputs text_of(double bytes, double minutes) {
    return {.text_bytes = uint64_t(bytes), .val_bytes = 32768, .seconds = 60 * minutes};
}

// 49 steps of 9 s of GPT-2, which takes 1.4 GiB at each better validation.
TEST(TimeRule, LargeModelsAreWrittenLessOften) {
    RuleInputs in = text_of(3e5, 3);
    in.layers = in.heads = 12, in.channels = 768, in.vocab_size = 50257, in.steps = 49;
    in.train_tokens = 67000, in.val_tokens = 1200;
    const auto validations = [&](double seconds) {
        return choose_for_time(in, [&](const TextRecipe&) { return seconds; }).validations;
    };
    EXPECT_LE(validations(9), 6);
    EXPECT_EQ(validations(0.2), 2);
    in.layers = in.heads = 2, in.channels = 64, in.vocab_size = 257;
    EXPECT_EQ(validations(0.2), 16);
}

TEST(TimeRule, AFastDeviceGetsALargerModelOfALongText) {
    const TextRecipe slow = choose_for_time(text_of(39e6, 3), devices[1]);
    const TextRecipe fast = choose_for_time(text_of(39e6, 3), devices[4]);
    EXPECT_EQ(slow.shape.channels, 96);
    EXPECT_GE(fast.shape.channels, 512);
    EXPECT_GE(fast.vocab_size, slow.vocab_size);
    EXPECT_EQ(slow.dropout, 0);
    // and one that a short text can teach something
    const TextRecipe short_text = choose_for_time(text_of(120e3, 3), devices[4]);
    EXPECT_LE(short_text.shape.channels, 192);
    EXPECT_GT(short_text.dropout, 0.1f);
    EXPECT_LT(short_text.seconds(), 60);
}

TEST(TimeRule, MeasuresFewCandidates) {
    for (Device device : devices)
        for (double bytes = 2e4; bytes < 4e9; bytes *= 3) {
            int measured = 0;
            device.measured = &measured;
            choose_for_time(text_of(bytes, 3), device);
            EXPECT_GE(measured, 1);
            EXPECT_LE(measured, 4) << device.flops << " " << bytes;
        }
}

// Of a model that does not fit in memory, the time is infinite.
TEST(TimeRule, LeavesOutWhatDoesNotFitInMemory) {
    for (const int most : {96, 128, 192, 256, 384, 512, 640}) {
        const auto small_device = [most](const TextRecipe& r) {
            return r.shape.channels > most ? std::numeric_limits<double>::infinity() : devices[4](r);
        };
        const TextRecipe r = choose_for_time(text_of(39e6, 3), small_device);
        EXPECT_EQ(r.shape.channels, most);
        EXPECT_TRUE(std::isfinite(r.bits_per_byte));
    }
}

// Nobody waits for minutes until a model is timed, which is then trained for less.
TEST(TimeRule, AGivenModelIsTimedInLessThanItTrains) {
    for (const int channels : {384, 768, 1600})
        for (const Device& device : devices)
            for (const double minutes : {0.05, 1.0, 60.0}) {
                RuleInputs in = text_of(1e6, minutes);
                in.layers = channels / 64, in.heads = channels / 64, in.channels = channels;
                double longest = 0, least = std::numeric_limits<double>::infinity();
                const TextRecipe r = choose_for_time(in, [&](const TextRecipe& timed) {
                    longest = std::max(longest, device(timed));
                    least = std::min(least, device(timed));
                    return device(timed);
                });
                EXPECT_LE(longest, std::max(in.seconds / 8, std::max(least, 6.4)));
                EXPECT_EQ(r.shape.channels, channels);
            }
}

// One second is the update's, whatever the batch: 32 sequences fit, which 32 times the first would not.
TEST(TimeRule, AnUpdateThatTakesLongShrinksNoBatch) {
    RuleInputs in = text_of(1e6, 3);
    in.layers = in.heads = 6, in.channels = 384;
    const auto seconds = [](const TextRecipe& r) { return 1 + 0.1 * r.batch; };
    EXPECT_EQ(choose_for_time(in, seconds).batch, 32);
}

// A measurement that other programs disturb: half of a batch takes no longer than all of it.
TEST(TimeRule, AHalvedBatchIsNotSlower) {
    int calls = 0;
    const TextRecipe r =
        choose_for_time(text_of(60e3, 0.1), [&](const TextRecipe&) { return calls++ ? 1.4 : 0.4; });
    EXPECT_LE(r.step_seconds, 0.4);
    EXPECT_GE(r.steps, 12);
}

// Far more passes than any text is worth.
TEST(TimeRule, DecayHasALimit) {
    RuleInputs in = text_of(60e3, 3);
    in.epochs = 100000;
    EXPECT_LE(choose_for_time(in, devices[1]).weight_decay, 3);
}

TEST(TimeRule, WhatIsGivenStays) {
    RuleInputs in = text_of(39e6, 3);
    in.layers = 6, in.heads = 6, in.channels = 384, in.sequence = 512, in.batch = 4, in.vocab_size = 1000;
    const TextRecipe r = choose_for_time(in, devices[4]);
    EXPECT_EQ(r.shape.layers, 6);
    EXPECT_EQ(r.shape.channels, 384);
    EXPECT_EQ(r.shape.sequence, 512);
    EXPECT_EQ(r.batch, 4);
    EXPECT_EQ(r.shape.tokens_per_step, 4 * 512);
    EXPECT_EQ(r.vocab_size, 1000);
    in.steps = 7;
    int measured = 0;
    const TextRecipe seven = choose_for_time(in, Device{1e12, 0, &measured});
    EXPECT_EQ(seven.steps, 7);
    EXPECT_EQ(measured, 0);  // nothing depends on the time
    in.steps = -1;
    in.epochs = 2;
    in.train_tokens = 204800;
    EXPECT_EQ(choose_for_time(in, devices[4]).steps, 200);
    in.tokens_per_step = 8192;
    EXPECT_EQ(choose_for_time(in, devices[4]).steps, 50);
    in.processes = 2;
    EXPECT_EQ(choose_for_time(in, devices[4]).shape.tokens_per_step, 8192);
}

// A model has at most a few parameters for each token that given steps read; no steps are a length, too.
TEST(TimeRule, TheModelFollowsGivenSteps) {
    RuleInputs in = text_of(39e6, 600);
    double before = 0;
    for (const int steps : {0, 1, 20, 300, 3000, 30000}) {
        in.steps = steps;
        const TextRecipe r = choose_for_time(in, devices[4]);
        EXPECT_EQ(r.steps, steps);
        EXPECT_GE(r.parameters, before) << steps;
        EXPECT_TRUE(r.shape.channels == 96 || r.parameters <= 5 * r.tokens_read()) << steps;
        EXPECT_GT(r.bits_per_byte, 0);
        before = r.parameters;
    }
    EXPECT_GT(before, 5e6);
    in.steps = 20;
    for (const Device& device : devices) EXPECT_EQ(choose_for_time(in, device).shape.channels, 96);
    in.steps = -1;
    in.epochs = 0.01;  // 390 kB
    EXPECT_EQ(choose_for_time(in, devices[4]).shape.channels, 96);
}

// A batch needs B*T tokens, and one more, in all processes, of the training and of the validation data.
TEST(TimeRule, ABatchIsNotLongerThanTheData) {
    for (const uint64_t val : {2049, 2048, 1000, 257, 40, 3})
        for (const int processes : {1, 4})
            for (const int given_batch : {0, 2}) {
                RuleInputs in = text_of(1e6, 1);
                in.val_tokens = val;
                in.processes = processes;
                in.batch = given_batch;
                const TextRecipe r = choose_for_time(in, devices[2]);
                const int64_t tokens = int64_t(r.batch) * r.shape.sequence * processes;
                const bool is_smallest = r.batch == std::max(1, given_batch) && r.shape.sequence == 1;
                EXPECT_TRUE(tokens < int64_t(val) || is_smallest) << val << " " << processes;
                EXPECT_TRUE(!given_batch || r.batch == given_batch);
            }
}

TEST(TimeRule, TheTokenizerFollowsTheText) {
    for (const auto& [bytes, of_small] : {std::pair(299999, 257), {300000, 512}, {600000, 2048}}) {
        EXPECT_EQ(choose_vocab_size(uint64_t(bytes), 96), of_small);
        EXPECT_EQ(choose_vocab_size(uint64_t(bytes), 192), of_small);
        EXPECT_EQ(choose_vocab_size(uint64_t(bytes), 256), 257);
    }
    int before = 257;
    for (double bytes = 2e6; bytes < 1e11; bytes *= 2) {
        const int size = choose_vocab_size(uint64_t(bytes), 768);
        EXPECT_GE(size, before);
        EXPECT_LE(size, 65536);
        EXPECT_EQ(choose_vocab_size(uint64_t(bytes), 96), 4096);
        before = size;
    }
    EXPECT_EQ(before, 8192);
}

// With the counts that were planned, a recipe stays what it is, however large the model.
TEST(TimeRule, AdaptsOnlyToOtherInputs) {
    for (const Device& device : devices)
        for (double bytes = 2e4; bytes < 4e9; bytes *= 3)
            for (const double minutes : {1.0, 60.0}) {
                RuleInputs in = text_of(bytes, minutes);
                const TextRecipe planned = choose_for_time(in, device), same = adapt(in, planned);
                EXPECT_EQ(same.shape, planned.shape) << device.flops << " " << bytes;
                EXPECT_EQ(same.batch, planned.batch);
                EXPECT_EQ(same.steps, planned.steps);
                EXPECT_EQ(same.dropout, planned.dropout);
                in.train_tokens = uint64_t(0.9 * bytes / bytes_per_token(planned.vocab_size));
                const TextRecipe fewer = adapt(in, planned);
                EXPECT_EQ(fewer.shape.layers, planned.shape.layers);
                EXPECT_LE(fewer.seconds(), 60 * minutes);
            }
}

// -d below B*T: the sequence is shortened if -t does not say it; a measurement of 0 s does not loop.
TEST(TimeRule, FewTokensPerStep) {
    RuleInputs in = text_of(30000, 1);
    in.tokens_per_step = 32;
    const TextRecipe r = choose_for_time(in, devices[2]);
    EXPECT_EQ(32 % (r.batch * r.shape.sequence), 0);
    in.sequence = 1024;
    EXPECT_EQ(choose_for_time(in, [](const TextRecipe&) { return 0.0; }).shape.sequence, 1024);
}

// --- every speed, time and text, and what may be given ---

// Longer sequences and a larger vocabulary of a longer text cost up to 3.5 %, which the expected bits do not
// repay; in training, 4,096 tokens were 1 to 4 % better than 2,048 in the same time. A model that was chosen
// before tokens were counted is up to 5 % from the best.
struct Given {
    const char* what;
    double text_tolerance = 1.036, time_tolerance = 1.0001;
    int vocab_size = 0, layers = 0, heads = 0, channels = 0, sequence = 0, batch = 0, tokens_per_step = 0;
    int sources = 1;
    double density = 1;  // bytes of a token of a trained tokenizer, over those that are expected
};
static const Given givens[] = {
    {.what = "nothing"},
    {.what = "characters of 3 bytes", .time_tolerance = 1.02, .density = 1.4},
    {.what = "base64", .text_tolerance = 1.05, .time_tolerance = 1.02, .density = 0.65},
    {.what = "one line, repeated", .text_tolerance = 1.05, .time_tolerance = 1.05, .density = 20},
    {.what = "bytes", .text_tolerance = 1.01, .vocab_size = 257},
    {.what = "bpe:4096", .text_tolerance = 1.01, .vocab_size = 4096},
    {.what = "GPT-2's tokens", .text_tolerance = 1.01, .vocab_size = 50257},
    {.what = "d6", .text_tolerance = 1.03, .layers = 6, .heads = 6, .channels = 384},
    {.what = "d12", .text_tolerance = 1.03, .layers = 12, .heads = 12, .channels = 768},
    {.what = "d48",
     .text_tolerance = 1.03,
     .time_tolerance = 1.005,
     .vocab_size = 50257,
     .layers = 48,
     .heads = 25,
     .channels = 1600},
    {.what = "-t 64", .sequence = 64},
    {.what = "-t 1024", .sequence = 1024},
    {.what = "-b 1", .batch = 1},
    {.what = "-b 64", .batch = 64},
    {.what = "-t 256 -b 8", .sequence = 256, .batch = 8},
    {.what = "-d 65536", .tokens_per_step = 65536},
    {.what = "a mixture", .sources = 8},
};

static RuleInputs inputs_of(const Given& given, double bytes, double minutes) {
    const double val = std::min(bytes / 2, std::clamp(bytes / 10, 4200.0, 32768.0));
    return {.text_bytes = uint64_t(bytes - val),
            .val_bytes = uint64_t(val),
            .seconds = 60 * minutes,
            .vocab_size = given.vocab_size,
            .layers = given.layers,
            .heads = given.heads,
            .channels = given.channels,
            .sequence = given.sequence,
            .batch = given.batch,
            .tokens_per_step = given.tokens_per_step,
            .sources = given.sources};
}

static double bytes_of_each(const Given& given, const TextRecipe& r) {
    return bytes_per_token(r.vocab_size) * (r.vocab_size > 257 ? given.density : 1);
}

// Once the tokens are counted, the steps follow from them.
static TextRecipe choose_and_count(const Given& given, RuleInputs& in, const Device& device) {
    const TextRecipe planned = choose_for_time(in, device);
    if (given.density == 1) return planned;
    const double each = bytes_of_each(given, planned);
    in.train_tokens = std::max(uint64_t(1), uint64_t(double(in.text_bytes) / each));
    in.val_tokens = std::max(uint64_t(1), uint64_t(double(in.val_bytes) / each));
    return adapt(in, planned);
}

// What nobody would choose by hand.
static void expect_sensible(const Given& given, const RuleInputs& in, const TextRecipe& r) {
    const double each = bytes_of_each(given, r), tokens = double(in.text_bytes) / each;
    const double val_tokens = double(in.val_bytes) / each;
    const double batch = double(r.batch) * r.shape.sequence;
    EXPECT_GE(r.steps, 1);
    EXPECT_GE(r.validations, 2);
    EXPECT_LE(r.validations, 16);
    EXPECT_TRUE(r.val_batches == -1 || r.val_batches >= 1);
    EXPECT_TRUE(std::isfinite(r.bits_per_byte) && r.bits_per_byte > 0 && r.bits_per_byte < 4.6);
    EXPECT_TRUE(r.dropout >= 0 && r.dropout <= 0.5f && r.weight_decay >= 0.1f && r.weight_decay < 3);
    EXPECT_TRUE(r.epochs > 1 || r.dropout == 0) << r.epochs << " " << r.dropout;
    EXPECT_EQ(r.shape.tokens_per_step % int(batch), 0);
    EXPECT_TRUE(given.sequence || r.shape.sequence < tokens) << r.shape.sequence;
    EXPECT_TRUE(given.vocab_size || r.vocab_size == 257 || r.vocab_size < tokens) << r.vocab_size;
    const bool is_free = !given.sequence && !given.batch && !given.tokens_per_step;
    EXPECT_TRUE(!is_free || batch < std::min(tokens, val_tokens)) << batch;
    const bool has_steps = r.steps >= 12 || r.seconds() < in.seconds / 2;
    EXPECT_TRUE(!is_free || has_steps || r.batch == 1 || r.shape.tokens_per_step <= 256) << r.steps;
    const double val_batch = 0.35 * r.step_seconds * batch / r.shape.tokens_per_step;
    const double batches =  // each source reads one at least, and its last one is not full
        r.val_batches == -1 ? val_tokens / batch + in.sources - 1 : std::max(r.val_batches, in.sources);
    const double validations = (r.validations + 1) * val_batch * batches;
    const bool takes_one_at_least =
        (r.val_batches != -1 && r.val_batches <= in.sources) || val_tokens <= batch || r.steps == 1;
    EXPECT_TRUE(takes_one_at_least || r.seconds() + validations <= 1.02 * in.seconds)
        << r.seconds() << " + " << validations;
    EXPECT_TRUE(takes_one_at_least || validations <= 0.11 * in.seconds) << validations;
    EXPECT_TRUE(!given.channels || r.shape.channels == given.channels);
    EXPECT_TRUE(!given.sequence || r.shape.sequence == given.sequence);
    EXPECT_TRUE(!given.batch || r.batch == given.batch);
    EXPECT_TRUE(!given.tokens_per_step || r.shape.tokens_per_step == given.tokens_per_step);
    EXPECT_TRUE(!given.vocab_size || r.vocab_size == given.vocab_size);
}

// Where a given batch leaves a few steps, one of them more or less is a large part.
TEST(TimeRule, AnyTextDeviceAndTime) {
    for (const Given& given : givens)
        for (double flops = 1e9; flops < 2e15; flops *= 10) {
            const Device device = {flops, flops > 5e11 ? 1e-3 : 0};
            std::map<double, double> of_shorter;  // bits, by minutes
            for (double bytes = 1000; bytes < 1.2e11; bytes *= 2.15) {
                double of_less_time = std::numeric_limits<double>::infinity();
                for (double minutes = 0.05; minutes < 11000; minutes *= 1.6) {
                    SCOPED_TRACE(std::string(given.what) + ", " + std::to_string(flops) + " FLOP/s, " +
                                 std::to_string(bytes) + " bytes, " + std::to_string(minutes) + " minutes");
                    RuleInputs in = inputs_of(given, bytes, minutes);
                    const TextRecipe r = choose_and_count(given, in, device);
                    expect_sensible(given, in, r);
                    const bool has_few_steps = (given.batch || given.tokens_per_step) && r.steps < 16;
                    EXPECT_LE(r.bits_per_byte, given.time_tolerance * of_less_time);
                    of_less_time = r.bits_per_byte;
                    const auto shorter = of_shorter.find(minutes);
                    EXPECT_TRUE(shorter == of_shorter.end() || has_few_steps ||
                                r.bits_per_byte <= given.text_tolerance * shorter->second)
                        << r.bits_per_byte / shorter->second;
                    of_shorter[minutes] = r.bits_per_byte;
                }
            }
        }
}
