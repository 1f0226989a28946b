// The rule of Knights and Knaves against tools/golden_reward.py, which is written in Python from the same
// text.
#include <gtest/gtest.h>

#include <map>

#include "mantissa/text/reward/rule.h"
#include "mantissa/text/rows/row_reader.h"

namespace mantissa::reward {
namespace {

TEST(KkRule, ScoresRandomResponsesAsPythonDoes) {
  RuleOptions options;
  options.marked = true;
  const auto rule = make_rule("kk", options);
  std::map<double, int> totals;
  text::read_rows(MANTISSA_SOURCE_DIR "/tests/text/reward/golden/kk.jsonl.gz",
                  [&](const nlohmann::ordered_json& row, const text::FilePlace& place) {
                    const auto response = row["response"].get<std::string>();
                    const Sample sample{"", response, &row};
                    const Score score = rule->score({&sample, 1}).at(0);
                    const double format = row["format"], answer = row["answer"];
                    EXPECT_EQ(score.parts, (decltype(score.parts){{"format", format}, {"answer", answer}}))
                        << "line " << place.line << ": " << row;
                    EXPECT_EQ(score.total, format + answer) << "line " << place.line;
                    EXPECT_EQ(score.right, answer == 2) << "line " << place.line;
                    ++totals[score.total];
                    return true;
                  });
  for (const double total : {3.0, -0.5, -1.0, -3.0}) EXPECT_GT(totals[total], 200) << "total " << total;
  EXPECT_EQ(totals.size(), 4U);
}

TEST(KkRule, PutsTheMarkerBeforeAResponseThatFollowsItsPrompt) {
  const nlohmann::ordered_json row = {{"solution_text_format", "(1) Zoey is a knight"}};
  const std::string response = "<think></think><answer>Zoey is a knight</answer>";
  const Sample sample{"Who is who?\nAssistant:", response, &row};
  EXPECT_EQ(make_rule("kk")->score({&sample, 1}).at(0).total, 3);
  RuleOptions options;
  options.marked = true;
  EXPECT_EQ(make_rule("kk", options)->score({&sample, 1}).at(0).total, -1);
}

}  // namespace
}  // namespace mantissa::reward
