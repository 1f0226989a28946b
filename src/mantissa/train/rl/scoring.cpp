#include "mantissa/train/rl/scoring.h"

#include <algorithm>
#include <utility>

#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/generate/rollout/complete.h"

namespace mantissa::rl {

std::vector<std::int32_t> response_ends(const config::RunConfig& config, const weights::ModelSource& source,
                                        const data::PromptSet& prompts) {
  if (prompts.format() != nullptr) {
    return dialog::answer_ends(prompts.tokenizer(), prompts.format(),
                               data::chat_source(config, source.config));
  }
  std::vector<std::int32_t> ends = rollout::stop_ids(source);
  ends.push_back(prompts.tokenizer().separator());
  return ends;
}

std::optional<std::vector<Sampled>> score_responses(const data::PromptSet& set,
                                                    std::span<const data::Prompt> prompts,
                                                    std::int64_t per_prompt,
                                                    std::span<const rollout::Generation> made,
                                                    std::span<const std::int32_t> ends, reward::Rule& rule,
                                                    const std::stop_token& stop) {
  const auto prompt_of = [&](std::size_t i) -> const data::Prompt& {
    return prompts[i / static_cast<std::size_t>(per_prompt)];
  };
  std::vector<Sampled> all;
  std::vector<reward::Sample> to_score;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const data::Prompt& prompt = prompt_of(i);
    Sampled& s = all.emplace_back();
    s.where = prompt.where;
    s.prompt = prompt.question();
    data::AnswerText answer = set.answer(prompt, made[i].ids);
    const bool by_id = !made[i].ids.empty() && std::ranges::find(ends, made[i].ids.back()) != ends.end();
    s.response = std::move(answer.text);
    s.people = prompt.people;
    s.tokens = static_cast<std::int64_t>(made[i].ids.size());
    s.truncated = !by_id && !answer.ends_turn;
  }
  for (std::size_t i = 0; i < made.size(); ++i)
    to_score.push_back({all[i].prompt, all[i].response, &prompt_of(i).row, prompt_of(i).ids, made[i].ids});
  const std::vector<reward::Score> scores = rule.score(to_score, stop);
  if (stop.stop_requested() || scores.size() != made.size()) return std::nullopt;
  for (std::size_t i = 0; i < made.size(); ++i) {
    all[i].reward = scores[i].total;
    all[i].parts = scores[i].parts;
    all[i].right = scores[i].right;
  }
  return all;
}

}  // namespace mantissa::rl
