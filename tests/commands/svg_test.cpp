#include "commands/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "base/check.h"

namespace q2 {
namespace {

TEST(Svg, TicksAreRoundNumbersWithinTheRange) {
    EXPECT_EQ(nice_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(nice_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
    EXPECT_EQ(nice_ticks(3, 803, 8), (std::vector<double>{100, 200, 300, 400, 500, 600, 700, 800}));
}

TEST(Svg, TicksOfAnyRangeAreFewAndSpread) {
    for (double lo = -3; lo < 3; lo += 0.37) {
        for (double span = 1e-6; span < 1e9; span *= 3.7) {
            const std::vector<double> ticks = nice_ticks(lo, lo + span, 6);
            EXPECT_GE(ticks.size(), 3u) << lo << " " << span;
            EXPECT_LE(ticks.size(), 12u) << lo << " " << span;
            EXPECT_GE(ticks.front(), lo - 1e-6 * span);
            EXPECT_LE(ticks.back(), lo + span * (1 + 1e-6));
        }
    }
}

int count(const std::string& text, const char* pattern) {
    const std::regex regex(pattern);
    return int(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

TEST(Svg, DrawsEverySeriesWithLegendAndLabels) {
    const std::string svg =
        svg_plot({{"Loss", "step", "nats", {{"one", {{0, 3}, {1, 2}}, 0}}},
                  {"Gap", "step", "nats", {{"two", {{0, 0.1}, {1, 0.2}}, 1, false, true}}}});
    EXPECT_EQ(count(svg, ">one</text>"), 1);
    EXPECT_EQ(count(svg, ">two</text>"), 1);
    EXPECT_EQ(count(svg, ">step</text>"), 2);
    EXPECT_EQ(count(svg, ">Gap</text>"), 1);
    EXPECT_EQ(count(svg, "<circle"), 3);  // two points, one in the legend
    EXPECT_EQ(count(svg, "nan|inf"), 0);
}

/// The y of a text or of the axis's bottom in panel coordinates.
double y_of(const std::string& svg, const std::string& pattern) {
    std::smatch match;
    return std::regex_search(svg, match, std::regex(pattern)) ? std::stod(match[1]) : -1;
}

TEST(Svg, ALongLegendStandsBelowThePlot) {
    PlotPanel panel{"Loss", "step", "nats", {}};
    for (int i = 0; i < 9; ++i) {
        const std::string svg = svg_plot({panel, panel});
        EXPECT_EQ(y_of(svg, "viewBox=\"0 0 840 ([0-9.]+)"), 680) << i;
        panel.series.push_back({concat("run", i), {{0, 3}, {1, 2}}, i});
    }
    const std::string svg = svg_plot({panel, panel});
    EXPECT_EQ(y_of(svg, "viewBox=\"0 0 840 ([0-9.]+)"), 2 * (340 + 9 * 17 + 8));
    EXPECT_GT(y_of(svg, "y=\"([0-9.]+)\"[^>]*>run0<"), y_of(svg, "y=\"([0-9.]+)\"[^>]*>step<"));
    EXPECT_LT(y_of(svg, "y=\"([0-9.]+)\"[^>]*>run8<"), 340 + 9 * 17 + 8);
}

TEST(Svg, EscapesWhatALabelMayHold) {
    const std::string svg = svg_plot({{"a<b&c\n", "", "", {{"<script>", {{0, 0}}, 0}}}});
    EXPECT_EQ(svg.find("<script>"), std::string::npos);
    EXPECT_NE(svg.find("a&lt;b&amp;c "), std::string::npos);
}

TEST(Svg, PointsThatAreNotFiniteInterruptTheLine) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::string svg =
        svg_plot({{"t", "", "", {{"", {{0, 1}, {1, 2}, {2, nan}, {3, INFINITY}, {4, 1}, {5, 2}}, 0}}}});
    EXPECT_EQ(count(svg, "nan|inf"), 0);
    EXPECT_EQ(count(svg, R"(d="M[^"]*L[^"]*M[^"]*L[^"]*" fill="none")"), 1) << svg;
}

TEST(Svg, DrawsConstantAndEmptySeries) {
    EXPECT_EQ(count(svg_plot({{"t", "", "", {{"", {{0, 2}, {1, 2}}, 0}}}}), "nan|inf"), 0);
    EXPECT_EQ(count(svg_plot({{"t", "", "", {{"", {}, 0}}}}), "nan|inf"), 0);
}

}  // namespace
}  // namespace q2
