#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/report/binade_chart.h"
#include "mantissa/report/heat_map.h"
#include "mantissa/report/interval_chart.h"
#include "mantissa/report/line_chart.h"
#include "mantissa/report/number_text.h"
#include "report/well_formed.h"

namespace mantissa::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

TEST(Axis, CoversItsValuesAndClampsOthers) {
  const Axis axis(Spacing::linear, {3, kNan, 7.2, -kInf});
  for (const double v : {3.0, 5.0, 7.2}) {
    ASSERT_TRUE(axis.at(v)) << v;
    EXPECT_GE(*axis.at(v), 0) << v;
    EXPECT_LE(*axis.at(v), 1) << v;
  }
  EXPECT_EQ(axis.at(-1e300), 0);
  EXPECT_EQ(axis.at(1e300), 1);
  EXPECT_EQ(axis.at(kNan), std::nullopt);
  EXPECT_EQ(axis.at(kInf), std::nullopt);
}

TEST(Axis, PutsZeroAtTheLowerEndOfALogarithm) {
  for (const Spacing spacing : {Spacing::log2, Spacing::log10}) {
    const Axis axis(spacing, {0, 1e-3, 10, -5});
    EXPECT_EQ(axis.at(0), 0);
    EXPECT_EQ(axis.at(-5), std::nullopt);
    EXPECT_LT(*axis.at(1e-3), *axis.at(1));
    EXPECT_LT(*axis.at(1), *axis.at(10));
  }
}

TEST(Axis, PutsASingleValueInTheMiddle) {
  EXPECT_NEAR(*Axis(Spacing::linear, {4}, false).at(4), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(*Axis(Spacing::linear, {0}, false).at(0), 0.5);
  EXPECT_DOUBLE_EQ(*Axis(Spacing::log2, {65536}).at(65536), 0.5);
}

TEST(Axis, OfConstantZerosHasReadableNumbers) {
  const std::vector<Tick> ticks = Axis(Spacing::linear, {0, 0, 0}).ticks(5);
  ASSERT_GE(ticks.size(), 2U);
  EXPECT_EQ(ticks.front().html, "−1");
  EXPECT_EQ(ticks.back().html, "1");
}

TEST(Axis, KeepsToTheBoundsOfItsValues) {
  const Bounds share{0, 1};
  for (const auto& values : {std::vector<double>{1, 1}, {0, 0}, {0.97, 1}, {0, 0.01}, {0.3, 0.35}}) {
    const Axis axis(Spacing::linear, values, true, share);
    const std::vector<Tick> ticks = axis.ticks(5);
    ASSERT_GE(ticks.size(), 2U);
    for (const Tick& t : ticks) {
      EXPECT_NE(t.html, "1.1");
      EXPECT_FALSE(t.html.starts_with("−")) << t.html;
    }
    for (const double v : values) EXPECT_TRUE(axis.at(v));
  }
  EXPECT_EQ(Axis(Spacing::linear, {1, 1}, true, share).at(1), 1);
  EXPECT_EQ(Axis(Spacing::linear, {0, 0}, true, share).at(0), 0);
}

TEST(Axis, HasFewTicksInAscendingOrder) {
  for (const Spacing spacing : {Spacing::linear, Spacing::log2, Spacing::log10})
    for (const auto& values : {std::vector<double>{},
                               {1e-30, 1e30},
                               {2, 3},
                               {65536, 256},
                               {-1e308, 1e308},
                               {1e16, 1e16 + 2},
                               {0, 5e-324},
                               {9.98, 10.01},
                               {0, 0}}) {
      const std::vector<Tick> ticks = Axis(spacing, values).ticks(5);
      EXPECT_LE(ticks.size(), 9U);
      for (std::size_t i = 0; i < ticks.size(); ++i) {
        EXPECT_GE(ticks[i].at, i == 0 ? 0 : ticks[i - 1].at);
        EXPECT_LE(ticks[i].at, 1);
      }
    }
}

LineChart some_chart() {
  return {
      .label = "loss",
      .y_name = "loss",
      .series =
          {{.name = "a", .x = {1, 2, 3, 4, 5, 6}, .y = {3, 2, kNan, 5, kInf, 1}, .lower = {}, .upper = {}},
           {.name = "b",
            .x = {1, 2, 3, 4, 5, 6},
            .y = {3, 3, 3, 3, 3, 3},
            .lower = {2, 2, kNan, 2, 2, 2},
            .upper = {4, 4, 4, 4, 4, 40}}},
      .marks = {{3, "skipped: <overflow>"}},
      .marks_name = "skipped step"};
}

TEST(LineChart, PointsAreInsideTheBox) {
  const std::string html = to_html(some_chart());
  EXPECT_EQ(test::fault_of(html), "");
  for (const std::string& d : test::attributes_of(html, "d"))
    for (const double v : test::numbers_of(d)) {
      EXPECT_GE(v, 0) << d;
      EXPECT_LE(v, 1000) << d;
    }
}

TEST(LineChart, BreaksTheLineAtValuesThatAreNotFinite) {
  const std::string html = to_html(some_chart());
  const std::size_t at = html.find("class=\"line s0\"");
  ASSERT_NE(at, std::string::npos);
  const std::string path = test::attributes_of(html.substr(at), "d").front();
  EXPECT_EQ(std::ranges::count(path, 'M'), 3) << path;  // 1–2, 4, 6
  EXPECT_EQ(std::ranges::count(path, 'h'), 2) << path << ": single points are dots";
  EXPECT_NE(html.find("not finite"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(LineChart, KeepsThePeaksOfALongSeries) {
  Series series{.name = "a", .x = {}, .y = {}};
  for (int i = 0; i < 100'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 54'321 ? 100 : 1 + i % 2);
  }
  const std::string html = to_html(LineChart{.label = "l", .y_name = "y", .series = {series}});
  EXPECT_LT(html.size(), 40'000U);
  EXPECT_NE(html.find("L543.2 0"), std::string::npos);
}

TEST(IntervalChart, DrawsValuesAndIntervalsAroundZero) {
  const IntervalChart chart{.label = "l<",
                            .heading = "gap & more",
                            .reading = "",
                            .rows = {{"a<b", 0.5, 0.25, Status::warning, "+0.5"},
                                     {"b", -0.1, {}, Status::good, "-0.1"},
                                     {"c", kNan, 1, Status::bad, "?"},
                                     {"d", 0.2, kInf, Status::unknown, "+0.2"}}};
  const std::string html = to_html(chart);
  EXPECT_EQ(test::fault_of(html), "");
  EXPECT_EQ(html.find(">c<"), std::string::npos) << "no place";
  EXPECT_NE(html.find("<li class=\"warn\"><span class=\"who\">a&lt;b</span>"), std::string::npos);
  for (const std::string& d : test::attributes_of(html, "d"))
    for (const double v : test::numbers_of(d)) {
      EXPECT_GE(v, 0) << d;
      EXPECT_LE(v, 1000) << d;
    }
  EXPECT_EQ(test::fault_of(to_html(IntervalChart{})), "");
}

TEST(LineChart, IsWellFormedWithoutAnyValue) {
  for (const std::vector<double>& y : {std::vector<double>{}, {kNan, kNan}, {-1, -2}})
    for (const Spacing spacing : {Spacing::linear, Spacing::log2, Spacing::log10}) {
      const LineChart chart{
          .label = "l", .y_name = "y", .spacing = spacing, .series = {{.name = "", .x = {1, 2}, .y = y}}};
      EXPECT_EQ(test::fault_of(to_html(chart)), "");
    }
}

const ColorScale kShares{"share", {0.01, 0.1}, false, share_text};
const ColorScale kSigned{"bias", {0.1, 0.5}, true, share_text};

TEST(ColorScale, HasAClassForZeroAndForEachBound) {
  EXPECT_EQ(kShares.class_of(0), 0);
  EXPECT_EQ(kShares.class_of(1e-300), 1);
  EXPECT_EQ(kShares.class_of(0.01), 2);
  EXPECT_EQ(kShares.class_of(kInf), 3);
  EXPECT_EQ(kSigned.class_of(-0.05), 0);
  EXPECT_EQ(kSigned.class_of(-0.1), -1);
  EXPECT_EQ(kSigned.class_of(0.7), 2);
}

// The colours of the signed scale: its warm end is p4, its blue end n4. Both differ in lightness from the
// middle.
TEST(ColorScale, OfGoodHighValuesGoesFromWarmToBlue) {
  const ColorScale right{"right", {0.25, 0.5, 0.75, 1}, false, share_text, true};
  const auto colour_of = [&](double value) { return right.css_of(right.class_of(value)); };
  EXPECT_EQ(colour_of(0), "p4");
  EXPECT_EQ(colour_of(0.1), "p3");
  EXPECT_EQ(colour_of(0.25), "p1");
  EXPECT_EQ(colour_of(0.5), "n1");
  EXPECT_EQ(colour_of(0.75), "n3");
  EXPECT_EQ(colour_of(1), "n4");
  const std::string legend = legend_html(right);
  for (const char* css : {"p4", "p3", "p1", "n1", "n3", "n4"})
    EXPECT_NE(legend.find(std::string("<i class=\"") + css + "\">"), std::string::npos) << legend;
  EXPECT_EQ(kShares.css_of(1), "c1");
}

TEST(HeatMap, JoinsNeighboursOfEqualClassAndLeavesHoles) {
  HeatMap map{.label = "m", .row_name = "layer", .columns = {"1", "2", "3", "4", "5"}, .rows = {}};
  map.rows.push_back({"0", "a<b", {0.02, 0.03, kNan, 0.03, 0.5}});
  const std::string html = to_html(map, kShares) + legend_html(kShares, true) + legend_html(kSigned);
  EXPECT_EQ(test::fault_of(html), "");
  EXPECT_EQ(test::attributes_of(html, "d"),
            (std::vector<std::string>{"M0 0h2v9h-2z", "M3 0h1v9h-1z", "M4 0h1v9h-1z"}));
  EXPECT_NE(html.find("a&lt;b\nstep 1–2: 2\u202f% to 3\u202f%"), std::string::npos);
  EXPECT_EQ(marks_of(map, kShares), 3U);
  EXPECT_TRUE(has_missing(map));
}

TEST(HeatMap, LabelsEachOfAFewColumns) {
  HeatMap map{.label = "m", .row_name = "", .columns = {"256", "512", "1024", "2048", "16384"}, .rows = {}};
  map.columns.insert(map.columns.end(), {"32768", "65536"});
  map.rows.push_back({"50 %", "", std::vector<double>(map.columns.size(), 1.0)});
  const std::string html = to_html(map, {.name = "", .bounds = {1}, .text = number_text});
  for (const std::string& column : map.columns)
    EXPECT_NE(html.find("%\">" + column + "</span>"), std::string::npos) << column << html;
}

TEST(HeatMap, JoinsColumnsByTheLargestMagnitude) {
  HeatMap map{.label = "m", .row_name = "", .columns = {"1", "2", "3", "4", "5"}, .rows = {}};
  map.rows.push_back({"", "", {0.1, -0.7, kNan, kNan, 0.2}});
  join_columns(map, 3);
  EXPECT_EQ(map.columns, (std::vector<std::string>{"1–2", "3–4", "5"}));
  EXPECT_EQ(map.rows[0].values[0], -0.7);
  EXPECT_TRUE(std::isnan(map.rows[0].values[1]));
  join_columns(map, 2);
  EXPECT_EQ(map.columns, (std::vector<std::string>{"1–4", "5"}));
}

// The labels of a map with `layers` layers between two words and two more.
std::vector<std::string> labels_of(int layers, int& row) {
  HeatMap map{.label = "m", .row_name = "layer", .columns = {"1"}, .rows = {{"embed_tokens", "", {0.1}}}};
  for (int i = 0; i < layers; ++i) map.rows.push_back({std::to_string(i), "", {0.1}});
  map.rows.push_back({"norm", "", {0.1}});
  map.rows.push_back({"lm_head", "", {0.1}});
  const std::string html = to_html(map, kShares);
  row = std::atoi(html.c_str() + html.find("--row:") + 6);
  const std::size_t from = html.find("rlabels"), to = html.find("</div>", from);
  std::vector<std::string> labels;
  for (std::size_t at = html.find("<span>", from); at < to; at = html.find("<span>", at + 1))
    labels.push_back(html.substr(at + 6, html.find("</span>", at) - at - 6));
  return labels;
}

TEST(HeatMap, LabelsHaveRoomForAnyNumberOfLayers) {
  constexpr int kText = 11;  // pixels
  for (const int layers : {2, 12, 30, 36, 48, 100}) {
    int row = 0;
    const std::vector<std::string> labels = labels_of(layers, row);
    ASSERT_EQ(labels.size(), static_cast<std::size_t>(layers) + 3);
    int last = -100;
    std::string all;
    for (int i = 0; i < static_cast<int>(labels.size()); ++i) {
      const std::string& text = labels[static_cast<std::size_t>(i)];
      if (text.empty()) continue;
      EXPECT_GE((i - last) * row, kText) << layers << " layers: " << text;
      last = i;
      all += text + ";";
    }
    for (const char* word : {"embed_tokens", "norm", "lm_head"})
      EXPECT_NE(all.find(word), std::string::npos) << layers << ": " << word;
  }
}

TEST(HeatMap, IsWellFormedWithoutRowsOrColumns) {
  EXPECT_EQ(test::fault_of(to_html(HeatMap{.label = "", .row_name = "", .columns = {}, .rows = {}}, kShares)),
            "");
}

TEST(BinadeWindow, ShowsTheWholeRangeOfANarrowFormat) {
  Binades values;
  values.at(-3) = 7;
  const BinadeWindow f16 = window_of({&values, nullptr}, range_of(Scalar::f16));
  EXPECT_LE(f16.from, -24);
  EXPECT_GE(f16.to, 16);
  const BinadeWindow bf16 = window_of({&values}, range_of(Scalar::bf16));
  EXPECT_EQ(bf16.from, -5);
  EXPECT_EQ(bf16.to, 0);
  values.at(120) = 1;
  EXPECT_GE(window_of({&values}, range_of(Scalar::bf16)).to, 128);
}

TEST(BinadeChart, DrawsBothHistogramsInsideTheBox) {
  BinadeChart chart{.label = "a<b", .range = range_of(Scalar::e4m3), .after = {}};
  chart.after.at(-5) = 900;
  chart.after.at(8) = 100;
  chart.before = chart.after;
  chart.before.at(12) = 1;
  const std::string html = to_html(chart);
  EXPECT_EQ(test::fault_of(html), "");
  EXPECT_NE(html.find("448"), std::string::npos);
  EXPECT_NE(html.find("stored: 90\u202f%, 900 values"), std::string::npos);
  for (const char* zone : {"class=\"lost\"", "class=\"sub\"", "class=\"over\"", "class=\"before\""})
    EXPECT_NE(html.find(zone), std::string::npos) << zone;
  for (const char* end : {"x", "y"})
    for (const std::string& v : test::attributes_of(html, end)) EXPECT_GE(std::stod(v), 0);
}

TEST(BinadeRows, OutlineValuesBeforeRoundingOnlyBeyondTheRange) {
  Binades after, inside, beyond;
  after.at(3) = inside.at(3) = 10;
  beyond.at(17) = 1;
  BinadeRows chart{.label = "", .row_name = "layer", .range = range_of(Scalar::f16), .rows = {}};
  chart.rows = {{"0", "<0>", &after, &inside}, {"1", "", &after, nullptr}};
  EXPECT_EQ(test::fault_of(to_html(chart)), "");
  EXPECT_EQ(to_html(chart).find("class=\"before\""), std::string::npos);
  chart.rows.push_back({"2", "", &after, &beyond});
  EXPECT_NE(to_html(chart).find("class=\"before\""), std::string::npos);
}

}  // namespace
}  // namespace mantissa::report
