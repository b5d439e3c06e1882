// Plots of metrics.csv and of llm.c's main.log, for one run and for several: llmc/run/loss_plot.h and
// train_gpt2 --plot.
#include "llmc/run/loss_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <set>

#include "llmc/base/file.h"
#include "llmc/run/log.h"
#include "tests/run_program.h"
#include "tests/svg_texts.h"

static const std::string program = BINARY_DIR "/train_gpt2";

static void write_run(const std::string& folder) {
    MainLog log;
    log.open(folder, -1);
    for (int step = 0; step < 30; step++) {
        if (step % 10 == 0) log.log_val(step, 3 - 0.05f * float(step));
        log.log_train(step, {3 - 0.05f * float(step), 1e-3f, step == 3 ? NAN : 1.0f, 1000});
    }
}

static std::ptrdiff_t count(const std::string& text, const std::string& pattern) {
    const std::regex regex(pattern);
    return std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator());
}

// Heights in the picture of the labels beside an axis.
static std::vector<double> heights_of_ticks(const std::string& svg) {
    const std::regex label("<text x=\"51.0\" y=\"([0-9.]+)\" text-anchor=\"end\">");
    std::vector<double> heights;
    for (std::sregex_iterator at(svg.begin(), svg.end(), label), end; at != end; ++at)
        heights.push_back(std::stod((*at)[1]));
    return heights;
}

using Plot = InFolder;

TEST_F(Plot, DrawsOneRunAndSeveral) {
    write_run(folder / "a_1");
    write_run(folder / "it's b");
    std::filesystem::remove(folder / "it's b/metrics.csv");
    const std::string one = output_of(run_program("train_gpt2 --plot", folder / "a_1"));
    EXPECT_EQ(one, "plot: " + folder / "a_1/loss.svg" + "\n");
    const std::string svg = read_whole_file(folder / "a_1/loss.svg");
    for (const char* text : {"loss (nats per token)", "learning rate", "gradient norm", "tokens per second",
                             "validation", "best 2 at step 20"})
        EXPECT_TRUE(contains(svg, text));
    EXPECT_FALSE(contains(svg, "corpus entropy"));
    const std::string two = output_of(run_program("train_gpt2 --plot", folder / "a_1", folder / "it's b/"));
    const std::string both = read_whole_file(folder / "comparison.svg");
    EXPECT_TRUE(contains(both, ">it&#39;s b<"));
    EXPECT_EQ(read_whole_file(folder / "a_1/loss.svg"), svg);
    // a pattern also matches the picture
    const ProgramResult again =
        run_program("train_gpt2 --plot", folder / "a_1", folder / "comparison.svg", folder / "it's b/");
    EXPECT_EQ(again.out, two) << again.err;
    const ProgramResult none = run_program("train_gpt2 --plot", folder / "comparison.svg");
    EXPECT_TRUE(contains(none.err, "--plot: name the folders of runs"));
}

TEST_F(Plot, OverTokensAndSeconds) {
    write_whole_file(folder / "metrics.csv",
                     {"step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag,"
                      "seconds,tokens\n0,4,0.1,1,100,,,,1.5,64\n1,3,0.1,1,100,,2.5,,2.5,128\n"});
    const std::string run = folder.path;
    EXPECT_EQ(read_series(run, PlotOver::tokens).training, (Series{{64, 4}, {128, 3}}));
    EXPECT_EQ(read_series(run, PlotOver::seconds).validation, (Series{{2.5, 2.5}}));
    expect_ok(run_program("train_gpt2 --plot", run, "--plot-over seconds"));
    EXPECT_TRUE(contains(read_whole_file(folder / "loss_over_seconds.svg"), ">seconds<"));
    std::filesystem::remove(folder / "metrics.csv");
    write_whole_file(folder / "main.log", {"s:0 trl:4.0 lr:0.1 norm:1.0\n"});
    EXPECT_EQ(run_program("train_gpt2 --plot", run, "--plot-over tokens").status, 1);
}

// Folders that have no name of their own.
TEST_F(Plot, OfTheFoldersAbove) {
    std::filesystem::create_directory(folder / "run");
    std::filesystem::create_directory(folder / "run/below");
    write_run(folder / "run");
    const std::string drawn =
        output_of(run_program({"env", "-C", folder / "run/below", program, "--plot", ".."}));
    EXPECT_TRUE(std::filesystem::exists(folder / "run/loss.svg")) << drawn;
    EXPECT_FALSE(std::filesystem::exists(folder / "run/below/loss.svg"));
}

// Training and validation differ in colour, and validation is drawn last.
TEST_F(Plot, ValidationIsAboveTraining) {
    write_run(folder / "a");
    const std::string svg = draw_runs({read_series(folder / "a")}, 1.25);
    const std::regex curve("<path d=\"M[^\"]*\" stroke=\"(#[0-9A-F]{6})\" stroke-width=\"2\"");
    Words colours;
    for (std::sregex_iterator at(svg.begin(), svg.end(), curve), end; at != end; ++at)
        colours.push_back((*at)[1]);
    EXPECT_EQ(colours, (Words{"#666666", "#0072B2", "#D55E00"}));
    EXPECT_TRUE(contains(svg, "corpus entropy"));
}

// A foreign file can say anything of the data.
TEST_F(Plot, AnEntropyThatNoTextHasIsNotDrawn) {
    write_run(folder / "a");
    write_whole_file(folder / "a/options.toml", {"val-data = '", folder / "a/x_val.bin", "'\n"});
    write_whole_file(folder / "a/x_val.bin", {""});
    for (const char* number : {"1e308", "1e-320", "-1", "0", "true", "\"1\""}) {
        write_whole_file(folder / "a/x.json", {std::string("{\"val_nats_per_token\": ") + number + "}"});
        EXPECT_EQ(corpus_entropy(folder / "a"), std::nullopt) << number;
    }
    write_whole_file(folder / "a/x.json", {"{\"val_nats_per_token\": 1.25}"});
    EXPECT_EQ(corpus_entropy(folder / "a"), 1.25);
}

// Only the lowest panel has labels at its steps, and labels beside an axis do not overlap.
TEST_F(Plot, TicksFit) {
    for (double last : {0.2, 2.0, 2.9, 9.0})
        for (double scale : {1e-3, 1.0, 7e4}) {
            RunSeries run;
            for (int step = 0; step < 1000; step++)
                run.training.push_back({step, scale * (3 + (last - 3) * step / 999)});
            run.rate = run.norm = run.speed = run.training;
            const std::string svg = draw_runs({run}, std::nullopt);
            EXPECT_EQ(count(svg, "text-anchor=\"middle\">800<"), 1) << svg;
            std::vector<double> heights = heights_of_ticks(svg);
            std::sort(heights.begin(), heights.end());
            EXPECT_GE(heights.size(), 10u);
            for (size_t i = 1; i < heights.size(); i++) EXPECT_GE(heights[i] - heights[i - 1], 14);
        }
}

// The best step's label stays inside the picture, wherever it is; a long run makes no large file.
TEST_F(Plot, ALongRunStaysSmall) {
    RunSeries run;
    for (int step = 0; step < 100000; step++) run.training.push_back({step, 2 + step % 7});
    for (int step : {0, 100000}) run.validation.push_back({step, 3 - 1e-5 * step});
    run.rate = run.norm = run.speed = run.training;
    const std::string svg = draw_runs({run}, std::nullopt);
    EXPECT_LT(svg.size(), 120000u);
    EXPECT_LT(text_named(texts_of(svg), "best 2 at step 100000").right(), 600);
}

// Lines damaged by a crash or an editor are skipped.
TEST_F(Plot, DamagedLinesAreSkipped) {
    write_run(folder / "a");
    write_run(folder / "b");
    std::filesystem::remove(folder / "b/metrics.csv");
    const RunSeries a = read_series(folder / "a"), b = read_series(folder / "b");
    EXPECT_EQ(a.training.size(), 30u);
    EXPECT_EQ(b.validation.size(), 3u);
    const std::string damaged = std::string(64, '\0') +
                                "\n\xff\xfe,1\n,,,\nx,1,1,1,1,,1,\n31,1e,1.2.3,-,+,,0x,\n" +
                                "s:x trl:1\ns:31 trl:. lr:1.2.3 norm:-\ns:32 tel:--1\n:\n33,";
    for (const char* name : {"a/metrics.csv", "b/main.log"})
        std::ofstream(folder / name, std::ios::app) << damaged;
    EXPECT_EQ(read_series(folder / "a").training, a.training);
    EXPECT_EQ(read_series(folder / "b").training, b.training);
    EXPECT_EQ(read_series(folder / "b").validation, b.validation);
    std::ofstream(folder / "a/metrics.csv") << damaged;
    const ProgramResult none = run_program("train_gpt2 --plot", folder / "a");
    EXPECT_EQ(none.status, 1);
    EXPECT_EQ(none.err, "train_gpt2: the logs in " + folder / "a" + " contain no losses\n");
}

TEST_F(Plot, NamesAreTheShortestThatDiffer) {
    using Names = Words;
    EXPECT_EQ(distinct_names({"seed1/run", "seed2/run/"}), (Names{"seed1/run", "seed2/run"}));
    EXPECT_EQ(distinct_names({"a/b", "a/c", "/x/a/b"}), (Names{"a/b", "c", "x/a/b"}));
    EXPECT_EQ(distinct_names({"a/x/y", "b/x/y", "x/y", "y"}), (Names{"a/x/y", "b/x/y", "x/y", "y"}));
    EXPECT_EQ(distinct_names({"a", "b", "./a"}), (Names{"a (1)", "b", "a (3)"}));
    EXPECT_EQ(distinct_names({"a", "a", "b/a (2)"}), (Names{"a (1)", "a (3)", "a (2)"}));
#ifndef _WIN32  // where a backslash separates folders
    EXPECT_EQ(distinct_names({"x/a\x01", "y/a\\x01"}), (Names{"x/a\\x01", "y/a\\x01"}));
    EXPECT_EQ(distinct_names({"a\x01", "a\\x01"}), (Names{"a\\x01 (1)", "a\\x01 (2)"}));
#endif
    EXPECT_EQ(distinct_names({"runs/one"}), Names{"one"});
    EXPECT_EQ(distinct_names({"runs/a", "/runs/a"}), (Names{"runs/a", "/runs/a"}));
}

// A folder with the log of a run of six validations; bits: per byte of a loss of 1, or 0.
static std::string run_of_five_steps(const TemporaryFolder& folder, const std::string& name, double bits) {
    MainLog log;
    log.open(folder / name, -1);
    for (int step = 0; step <= 5; step++) {
        const float loss = float(5.0 / (step + 1) + 1);
        log.log_val(step, loss, bits > 0 ? bits * loss : NAN);
        if (step < 5) log.log_train(step, {loss + 0.25f, 1e-3f, 1.0f, 1000});
    }
    return folder / name;
}

TEST_F(Plot, ManyRunsSideBySide) {
    for (int runs : {2, 6, 9, 16}) {
        Words words = {program, "--plot"};
        for (int i = 0; i < runs; i++)
            words.push_back(run_of_five_steps(folder, "seed" + std::to_string(i) + "/run", 0.5));
        const std::string drawn = output_of(run_program(words));
        EXPECT_EQ(count(drawn, "seed[0-9]+/run +1[.]8333 +0[.]9167 +5 +[0-9.]+\n"), runs) << drawn;
        const std::string svg = read_whole_file(folder / "seed0/comparison.svg");
        const std::vector<SvgText> texts = texts_of(svg);
        for (const SvgText& text : texts) {
            EXPECT_TRUE(text.left() >= 0 && text.right() <= 600) << text.text;
            for (const SvgText& other : texts)
                EXPECT_TRUE(&text == &other || !text.overlaps(other)) << text.text << " " << other.text;
        }
        EXPECT_EQ(count(svg, ">seed[0-9]+/run<"), 2 * runs);  // the legend and the table
        EXPECT_EQ(count(svg, ">0[.]9167<"), runs);
        const std::regex sample("stroke=\"#[0-9A-F]{6}\" stroke-width=\"3\"[^/]*/");
        std::set<std::string> styles;
        for (std::sregex_iterator at(svg.begin(), svg.end(), sample), end; at != end; ++at)
            styles.insert(at->str());
        EXPECT_EQ(styles.size(), size_t(runs));
    }
}

// Whatever a damaged log says: what is drawn is a picture of numbers, and stays inside it.
TEST_F(Plot, ExtremeValuesStayInThePicture) {
    const char* numbers[] = {"1e29", "-1e29", "1e-29", "0", "nan", "3"};
    std::vector<RunSeries> runs;
    for (const std::string loss : numbers)
        for (const std::string bits : numbers) {
            const std::string line = "," + loss + ",1,1,,,1," + loss + "," + bits + "\n";
            runs = {
                parse_series("step\n0,3,1,1,1,," + loss + ",," + bits + ",1," + bits + "\n1" + line, true),
                parse_series("step\n0,,,,,,2,,3,4,1\n1,,,,,," + bits + ",," + loss + ",5," + loss, true)};
            for (const auto& some : {std::vector{runs[0]}, std::vector{runs[1]}, runs}) {
                const std::string svg = draw_runs(some, std::nullopt);
                EXPECT_EQ(count(svg, "nan|inf"), 0) << svg;
                for (const SvgText& text : texts_of(svg))
                    EXPECT_TRUE(text.left() >= -30 && text.right() <= 630) << text.text;  // ticks
            }
        }
}

// The text is above the curves' panel; only a ring marks the step.
TEST_F(Plot, TheBestLossOfAShortRunIsNotOnItsCurve) {
    const std::string svg = draw_runs({read_series(run_of_five_steps(folder, "a", 0.5))}, std::nullopt);
    const std::vector<SvgText> texts = texts_of(svg);
    EXPECT_LT(text_named(texts, "best 1.833 at step 5 (0.9167 bits per byte)").y,
              text_named(texts, "loss (nats per token)").y - 10);
    EXPECT_EQ(text_named(texts, "bits per byte").y, text_named(texts, "loss (nats per token)").y);
    EXPECT_EQ(count(svg, "<circle[^>]*r=\"5.5\""), 2);
}

TEST_F(Plot, UnlikeTokenizersCompareInBitsPerByte) {
    const std::string a = run_of_five_steps(folder, "a", 0.5), b = run_of_five_steps(folder, "b", 1.25),
                      c = run_of_five_steps(folder, "c", 0.5), d = run_of_five_steps(folder, "d", 0);
    const auto titles = [&](const Words& runs) {
        std::vector<RunSeries> series;
        for (const std::string& run : runs) series.push_back(read_series(run));
        const std::string svg = draw_runs(series, std::nullopt);
        return std::pair(count(svg, ">loss .bits per byte.<"),
                         count(svg, " font-weight=\"bold\" .*>bits per"));
    };
    using Counts = std::pair<std::ptrdiff_t, std::ptrdiff_t>;
    EXPECT_EQ(titles({a, b}), (Counts{1, 0}));  // in bits per byte
    EXPECT_EQ(count(draw_runs({read_series(a), read_series(b)}, std::nullopt), ">7<"), 1);  // 6 * 1.25 = 7.5
    EXPECT_NE(titles({a, c}), (Counts{1, 0}));  // in nats, with an axis on the right
    EXPECT_EQ(count(draw_runs({read_series(a), read_series(d)}, std::nullopt), ">loss .nats per token"), 1);
    const ProgramResult mixed = run_program("train_gpt2 --plot", a, d);
    EXPECT_EQ(count(mixed.out, "note: the bits per byte of d are unknown"), 1) << mixed.out;
    EXPECT_EQ(count(run_program("train_gpt2 --plot", d, d).out, "note"), 0);
}

TEST_F(Plot, PatternsNameRuns) {
    for (const char* name : {"r1", "r2", "other"}) write_run(folder / name);
    const std::string out = output_of(run_program("train_gpt2 --plot", folder / "r*"));
    EXPECT_TRUE(contains(out, "r1") && contains(out, "r2") && !contains(out, "other")) << out;
    EXPECT_TRUE(file_exists(folder / "comparison.svg"));
}

TEST_F(Plot, ReplacesOnlyItsOwnPicture) {
    write_run(folder / "a");
    write_whole_file(folder / "a/loss.svg", {"<svg>mine</svg>"});
    expect_refusal(run_program("train_gpt2 --plot", folder / "a"));
    EXPECT_EQ(read_whole_file(folder / "a/loss.svg"), "<svg>mine</svg>");
    expect_refusal(run_program("train_gpt2 --plot", folder / "missing"), "no metrics.csv or main.log");
}
