// Descriptors, limits and tensor sizes; initial weights compared with PyTorch's.
#include "llmc/model/model_config.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/model/initialize.h"
#include "tests/message_of.h"

static std::string error_of(const std::string& descriptor) {
    return message_of([&] { parse_descriptor(descriptor); });
}

TEST(ModelConfig, NamedShapesHaveLlmcsSizes) {
    EXPECT_EQ(num_parameters(parse_descriptor("d12")), 124475904u);
    EXPECT_EQ(num_parameters(parse_descriptor("gpt2:d48")), 1557686400u);
    ModelConfig d12 = parse_descriptor("gpt2:d12");
    EXPECT_EQ(d12.max_seq_len, 1024);
    EXPECT_EQ(d12.vocab_size, 50257);
    EXPECT_EQ(d12.padded_vocab_size, 50304);
    EXPECT_EQ(d12.num_heads, 12);
    ModelConfig gpt3 = parse_descriptor("gpt3:c2560");
    EXPECT_EQ(gpt3.max_seq_len, 2048);
    EXPECT_EQ(gpt3.num_layers, 32);
    EXPECT_EQ(gpt3.channels / gpt3.num_heads, 80);
    for (const char* name :
         {"d6", "d24", "d36", "d60", "d72", "d84", "gpt3:c384", "gpt3:c1536", "gpt3:c12288"}) {
        EXPECT_NO_THROW(validate(parse_descriptor(name), name)) << name;
    }
}

TEST(ModelConfig, EveryDepthIsAShape) {
    int channels = 64;
    for (int depth = 1; depth <= 84; depth++) {
        const std::string name = "d" + std::to_string(depth);
        const ModelConfig config = parse_descriptor(name);
        EXPECT_NO_THROW(validate(config, name));
        EXPECT_EQ(config.num_layers, depth);
        EXPECT_GE(config.channels, channels) << name;
        channels = config.channels;
        EXPECT_EQ(parse_descriptor("gpt2:" + name).channels, channels);
    }
    EXPECT_EQ(parse_descriptor("d8").channels, 512);
    EXPECT_EQ(parse_descriptor("d8").num_heads, 8);
    EXPECT_EQ(parse_descriptor("d18").channels, 896);
}

TEST(ModelConfig, Custom) {
    ModelConfig config = parse_descriptor("custom:layers=4,heads=2,channels=126,max_seq_len=250,vocab=257");
    EXPECT_EQ(config.num_layers, 4);
    EXPECT_EQ(config.num_heads, 2);
    EXPECT_EQ(config.channels, 126);
    EXPECT_EQ(config.max_seq_len, 250);
    EXPECT_EQ(config.vocab_size, 257);
    EXPECT_EQ(config.padded_vocab_size, 384);
    EXPECT_EQ(parse_descriptor("custom:max_seq_len=8,channels=4,heads=4,layers=1").padded_vocab_size, 50304);
}

TEST(ModelConfig, TheVocabularyIsPaddedToAMultipleOf128) {
    const std::vector<std::pair<int, int>> sizes = {{1, 128}, {127, 128}, {128, 128}, {129, 256}, {256, 256}};
    for (const auto& [size, padded] : sizes) {
        ModelConfig config = {};
        set_vocab_size(config, size);
        EXPECT_EQ(config.padded_vocab_size, padded) << size;
    }
}

TEST(ModelConfig, BadDescriptorsAreExplained) {
    const char* bad[] = {"",
                         "d",
                         "d0",
                         "d85",
                         "d62662665",
                         "d012",
                         "d-1",
                         "d12x",
                         "gpt2:",
                         "gpt2:d13x",
                         "gpt3:c5140",
                         "gpt3:d12",
                         "D12",
                         "custom:",
                         "12",
                         "custom:layers=4",
                         "custom:layers=4,heads=4,channels=128,max_seq_len=",
                         "custom:layers=4,heads=4,channels=128,max_seq_len=1x",
                         "custom:layers=4,layers=4,heads=4,channels=128,max_seq_len=256",
                         "custom:layers=4,heads=4,channels=128,max_seq_len=256,depth=3",
                         "custom:layers=99999999999,heads=4,channels=128,max_seq_len=256"};
    for (const char* text : bad) {
        std::string message = error_of(text);
        EXPECT_TRUE(contains(message, "gpt3:cN")) << text;
        EXPECT_EQ(message.find('\n'), std::string::npos);
    }
    EXPECT_TRUE(
        contains(error_of("custom:layers=4,heads=3,channels=128,max_seq_len=256"), "multiple of heads"));
    for (const char* text : {"custom:layers=0,heads=4,channels=128,max_seq_len=256",
                             "custom:layers=4,heads=0,channels=128,max_seq_len=256",
                             "custom:layers=4,heads=4,channels=-128,max_seq_len=256",
                             "custom:layers=4,heads=4,channels=128,max_seq_len=0",
                             "custom:layers=4,heads=4,channels=128,max_seq_len=256,vocab=0",
                             "custom:layers=4,heads=4,channels=128,max_seq_len=256,vocab=2147483647"}) {
        EXPECT_TRUE(contains(error_of(text), "must be from 1 to")) << text;
    }
}

TEST(ModelConfig, ValidateRefusesEveryBadField) {
    const ModelConfig good = {64, 300, 384, 2, 3, 48};
    EXPECT_NO_THROW(validate(good, "model"));
    int ModelConfig::*fields[] = {&ModelConfig::max_seq_len,       &ModelConfig::vocab_size,
                                  &ModelConfig::padded_vocab_size, &ModelConfig::num_layers,
                                  &ModelConfig::num_heads,         &ModelConfig::channels};
    for (auto field : fields) {
        for (int value : {0, -1, INT_MAX, INT_MIN}) {
            ModelConfig bad = good;
            bad.*field = value;
            EXPECT_THROW(validate(bad, "model"), Error);
        }
    }
    ModelConfig unpadded = good;
    unpadded.padded_vocab_size = 299;
    EXPECT_THROW(validate(unpadded, "model"), Error);
}

TEST(ModelConfig, HeadsHaveAtMost128Channels) {
    EXPECT_EQ(parse_descriptor("custom:layers=1,heads=1,channels=128,max_seq_len=8").num_heads, 1);
    const std::string message =
        message_of([] { parse_descriptor("custom:layers=1,heads=1,channels=160,max_seq_len=8"); });
    EXPECT_TRUE(contains(message, "heads of 160 channels are too large, at most 128"));
}

TEST(ModelConfig, WeightDecayOnMatricesOnly) {
    ModelConfig config = {64, 300, 384, 2, 3, 48};
    size_t decayed = 0;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        decayed += parameter_info[i].is_matrix() * parameter_size(config, i);
    EXPECT_EQ(decayed, size_t(384 * 48 + 64 * 48 + 2 * 12 * 48 * 48));
    EXPECT_STREQ(parameter_info[FCPROJB].name, "fcprojb");
    EXPECT_EQ(parameter_size(config, LNFW), 48u);
    EXPECT_EQ(parameter_size(config, QKVB), 2 * parameter_layer_size(config, QKVB));
}

// Statistics of one initial matrix of PyTorch's: first and last value, sum, and sum of absolute values.
struct DrawnMatrix {
    int tensor, layer;
    float first, last;
    double sum, absolute;
};

TEST(Initialize, EqualsPyTorch) {
    // From PyTorch 1.13 with torch.manual_seed(42), for a model of 2 layers with C = 24, V = 131, maxT = 17.
    const DrawnMatrix drawn[] = {
        {WTE, 0, 0.0385382995f, 0.0275625326f, 0.393953275, 49.9592671},
        {WPE, 0, 0.0136257503f, -0.000292041543f, 0.571394127, 6.25092833},
        {QKVW, 0, -0.00760146044f, 0.0154005308f, 0.0175877115, 28.69063},
        {ATTPROJW, 0, 0.00939678401f, 0.00937403925f, 0.00542701045, 4.72717277},
        {FCW, 0, -0.0166408941f, 0.0371266417f, 0.585536396, 36.3290078},
        {FCPROJW, 0, -0.00797782373f, -0.0039085499f, 0.428985312, 18.7160561},
        {QKVW, 1, -0.050773602f, 0.0261666887f, 0.800773992, 27.3437849},
        {ATTPROJW, 1, -0.00409229752f, -0.0160775501f, -0.326148494, 4.4884085},
        {FCW, 1, -0.00355853164f, 0.00757697504f, 0.849022601, 37.5507354},
        {FCPROJW, 1, -0.0027685964f, -0.00636515208f, 0.168244849, 18.3994023},
    };
    ModelConfig config = {17, 131, 256, 2, 2, 24};
    std::vector<std::vector<float>> values;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) values.emplace_back(parameter_size(config, i), NAN);
    initialize_parameters(config, 42, [&](int tensor, size_t offset, const float* from, size_t count) {
        std::copy_n(from, count, values[tensor].data() + offset);
    });
    for (const DrawnMatrix& matrix : drawn) {
        size_t count = matrix.tensor == WTE ? size_t(131 * 24) : parameter_layer_size(config, matrix.tensor);
        const float* start = values[matrix.tensor].data() + matrix.layer * count;
        double sum = 0, absolute = 0;
        for (size_t i = 0; i < count; i++) {
            sum += start[i];
            absolute += std::fabs(start[i]);
        }
        SCOPED_TRACE(format_string("%s of layer %d", parameter_info[matrix.tensor].name, matrix.layer));
        EXPECT_NEAR(start[0], matrix.first, 1e-7);
        EXPECT_NEAR(start[count - 1], matrix.last, 1e-7);
        EXPECT_NEAR(sum, matrix.sum, 1e-6);
        EXPECT_NEAR(absolute, matrix.absolute, 1e-6);
    }
    for (size_t i = 131 * 24; i < values[WTE].size(); i++) ASSERT_EQ(values[WTE][i], 0.0f);
    for (int i : {LN1W, LN2W, LNFW}) EXPECT_EQ(values[i], std::vector<float>(values[i].size(), 1.0f));
    for (int i : {LN1B, QKVB, ATTPROJB, LN2B, FCB, FCPROJB, LNFB})
        EXPECT_EQ(values[i], std::vector<float>(values[i].size(), 0.0f));
}
