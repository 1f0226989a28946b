// The rules that compare a response with a text of its row.
#include <fmt/format.h>

#include "mantissa/core/base/error.h"
#include "mantissa/text/puzzles/kk_reward.h"
#include "mantissa/text/reward/reference.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::reward {
namespace {

class KkRule final : public Rule {
 public:
  explicit KkRule(bool marked) : marked_(marked) {}

  void check_row(const nlohmann::ordered_json& row, const std::string& where) const override {
    const auto found = row.find(kSolution);
    if (found != row.end() && found->is_string()) return;
    throw FileError(found == row.end()
                        ? fmt::format("{}: no \"{}\", which has the roles of a puzzle", where, kSolution)
                        : fmt::format("{}: \"{}\" is of type {}; expected a string", where, kSolution,
                                      found->type_name()));
  }

  std::vector<Score> score(std::span<const Sample> samples, const std::stop_token&) override {
    std::vector<Score> scores;
    for (const Sample& s : samples) {
      std::string response(marked_ ? "" : "Assistant:");
      response += s.response;
      const text::KkReward reward =
          text::kk_reward(response, s.row->at(kSolution).get_ref<const std::string&>());
      scores.push_back({reward.total(),
                        {{"format", reward.format}, {"answer", reward.answer}},
                        reward.answer > 0,
                        reward.format > 0 && reward.answer > -2});
    }
    return scores;
  }

 private:
  static constexpr const char* kSolution = "solution_text_format";
  bool marked_;
};

class ExactRule final : public Rule {
 public:
  void check_row(const nlohmann::ordered_json& row, const std::string& where) const override {
    reference_answer(row, where);
  }

  std::vector<Score> score(std::span<const Sample> samples, const std::stop_token&) override {
    std::vector<Score> scores;
    for (const Sample& s : samples) {
      const bool match = answer_in(s.response) == reference_answer(*s.row, "the row");
      scores.push_back({match ? 1.0 : 0.0, {{"match", match ? 1.0 : 0.0}}, match});
    }
    return scores;
  }
};

}  // namespace

std::unique_ptr<Rule> kk_rule(bool marked) {
  return std::make_unique<KkRule>(marked);
}

std::unique_ptr<Rule> exact_rule() {
  return std::make_unique<ExactRule>();
}

}  // namespace mantissa::reward
