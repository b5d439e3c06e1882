// The validation part of a text: drawn from all of it, of the right size, and never trained on.
#include "llmc/data/validation_draw.h"

#include <gtest/gtest.h>

#include <set>

#include "llmc/base/utf8.h"
#include "tests/contains.h"

using Parts = std::vector<std::string>;

// The parts for training and for validation. The text comes in chunks, as blocks of a file do.
struct Drawn {
    Parts train = {}, val = {};
    uint64_t repeats = 0;

    static std::string join(const Parts& parts) {
        std::string all;
        for (const std::string& part : parts) all += part;
        return all;
    }
};

static Drawn draw(const Parts& documents, const DrawOptions& options, size_t chunk = 1000) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    std::vector<uint16_t> tokens;
    for (const std::string& document : documents) {
        tokens.push_back(256);
        tokenizer.encode(document, tokens);
    }
    Drawn drawn;
    ValidationDraw draw(tokenizer, options, [&](bool validates, std::span<const uint16_t> part) {
        Parts& to = validates ? drawn.val : drawn.train;
        for (const uint16_t token : part)
            if (token == 256)
                to.emplace_back();
            else
                to.back() += char(token);
    });
    for (size_t i = 0; i < tokens.size(); i += chunk)
        draw.add(std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i)));
    draw.finish();
    drawn.repeats = draw.repeats;
    return drawn;
}

static Parts numbered(int count, const std::string& words) {
    Parts documents;
    for (int i = 0; i < count; i++) documents.push_back(words + std::to_string(i) + "\n\n");
    return documents;
}

static std::string lines(int count) {
    std::string text;
    for (int i = 0; i < count; i++) text += "this is line " + std::to_string(i) + " of one long text\n";
    return text;
}

TEST(ValidationDraw, WholeDocumentsFromEverywhere) {
    for (const double fraction : {0.01, 0.05, 0.2, 0.5}) {
        const Parts documents = numbered(4000, "document ");
        const Drawn drawn = draw(documents, {.fraction = fraction, .block_tokens = 64});
        EXPECT_NEAR(double(drawn.val.size()), 4000 * fraction, 2);
        Parts all = drawn.val;
        all.insert(all.end(), drawn.train.begin(), drawn.train.end());
        EXPECT_EQ(std::multiset(all.begin(), all.end()), std::multiset(documents.begin(), documents.end()));
        int quarters[4] = {};
        for (const std::string& part : drawn.val) quarters[atoi(part.c_str() + 9) / 1000]++;
        for (const int quarter : quarters) EXPECT_NEAR(quarter, 1000 * fraction, 4 + 20 * fraction);
    }
}

// A short text has blocks enough for its fraction, whether its size is known or not.
TEST(ValidationDraw, AShortTextHasItsFraction) {
    const std::string text = lines(1500);
    for (const double fraction : {0.05, 0.1, 0.2})
        for (const double tokens : {double(text.size()), 0.0}) {
            const Drawn drawn = draw({text}, {.fraction = fraction, .text_tokens = tokens});
            const double val = double(Drawn::join(drawn.val).size()) / double(text.size());
            EXPECT_NEAR(val, fraction, 0.1 * fraction) << tokens;
        }
}

// Long and short documents have the same chance, and the tokens add up.
TEST(ValidationDraw, LengthsDoNotMatter) {
    Parts documents;
    for (int i = 0; i < 4000; i++)
        documents.push_back(std::to_string(i) + std::string(i % 7 == 0 ? 900 : 300, 'x'));
    size_t all = 0, val = 0, is_long = 0;
    for (const std::string& document : documents) all += document.size();
    const Drawn drawn = draw(documents, {.fraction = 0.1, .block_tokens = 1024});
    for (const std::string& part : drawn.val) {
        val += part.size();
        is_long += part.size() > 600;
    }
    EXPECT_NEAR(double(val), 0.1 * double(all), 2000);
    EXPECT_NEAR(double(is_long) / double(drawn.val.size()), 1 / 7., 0.04);
}

TEST(ValidationDraw, BlocksOfALongDocumentEndWithLines) {
    const std::string text = lines(5000);
    const Drawn drawn = draw({text}, {.fraction = 0.1, .block_tokens = 700});
    EXPECT_GE(drawn.val.size(), 15u);
    EXPECT_EQ(Drawn::join(drawn.val).size() + Drawn::join(drawn.train).size(), text.size());
    EXPECT_NEAR(double(Drawn::join(drawn.val).size()), 0.1 * double(text.size()), 1000);
    std::set<std::string> seen;
    for (const Parts& parts : {drawn.val, drawn.train})
        for (const std::string& part : parts) {
            EXPECT_TRUE(part.starts_with("this is line ") && part.ends_with('\n')) << part;
            for (size_t at = 0; at < part.size(); at = part.find('\n', at) + 1)
                EXPECT_TRUE(seen.insert(part.substr(at, part.find('\n', at) - at)).second);
        }
}

// Japanese has neither spaces nor, here, lines.
TEST(ValidationDraw, BlocksDoNotEndWithinACharacter) {
    std::string text;
    while (text.size() < 60000)
        text += "\xe5\xa4\xa9\xe5\x9c\xb0\xf0\x9f\x98\x80\xc3\xa4" + std::to_string(text.size());
    const Drawn drawn = draw({text}, {.fraction = 0.2, .block_tokens = 101});
    ASSERT_GE(drawn.val.size(), 15u);
    for (const Parts& parts : {drawn.val, drawn.train})
        for (const std::string& part : parts) EXPECT_EQ(find_not_utf8(part), std::string::npos) << part;
}

// A document that occurs again, or a copy of a whole file, is not in both; nor are words that end otherwise.
TEST(ValidationDraw, RepeatsAreNeverInBoth) {
    Parts documents = numbered(300, "a document that has some more words ");
    documents.push_back(lines(3000));
    const Parts once = documents;
    documents.insert(documents.end(), once.begin(), once.end());
    for (std::string& document : documents)
        if (&document >= &documents[once.size()]) document += "\n";
    const Drawn drawn = draw(documents, {.fraction = 0.1, .block_tokens = 500});
    const auto stripped = [](std::string text) { return text.erase(text.find_last_not_of('\n') + 1); };
    std::set<std::string> train;
    const std::string all = Drawn::join(drawn.train);
    ASSERT_GE(drawn.val.size(), 20u);
    EXPECT_GE(drawn.repeats, 20u);
    for (const std::string& part : drawn.val) EXPECT_FALSE(contains(all, stripped(part) + "\n")) << part;
}

// The repeats of a separator would be left out of training.
TEST(ValidationDraw, FarShorterDocumentsAreNotDrawn) {
    Parts documents;
    for (int i = 0; i < 2000; i++)
        documents.push_back(i % 2 ? "***\n"
                                  : "the long text of a chapter, number " + std::to_string(1000 + i));
    const Drawn drawn = draw(documents, {.fraction = 0.1, .block_tokens = 64});
    EXPECT_EQ(std::count(drawn.train.begin(), drawn.train.end(), "***\n"), 1000);
    EXPECT_GT(drawn.val.size(), 90u);
}

TEST(ValidationDraw, DependsOnTheSeedAlone) {
    Parts documents = numbered(500, "document ");
    documents.push_back(lines(500));
    const DrawOptions options = {.fraction = 0.1, .block_tokens = 100, .seed = 7};
    const Drawn drawn = draw(documents, options);
    for (const size_t chunk : {1u, 3u, 100u, 1000000u}) {
        EXPECT_EQ(draw(documents, options, chunk).val, drawn.val);
        EXPECT_EQ(draw(documents, options, chunk).train, drawn.train);
    }
    DrawOptions other = options;
    other.seed = 8;
    EXPECT_NE(draw(documents, other).val, drawn.val);
}
