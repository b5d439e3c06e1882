// Pictures of curves: llmc/run/svg_plot.h.
#include "llmc/run/svg_plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/contains.h"
#include "tests/svg_texts.h"

static Picture picture_of(size_t curves, const std::string& name = "run_") {
    Picture picture = {.description = "d", .x = {.title = "step"}};
    PlotPanel panel = {.y = {.title = "the title of a panel", .log = true}};
    for (size_t i = 0; i < curves; i++)
        panel.curves.push_back({name + std::to_string(i), {{1, 2 + i}, {9, 1 + i}}, line_style(i)});
    picture.panels = {panel};
    return picture;
}

TEST(SvgPlot, SixteenStylesDiffer) {
    std::set<std::pair<std::string, std::string>> styles;
    for (size_t i = 0; i < 16; i++) styles.insert({line_style(i).colour, line_style(i).dashes});
    EXPECT_EQ(styles.size(), 16u);
}

// Names short and long, Latin and Chinese, in any number: nothing overlaps or leaves the picture.
TEST(SvgPlot, TheLegendHasRoom) {
    for (const std::string name : {"r", "a_run_of_some_length_", "天地玄黃宇宙洪荒", "CAPITALS@WWW_"})
        for (size_t curves : {1, 2, 6, 9, 16, 40})
            for (double width : {600.0, 460.0}) {
                Picture picture = picture_of(curves, curves == 6 ? name + name + name + name + name : name);
                picture.width = width;
                const std::vector<SvgText> texts = texts_of(picture_file(picture));
                const SvgText title = text_named(texts, "the title of a panel");
                size_t entries = 0;
                for (const SvgText& text : texts) {
                    EXPECT_GE(text.left(), 0) << text.text;
                    EXPECT_LE(text.right(), width) << text.text;
                    EXPECT_EQ(std::count_if(texts.begin(), texts.end(),
                                            [&](const SvgText& other) { return text.overlaps(other); }),
                              1)
                        << text.text;  // itself
                    if (!text.text.starts_with(name)) continue;
                    entries++;
                    EXPECT_LT(text.y, title.y - 12) << text.text;
                }
                EXPECT_EQ(entries, curves);
            }
}

static bool has_no_place(const std::string& svg) {
    return svg.find("nan") < std::string::npos || svg.find("inf") < std::string::npos;
}

TEST(SvgPlot, WhatHasNoPlaceIsLeftOut) {
    Picture picture = picture_of(1);
    picture.x.log = true;
    picture.panels[0].curves[0].points = {{0, 1}, {-1, 1}, {10, 0}, {10, 3}, {NAN, 1}, {100, INFINITY}};
    picture.panels[0].levels = {{"none", 0, {}}, {"low", 1e-300, {}}, {"no level", NAN, {}}};
    picture.panels[0].rings = {{"best", 0, 1, "#000000"}};
    const std::string svg = picture_file(picture);
    EXPECT_TRUE(contains(svg, "class=\"curve\""));
    EXPECT_FALSE(has_no_place(svg)) << svg;
    for (const Series& points : {Series{}, Series{{5, 5}}, Series{{0, 0}}, Series{{1, -3}, {2, -1}}})
        for (bool log : {false, true}) {
            picture.panels[0] = {.y = {.title = "y", .log = log}, .curves = {{"a", points, {}}}};
            const std::string drawn = picture_file(picture);
            EXPECT_FALSE(has_no_place(drawn)) << drawn;
        }
}

// 4 on the right is where 2 is on the left, for either scale.
TEST(SvgPlot, TheRightAxisIsTheLeftOneTimesItsFactor) {
    for (bool log : {false, true}) {
        Picture picture = picture_of(1);
        picture.panels[0].y.log = log;
        picture.panels[0].curves[0].points = {{0, 1}, {1, 10}};
        picture.panels[0].right_title = "bits";
        picture.panels[0].right_factor = 2;
        const std::vector<SvgText> texts = texts_of(picture_file(picture));
        double left = NAN, right = NAN;
        for (const SvgText& text : texts) {
            if (text.text == "2" && text.x < 60) left = text.y;
            if (text.text == "4" && text.x > 540) right = text.y;
        }
        EXPECT_LT(std::fabs(left - right), 0.11) << log << texts.size();
        EXPECT_EQ(text_named(texts, "bits").y, text_named(texts, "the title of a panel").y);
    }
}

TEST(SvgPlot, AnElementTakesColoursFromItsPage) {
    Picture picture = picture_of(3, "<a & b>");
    picture.title = "a title";
    picture.table = {{"name", "x"}, {{"first", "1"}}, {line_style(0)}};
    const std::string element = picture_element(picture), file = picture_file(picture);
    for (const char* part : {"xmlns", "<style", "<rect", "a title", "first", "b&gt;0"}) {
        EXPECT_FALSE(contains(element, part));
        EXPECT_TRUE(contains(file, part));
    }
    for (const char* part : {"class=\"axis\"", "class=\"gridline\"", "class=\"curve\"", ">step<"})
        EXPECT_TRUE(contains(element, part));
    EXPECT_FALSE(contains(file, "<a &"));
}
