// The rewards of responses by a rule.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::api {

struct Reward {
  double total = 0;
  std::vector<std::pair<std::string, double>> parts = {};
  std::optional<bool> right = {};  // true if the answer is correct; null: not known
};

/// A response of a run to score. The texts are valid during the call.
struct ResponseToScore {
  std::string_view prompt;    // up to the place where the answer begins
  std::string_view response;  // the answer, with the beginning that the prompt gives it, such as "<think>"
  std::string_view row;       // the row of the data, as JSON
};
/// Returns the reward of each response, in order: each number finite as f32. An exception ends the run, as
/// one from an event does.
using RewardFunction = std::function<std::vector<Reward>(const std::vector<ResponseToScore>& responses)>;

struct RewardOptions {
  double timeout = 600;  // seconds that a program may take for 256 responses
};

struct Rewards {
  std::vector<Reward> all;   // in the order of the file
  bool interrupted = false;  // by a stop: `all` is empty
};

/// Returns the values of rl.reward (docs/post-training.md, "Rewards"), those with an argument as
/// "regex:PATTERN".
std::vector<std::string> reward_rules();
/// Returns the same as a text: 'kk, exact, "regex:PATTERN" or …'.
std::string reward_rules_text();

/// Scores the `response` of each row of a file of JSON or CSV. `rule` is a value of rl.reward. Under "kk" a
/// response contains "Assistant:" or the chat marker. Throws ConfigError for an unknown rule, FileError with
/// file and line, and RunStopped if the program fails.
Rewards score_responses(const std::string& rule, const std::filesystem::path& file,
                        const RewardOptions& options = {}, const std::stop_token& stop = {});

}  // namespace mantissa::api
