#include "mantissa/train/rl/model_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/data/answers.h"
#include "mantissa/setup/programs/evaluation.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/text/rows/row.h"

namespace mantissa::rl {
namespace {

/// Returns the ids that the template of the prompts puts after an answer, such as a line end.
std::vector<std::int32_t> closing_ids(const data::PromptSet& prompts) {
  if (prompts.format() == nullptr) return {};
  const auto messages = nlohmann::ordered_json::array(
      {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", "x"}}});
  const data::AnswerIds row = data::answer_ids(*prompts.format(), prompts.tokenizer(), messages, nullptr,
                                               data::TrainOn::last, "rl.reward_model");
  if (row.answers.empty()) return {};
  return {row.ids.begin() + static_cast<std::ptrdiff_t>(row.answers.back().second), row.ids.end()};
}

weights::ModelSource reward_source(const std::string& path, const model::ModelConfig& trained) {
  weights::ModelSource source = train::model_beside(path, "rl.reward_model", trained);
  if (source.config.scores) return source;
  throw ConfigError(
      "rl.reward_model = \"{}\": is a language model, which has no scores. Fix: train a reward model with "
      "train.objective = \"reward\", and give its run",
      path);
}

/// Returns the config of the run with the policy of the reward model.
config::RunConfig with_policy(config::RunConfig config) {
  if (!config.rl.reward_precision.empty())
    config.policy = precision::Policy::parse(config.rl.reward_precision);
  return config;
}

}  // namespace

ModelRule::ModelRule(const config::RunConfig& config, const model::ModelConfig& trained,
                     const data::PromptSet& prompts, std::vector<std::int32_t> ends,
                     const runtime::Device& device)
    : path_(config.rl.reward_model),
      ends_(std::move(ends)),
      closing_(closing_ids(prompts)),
      length_(config.data.sequence_length + std::ssize(closing_)),
      model_(
          with_policy(config), reward_source(path_, trained),
          [config = with_policy(config), length = length_, &device](const model::ModelConfig& model,
                                                                    std::int64_t step) {
            return programs::compile_scores(model, config.policy.at_step(step),
                                            config.batch.micro_batch_size * length, length, device);
          },
          device) {}

std::vector<reward::Score> ModelRule::score(std::span<const reward::Sample> samples,
                                            const std::stop_token& stop) {
  text::StepData rows = text::empty_step(static_cast<std::int64_t>(samples.size()), length_);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    text::Row row{.ids = {samples[i].prompt_ids.begin(), samples[i].prompt_ids.end()}};
    row.ids.insert(row.ids.end(), samples[i].response_ids.begin(), samples[i].response_ids.end());
    if (std::ranges::find(ends_, row.ids.back()) != ends_.end())
      row.ids.insert(row.ids.end(), closing_.begin(), closing_.end());
    row.ids.push_back(row.ids.back());  // the model reads every id, and nothing is predicted
    text::append_row(row, static_cast<std::int64_t>(i), rows);
  }
  const std::optional<train::TokenValues> values = model_.of(rows, stop);
  if (!values) return {};
  std::vector<reward::Score> scores;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const double score = values->values.at(static_cast<std::size_t>(rows.begin(r + 1)) - 1);
    if (!std::isfinite(static_cast<float>(score))) {
      throw RunStopped(
          "the reward model {} gave a response the score {}. Fix: another rl.reward_precision, such as "
          "\"32-true\"",
          path_, runtime::unsigned_nan(score));
    }
    scores.push_back({score});
  }
  return scores;
}

}  // namespace mantissa::rl
