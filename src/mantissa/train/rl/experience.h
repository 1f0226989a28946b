// The responses of a rollout, with all that the optimizer steps on them need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/objective/settings.h"
#include "mantissa/text/rows/row.h"
#include "mantissa/train/steps/task.h"

namespace mantissa::rl {

/// One response and its prompt. The numbers of a response's tokens are in the order of the tokens.
struct Response {
  std::vector<std::int32_t> ids;  // of the prompt and the response
  std::int64_t prompt = 0;        // ids of the prompt
  std::int64_t group = 0;         // number of the prompt in the rollout
  std::int64_t origin = 0;        // number of the prompt in the data
  double reward = 0;
  // As sampled, and under the policy and the weights in training when the rollout began.
  std::vector<double> rollout_log_probs, old_log_probs;
  std::vector<double> ref_log_probs = {};         // of the reference; empty without one
  std::vector<double> values = {}, returns = {};  // of a value head; empty without one
  std::vector<double> advantages = {};

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()) - prompt; }
  /// Returns the row of training: the response's tokens are predicted.
  text::Row row() const;
};

struct Experience {
  std::int64_t rollout = -1;  // from 0; -1: none yet
  std::vector<Response> responses;
  std::vector<objective::Metric> metrics = {};  // reported with the first optimizer step on them
};

/// Returns the rows of `responses`, selected by `order`, as the rows of an optimizer step.
text::StepData rows_of(const Experience& experience, std::span<const std::size_t> order,
                       std::int64_t sequence_length);

/// Sets the advantages and returns of all responses (setup/objective/advantages.h).
void add_advantages(Experience& experience, const objective::RlSettings& settings);

/// Return the experience as tensors of a state, without its metrics, and read it back. Throws FileError for a
/// state that is not one.
void save(const Experience& experience, train::TaskState& state);
Experience restore(const train::TaskState& state);

}  // namespace mantissa::rl
