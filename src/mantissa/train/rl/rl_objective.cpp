#include "mantissa/train/rl/rl_objective.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace mantissa::rl {
namespace {

double share(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

/// Returns values [begin, begin + count) of an output.
std::vector<double> numbers(const runtime::Values& values, std::size_t begin, std::size_t count) {
  std::vector<double> all(count);
  for (std::size_t t = 0; t < count; ++t) all[t] = values[begin + t];
  return all;
}

}  // namespace

void RlObjective::set_rows(const Experience& experience, std::vector<std::size_t> order, bool fresh) {
  experience_ = &experience;
  order_ = std::move(order);
  fresh_ = fresh;
}

void RlObjective::begin(const objective::Step& step) {
  step_ = {0, static_cast<std::int64_t>(order_.size()), step.loss_scale};
  for (const std::size_t i : order_) step_.tokens += experience_->responses[i].tokens();
  loss_ = {};
  statistics_ = {};
  difference_ = 0;
}

void RlObjective::seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
                        const objective::Seeds& seeds) {
  std::size_t row_begin = 0;  // input of the micro-batch
  for (std::int64_t r = 0; r < micro.batch.rows(); ++r) {
    const Response& response = experience_->responses[order_[static_cast<std::size_t>(micro.first_row + r)]];
    const auto tokens = static_cast<std::size_t>(response.tokens());
    // The last id of the prompt predicts the first token of the response.
    const std::size_t begin = row_begin + static_cast<std::size_t>(response.prompt) - 1;
    const std::vector<float> mask(tokens, 1.0F);
    const std::vector<double> log_probs = numbers(outputs->log_prob, begin, tokens);
    objective::RlRow row{.mask = mask,
                         .log_probs = log_probs,
                         .old_log_probs = response.old_log_probs,
                         .advantages = response.advantages,
                         .ref_log_probs = response.ref_log_probs,
                         .rollout_log_probs = response.rollout_log_probs,
                         .old_values = response.values,
                         .returns = response.returns};
    std::vector<double> values, entropies;
    if (outputs->value) row.values = values = numbers(*outputs->value, begin, tokens);
    if (outputs->entropy) row.entropies = entropies = numbers(*outputs->entropy, begin, tokens);
    const auto part = [&](std::span<double> of) { return of.empty() ? of : of.subspan(begin, tokens); };
    loss_.add(objective::rl_loss(
        row, settings_, step_, {part(seeds.log_prob), part(seeds.value), part(seeds.entropy)}, statistics_));
    for (std::size_t t = 0; fresh_ && t < tokens; ++t)
      difference_ = std::max(difference_, std::abs(log_probs[t] - response.rollout_log_probs[t]));
    row_begin += response.ids.size() - 1;
  }
}

objective::Outcome RlObjective::end() {
  objective::Outcome outcome{loss_.total()};
  std::vector<objective::Metric>& m = outcome.metrics;
  if (fresh_) m = experience_->metrics;
  const objective::RlStatistics& s = statistics_;
  m.push_back({"policy_loss", loss_.actor});
  if (settings_.kl_in_loss()) {
    m.push_back({"kl_loss", loss_.kl});
    m.push_back({"kl", s.tokens == 0 ? 0 : s.kl / static_cast<double>(s.tokens)});
  }
  if (settings_.needs_values()) {
    m.push_back({"value_loss", loss_.value});
    m.push_back({"value_clip_share", share(s.values_clipped, s.tokens)});
  }
  m.push_back({"clip_low_share", share(s.clipped_low, s.tokens)});
  m.push_back({"clip_high_share", share(s.clipped_high, s.tokens)});
  if (settings_.dual_clip > 0) m.push_back({"clip_dual_share", share(s.clipped_dual, s.tokens)});
  m.push_back({"ratio_min", s.ratio.min});
  m.push_back({"ratio_max", s.ratio.max});
  m.push_back({"old_kl", s.tokens == 0 ? 0 : s.old_kl / static_cast<double>(s.tokens)});
  if (settings_.importance_cap > 0) {
    m.push_back({"importance_max", s.importance.max});
    m.push_back({"importance_mean", s.importance.sum / s.importance.count});
  }
  if (fresh_) m.push_back({"rollout_difference", difference_});
  return outcome;
}

}  // namespace mantissa::rl
