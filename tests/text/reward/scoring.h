// Scores of responses to one row, for tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/text/reward/rule.h"

namespace mantissa::reward {

inline std::vector<Score> scores_of(Rule& rule, const std::vector<std::string>& responses,
                                    const nlohmann::ordered_json& row = nlohmann::ordered_json::object(),
                                    const std::stop_token& stop = {}) {
  std::vector<Sample> samples;
  for (const std::string& response : responses) samples.push_back({"prompt", response, &row});
  return rule.score(samples, stop);
}

inline std::vector<double> totals_of(Rule& rule, const std::vector<std::string>& responses,
                                     const nlohmann::ordered_json& row = nlohmann::ordered_json::object()) {
  std::vector<double> totals;
  for (const Score& score : scores_of(rule, responses, row)) totals.push_back(score.total);
  return totals;
}

/// Returns the reward of one response by a rule.
inline double reward_of(const std::string& rule, const std::string& response,
                        const nlohmann::ordered_json& row = nlohmann::ordered_json::object()) {
  return totals_of(*make_rule(rule), {response}, row).at(0);
}

}  // namespace mantissa::reward
