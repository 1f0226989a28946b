// Rewards by a reward model: rl.reward = "model".
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/prompt_rows.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/train/steps/fixed_model.h"

namespace mantissa::rl {

/// The reward of a response is the score of rl.reward_model after the last id of its prompt and the response.
/// After the id that ends a response come the ids with which the template closes a turn, as in the rows on
/// which train.objective = "reward" trains.
class ModelRule final : public reward::Rule {
 public:
  /// `trained` is the model in training, `ends` the ids that end a response. Throws ConfigError if
  /// rl.reward_model is not a reward model, or has another vocabulary, and FileError if it cannot be read.
  ModelRule(const config::RunConfig& config, const model::ModelConfig& trained,
            const data::PromptSet& prompts, std::vector<std::int32_t> ends, const runtime::Device& device);

  /// Its memory must be bound when score() is called.
  train::FixedModel& model() { return model_; }
  const train::FixedModel& model() const { return model_; }

  void check_row(const nlohmann::ordered_json& /*row*/, const std::string& /*where*/) const override {}
  /// Samples must have ids. All ranks of the model call it alike. Throws RunStopped for a score that is not
  /// finite.
  std::vector<reward::Score> score(std::span<const reward::Sample> samples,
                                   const std::stop_token& stop) override;

 private:
  std::string path_;
  std::vector<std::int32_t> ends_, closing_;  // closing_: what follows the end of an answer in its turn
  std::int64_t length_;                       // of the longest row
  train::FixedModel model_;
};

}  // namespace mantissa::rl
