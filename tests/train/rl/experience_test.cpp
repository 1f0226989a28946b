// Responses as rows of training, in states, and in samples.jsonl.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/train/rl/experience.h"
#include "mantissa/train/rl/samples.h"

namespace mantissa::rl {
namespace {

Response response(std::vector<std::int32_t> ids, std::int64_t prompt, double reward) {
  Response r{std::move(ids), prompt, 3, 7, reward, {}, {}};
  for (std::int64_t t = 0; t < r.tokens(); ++t) {
    r.rollout_log_probs.push_back(-0.25 * static_cast<double>(t + 1) - reward);
    r.old_log_probs.push_back(-0.5 * static_cast<double>(t + 1) - reward);
    r.advantages.push_back(reward - static_cast<double>(t));
  }
  return r;
}

Experience two_responses() {
  return {4, {response({5, 6, 7, 8, 9}, 2, 0.5), response({1, 2, 3}, 1, -1)}};
}

TEST(Experience, OnlyTheTokensOfAResponseArePredicted) {
  const text::Row row = response({5, 6, 7, 8, 9}, 2, 0).row();
  EXPECT_EQ(row.ids, (std::vector<std::int32_t>{5, 6, 7, 8, 9}));
  EXPECT_EQ(row.labels, (std::vector<std::int32_t>{text::kIgnoredLabel, text::kIgnoredLabel, 7, 8, 9}));
}

TEST(Experience, RowsOfAStepFollowTheOrderAndNameTheirPrompts) {
  Experience experience = two_responses();
  experience.responses[0].origin = 10, experience.responses[1].origin = 20;
  const std::size_t order[] = {1, 0, 1};
  const text::StepData rows = rows_of(experience, order, 8);
  EXPECT_EQ(rows.rows, 3);
  EXPECT_EQ(rows.origin, (std::vector<std::int64_t>{20, 10, 20}));
  EXPECT_EQ(rows.ids, (std::vector<std::int32_t>{1, 2, 3, 5, 6, 7, 8, 9, 1, 2, 3}));
}

TEST(Experience, AStateGivesBackWhatItSaved) {
  train::TaskState state;
  save(two_responses(), state);
  const Experience back = restore(state), before = two_responses();
  EXPECT_EQ(back.rollout, before.rollout);
  ASSERT_EQ(back.responses.size(), before.responses.size());
  for (std::size_t i = 0; i < back.responses.size(); ++i) {
    const Response &a = back.responses[i], &b = before.responses[i];
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.prompt, b.prompt);
    EXPECT_EQ(a.group, b.group);
    EXPECT_EQ(a.origin, b.origin);
    EXPECT_EQ(a.reward, b.reward);
    EXPECT_EQ(a.rollout_log_probs, b.rollout_log_probs);
    EXPECT_EQ(a.old_log_probs, b.old_log_probs);
    EXPECT_EQ(a.advantages, b.advantages);
    EXPECT_TRUE(a.ref_log_probs.empty() && a.values.empty() && a.returns.empty());
  }
}

TEST(Experience, DamagedStatesAreRefused) {
  const auto damaged = [](const char* tensor, std::size_t bytes) {
    train::TaskState state;
    save(two_responses(), state);
    state.tensors.at(tensor).bytes.resize(bytes);
    EXPECT_THROW(restore(state), FileError) << tensor;
  };
  damaged("ids", 5 * sizeof(std::int32_t));
  damaged("rewards", sizeof(double));
  damaged("old_log_probs", sizeof(double));
  train::TaskState state;
  EXPECT_THROW(restore(state), FileError);
  save(two_responses(), state);
  state.tensors.erase("advantages");
  EXPECT_THROW(restore(state), FileError);
}

TEST(Samples, LinesHaveWhatIsKnownOfAResponse) {
  Sampled s;
  s.where = "row 3", s.prompt = "a\nb", s.response = "c", s.reward = 0.5;
  const auto line = nlohmann::json::parse(sample_line(9, s));
  EXPECT_EQ(line["step"], 9);
  EXPECT_EQ(line["prompt"], "a\nb");
  EXPECT_EQ(line["reward"], 0.5);
  EXPECT_FALSE(line.contains("people") || line.contains("right") || line.contains("parts"));
  s.people = 2, s.right = true, s.parts = {{"format", 1}};
  const auto more = nlohmann::json::parse(sample_line(9, s));
  EXPECT_EQ(more["people"], 2);
  EXPECT_EQ(more["right"], true);
  EXPECT_EQ(more["parts"]["format"], 1);
}

TEST(Samples, AResponseThatEndsWithinACharacterIsStillJson) {
  Sampled s;
  s.response = "\xe2\x82";  // the first bytes of €
  EXPECT_EQ(nlohmann::json::parse(sample_line(1, s))["response"], "\xef\xbf\xbd");
}

}  // namespace
}  // namespace mantissa::rl
