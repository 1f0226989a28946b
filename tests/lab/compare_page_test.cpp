// The files of a comparison: JSON, CSV, and the page.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/compared_runs.h"
#include "mantissa/lab/compare/charts.h"
#include "mantissa/lab/compare/compare.h"
#include "report/well_formed.h"

namespace mantissa::lab {
namespace {

using test::add_seed, test::constant, test::online;

TEST(CompareJson, HasNullForNumbersThatAreNotFinite) {
  Comparison c;
  c.runs = {constant("a \"b\", c", {5, 2}), constant("\xff", {5, std::nan("")})};
  judge(c);
  const nlohmann::json json = nlohmann::json::parse(to_json(c));
  for (const char* key : {"policy",
                          "losses",
                          "final_loss",
                          "loss_gap",
                          "noise",
                          "tokens_per_second",
                          "peak_bytes",
                          "skipped",
                          "verdict",
                          "name",
                          "settings",
                          "seed",
                          "steps",
                          "validation_loss",
                          "stopped",
                          "weight_distance",
                          "updates_lost",
                          "reduce_flushed",
                          "reduce_saturated",
                          "sent_bytes",
                          "findings",
                          "outcome"}) {
    EXPECT_TRUE(json["runs"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["runs"][1]["losses"], nlohmann::json::parse("[5.0, null]"));
  EXPECT_EQ(to_csv(c).find("step,\"a \"\"b\"\", c\",\xff\n1,"), 0U);
  EXPECT_NE(to_csv(c).find("\n2,2,\n"), std::string::npos) << to_csv(c);
}

TEST(ComparePage, IsWellFormedForAnyNamesAndNumbers) {
  Comparison c;
  c.title = "<b>&";
  EXPECT_EQ(test::fault_of(to_html(c)), "");
  c.runs = {constant("<script>", {5, 2})};
  for (int i = 0; i < 13; ++i)
    c.runs.push_back(constant("\"run\" & '" + std::to_string(i), {5, 2.0 + i, std::nan("")}));
  c.runs[1].steps[2] = {3, 2, true};
  c.runs[2].steps.clear();
  c.runs[3].stopped = "step 4: a < b";
  c.runs[3].stopped_at = 4;
  c.runs[4].findings = {"97 % of <x>"};
  c.runs[4].updates_lost = 0.97;
  c.runs[5].weight_distance = 1e30;
  c.runs[5].peak_bytes = 1e9;
  c.runs[6].tokens_per_second = INFINITY;
  add_seed(c, 0, 3, constant("seed", {5, 2.25}));
  add_seed(c, 1, 3, constant("seed", {5, 2.25, 3}));
  judge(c);
  const std::string html = to_html(c);
  EXPECT_EQ(test::fault_of(html), "");
  EXPECT_NE(html.find("Loss, part 3 of 3"), std::string::npos) << "five lines and the reference in a chart";
  EXPECT_NE(html.find("97 % of &lt;x&gt;"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos) << "it needs no network";
}

TEST(ComparePage, SharesItsLinesEvenlyBetweenCharts) {
  Comparison c;
  for (int i = 0; i < 7; ++i) c.runs.push_back(constant("run" + std::to_string(i), {5, 2.0 + 0.1 * i}));
  judge(c);
  const std::string html = to_html(c);
  const auto count = [&](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = html.find(text); at != std::string::npos; at = html.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("Loss, part "), 2U);
  EXPECT_EQ(count("stroke s3"), 4U) << "three runs and the reference in each of four charts";
  EXPECT_EQ(html.find("stroke s4"), html.find("stroke s4{"));
}

TEST(ComparePage, ShowsTheGapsBesideTheVerdict) {
  Comparison c;
  c.runs = {constant("a", {5, 2}), constant("b", {5, 2.25})};
  judge(c);
  const std::string html = to_html(c);
  EXPECT_NE(html.find("<div class=\"intervals\""), std::string::npos);
  EXPECT_LT(html.find("<div class=\"intervals\""), html.find("</header>"));
  EXPECT_NE(html.find("+0.25"), std::string::npos);
}

TEST(ComparePage, DrawsSharesBetweenZeroAndOne) {
  Comparison c;
  c.runs = {online("a", {-3, 1}, 0.5), online("b", {-3, 1}, 0.5)};
  for (ComparedRun& run : c.runs) run.curves["effective_sample_share"] = {{1, 2}, {1, 1}};
  judge(c);
  EXPECT_EQ(to_html(c).find(">1.1<"), std::string::npos);
}

TEST(ComparePage, DrawsTheGapAsTheLastMean) {
  const std::vector<StepDifference> all = {
      {1, 4}, {2, std::nan("")}, {3, 2}, {4, 8}, {5, 1}, {6, 1}, {7, 1}, {8, 1}, {9, 1}, {10, 2}, {11, 4}};
  const std::vector<StepDifference> means = trailing_means(all);
  ASSERT_EQ(means.size(), 11U);
  EXPECT_EQ(means[0].difference, 4);
  EXPECT_EQ(means[1].difference, 4) << "a difference that is not finite does not count";
  EXPECT_EQ(means[3].difference, 5);
  EXPECT_EQ(means[10].difference, 3) << "11 steps: the last two";
  EXPECT_EQ(means[10].step, 11);
}

}  // namespace
}  // namespace mantissa::lab
