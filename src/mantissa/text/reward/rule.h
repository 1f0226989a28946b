// The reward of responses by a rule (docs/post-training.md, "Rewards"): the value of rl.reward.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::reward {

/// A response to score. What it refers to must outlive the call that scores it.
struct Sample {
  std::string_view prompt;    // up to the place where the answer begins
  std::string_view response;  // the answer, with the beginning that the prompt gives it, such as "<think>"
  const nlohmann::ordered_json* row = nullptr;  // the fields of the data row
  // What the model read and wrote, for rules of ids: the prompt, then the response. Empty for a text.
  std::span<const std::int32_t> prompt_ids = {}, response_ids = {};
};

/// A reward and its parts, each finite as f32.
struct Score {
  double total = 0;
  std::vector<std::pair<std::string, double>> parts = {};
  std::optional<bool> right = {};        // true if the answer is correct; null if the rule does not say
  std::optional<bool> well_formed = {};  // true if it has the form in which an answer can be read
};

class Rule {
 public:
  virtual ~Rule() = default;

  /// Throws FileError, beginning with `where`, if the row has no field that the rule needs.
  virtual void check_row(const nlohmann::ordered_json& row, const std::string& where) const = 0;

  /// Returns the score of each sample, or nothing if `stop` ended the wait for a program. A row must pass
  /// check_row(). Throws RunStopped if a program fails; the rule then has no use any more.
  virtual std::vector<Score> score(std::span<const Sample> samples, const std::stop_token& stop = {}) = 0;

  /// Ends a program after the last call of score(), and throws RunStopped if it has written more lines than
  /// it was asked for. Its destructor ends it without this check.
  virtual void finish() {}

  /// Returns RuleOptions::position plus the number of samples that a program has scored since; 0 for rules
  /// without one. A run keeps it in its state.
  virtual std::int64_t position() const { return 0; }
};

struct RuleOptions {
  double timeout = 600;       // seconds that a program may take for the samples of one call of score()
  std::int64_t position = 0;  // of a program: the samples that it scored in the earlier parts of a run
  bool marked = false;        // of kk: responses contain "Assistant:" or the chat marker, as Logic-RL's do
};

/// Throws ConfigError, with the fault as its message, unless `rule` names a kind of rules.h and has a valid
/// argument if that needs one: a pattern, a command. Starts nothing.
void check_rule(const std::string& rule);

/// Returns true for "model": a reward model, which only a run has (train/rl/model_rule.h).
bool is_model(std::string_view rule);

/// Returns true for "program:COMMAND".
bool runs_program(std::string_view rule);

/// Returns the rule. Starts the program of "program:COMMAND" through the shell, in the current directory; it
/// ends with the rule. Throws ConfigError that names the rule, also for "model", and ResourceError if no
/// process can be started.
std::unique_ptr<Rule> make_rule(const std::string& rule, const RuleOptions& options = {});

}  // namespace mantissa::reward
