// The report's page in headless Chromium, at desktop and phone width, in light and dark mode: tables and
// plots are present, nothing but boxes that scroll is wider than the screen, and text has enough contrast.
// Skipped without Chromium, except on Debian with CI=1 (dev/setup.sh chromium), where that is a failure.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "llmc/base/file.h"
#include "tests/report_example.h"

using nlohmann::json;

// Shows the page in a frame of the window's width and writes properties of its layout to #seen.
static const char* const look = R"(<script>
const count = (d, what) => d.querySelectorAll(what).length;
const colour = (d, what, property) => d.defaultView.getComputedStyle(d.querySelector(what))[property];
onload = () => {
  const d = document.querySelector('iframe').contentDocument, root = d.documentElement;
  const sides = [...d.querySelectorAll('figure svg[role=img]')].map(e => e.getBoundingClientRect());
  const fonts = [...d.querySelectorAll('figure svg[role=img] text')]
    .map(e => e.getBoundingClientRect().height);
  document.querySelector('#seen').textContent = JSON.stringify({
    title: d.querySelector('h1').textContent == '<b>&"x' ? 1 : 0,
    width: root.clientWidth, scroll: root.scrollWidth, height: root.scrollHeight,
    tables: count(d, 'table'), rows: count(d, 'tbody tr'),
    plots: sides.length,
    curves: count(d, 'figure svg .curve'), alerts: count(d, '[role=alert]'),
    scrolled: [...d.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).length,
    least: Math.min(...sides.map(s => s.width)), most: Math.max(...sides.map(s => s.right)),
    letters: Math.min(...fonts),
    text: colour(d, 'body', 'color'), ground: colour(d, 'body', 'backgroundColor'),
    label: colour(d, 'figure svg text', 'fill'), card: colour(d, 'figure', 'backgroundColor'),
    axis: colour(d, 'figure svg .axis', 'stroke'),
    curve: [...d.querySelectorAll('figure svg .curve')].map(e => getComputedStyle(e).stroke),
    bad: colour(d, '.bad', 'color'), bad_card: colour(d, '.bad', 'backgroundColor')});
};
</script>)";

static bool is_debian() {
    std::ifstream system("/etc/os-release");
    for (std::string line; std::getline(system, line);)
        if (line == "ID=debian") return true;
    return false;
}

static std::string find_chromium() {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
        // Ubuntu's command of that name only explains how to install the snap
        const ProgramResult result = run_program({"sh", "-c", std::string(name) + " --version"});
        if (result.status == 0 && result.out.find("Chrom") != std::string::npos) return name;
    }
    return "";
}

// The values of Chromium's setting preferredColorScheme.
enum Scheme { DARK, LIGHT };

struct Browser : testing::Test {
    TemporaryFolder folder;
    std::string chromium = find_chromium(), page;

    void SetUp() override {
        const char* ci = getenv("CI");
        if (chromium.empty() && ci && *ci && is_debian()) FAIL() << "no Chromium: run dev/setup.sh chromium";
        if (chromium.empty()) GTEST_SKIP() << "no Chromium";
        write_whole_file(folder / "it.json", {nasty_report().dump()});
        expect_ok(run_program("report --page", folder / "it.json"));
        page = read_whole_file(folder / "it.html");
    }

    ProgramResult browse(int width, int height, Scheme scheme) {
        return run_program({"timeout", "200", chromium, "--headless", "--no-sandbox", "--disable-gpu",
                            "--disable-dev-shm-usage", "--user-data-dir=" + folder / "profile",
                            "--force-device-scale-factor=1",
                            "--blink-settings=preferredColorScheme=" + std::to_string(scheme),
                            "--window-size=" + std::to_string(width) + "," + std::to_string(height),
                            "--dump-dom", "file://" + folder / "frame.html"});
    }

    // Puts the page in a frame of this width.
    void write_frame(const std::string& html, int width, int height) {
        std::string source;
        for (char c : html) source += c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
        write_whole_file(folder / "frame.html",
                         {"<!DOCTYPE html><meta charset='utf-8'><body style='margin:0'>", look,
                          "<iframe style='border:0;display:block;width:", std::to_string(width),
                          "px;height:", std::to_string(height), "px' srcdoc=\"", source,
                          "\"></iframe><pre id='seen'></pre>"});
    }

    json look_at(const std::string& html, int width, Scheme scheme) {
        write_frame(html, width, 4000);
        const ProgramResult result = browse(width, 4200, scheme);
        std::smatch match;
        const std::regex seen("<pre id=\"seen\">(\\{.*\\})</pre>");
        const std::string tail =
            result.out.substr(result.out.size() - std::min<size_t>(3000, result.out.size()));
        if (!std::regex_search(tail, match, seen)) {
            ADD_FAILURE() << "status " << result.status << ": " << result.err << tail;
            return {};
        }
        return json::parse(match[1].str());
    }
};

// WCAG contrast ratio of two colours, "rgb(1, 2, 3)": 1 if they are equal, 21 for black on white.
static double contrast(const std::string& a, const std::string& b) {
    auto luminance = [](const std::string& text) {
        int red = 0, green = 0, blue = 0;
        EXPECT_EQ(sscanf(text.c_str(), "rgb(%d, %d, %d)", &red, &green, &blue), 3) << text;
        auto linear = [](int c) {
            return c <= 10 ? c / 255.0 / 12.92 : std::pow((c / 255.0 + 0.055) / 1.055, 2.4);
        };
        return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
    };
    const double x = luminance(a), y = luminance(b);
    return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST_F(Browser, ThePageFitsAndIsReadable) {
    for (const int width : {1200, 390})
        for (const Scheme scheme : {LIGHT, DARK}) {
            const json seen = look_at(page, width, scheme);
            ASSERT_FALSE(seen.is_null());
            EXPECT_EQ(seen["title"], 1);
            EXPECT_EQ(seen["width"], width);
            EXPECT_EQ(seen["scroll"], width) << "the page is wider than the screen";
            EXPECT_EQ(seen["tables"], 3 + 2);
            EXPECT_EQ(seen["rows"], 40 + 3 + 1 + 4);
            EXPECT_EQ(seen["plots"], 3);
            EXPECT_EQ(seen["curves"], 2 + 1 + 1);
            EXPECT_EQ(seen["alerts"], 1);
            EXPECT_EQ(seen["scrolled"], 1);  // the wide table, in its own box
            EXPECT_GT(seen["least"], 300);
            EXPECT_LE(seen["most"], width);
            EXPECT_GT(seen["letters"], 9);
            EXPECT_EQ(contrast(seen["ground"], "rgb(0, 0, 0)") > 10, scheme == LIGHT) << seen["ground"];
            EXPECT_GT(contrast(seen["text"], seen["ground"]), 7) << seen;
            EXPECT_GT(contrast(seen["label"], seen["card"]), 7) << seen;
            EXPECT_GT(contrast(seen["bad"], seen["bad_card"]), 4.5) << seen;
            EXPECT_GT(contrast(seen["axis"], seen["card"]), 3) << seen;
            for (const json& curve : seen["curve"]) EXPECT_GT(contrast(curve, seen["card"]), 3) << curve;
        }
    // the test detects an element that does not fit
    std::string wide = page;
    wide.insert(wide.find("</main>"), "<div style='width: 700px'>x</div>");
    EXPECT_GE(look_at(wide, 390, LIGHT)["scroll"], 700);
}
