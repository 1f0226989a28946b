// mantissa reward
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"

namespace mantissa::cli {

int reward(const Arguments& a) {
  const std::string file = a.text("--responses");
  if (file.empty())
    throw ConfigError("reward: requires --responses FILE, JSON lines with \"response\" and the row's fields");
  api::RewardOptions options;
  options.timeout = a.number("--timeout");
  if (!(options.timeout > 0)) throw ConfigError("--timeout: must be above 0");
  const SignalStop signals;
  const api::Rewards rewards = api::score_responses(a.at(0), file, options, signals.token());
  if (rewards.interrupted) return report_interrupt(signals, "no reward is printed");
  if (!a.has("--json")) {
    for (const api::Reward& r : rewards.all) fmt::print("{}\n", r.total);
    return 0;
  }
  auto totals = nlohmann::ordered_json::array(), parts = nlohmann::ordered_json::array();
  for (const api::Reward& r : rewards.all) {
    totals.push_back(r.total);
    auto& of = parts.emplace_back(nlohmann::ordered_json::object());
    for (const auto& [name, value] : r.parts) of[name] = value;
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"rewards", totals}, {"parts", parts}}.dump());
  return 0;
}

}  // namespace mantissa::cli
