#include "mantissa/setup/objective/rl_loss.h"

#include <algorithm>
#include <cmath>

#include "mantissa/setup/objective/kl.h"

namespace mantissa::objective {
namespace {

/// A term of one token and its derivative by the token's input.
struct Term {
  double value = 0, derivative = 0;
};

Term actor_term(double ratio, double advantage, const RlSettings& s, RlStatistics& statistics) {
  const double low = 1 - s.clip_low, high = 1 + s.clip_high;
  if (advantage > 0 && ratio > high) {
    ++statistics.clipped_high;
    return {-high * advantage, 0};
  }
  if (advantage < 0 && ratio < low) {
    ++statistics.clipped_low;
    return {-low * advantage, 0};
  }
  if (advantage < 0 && s.dual_clip > 0 && ratio > s.dual_clip) {
    ++statistics.clipped_dual;
    return {-s.dual_clip * advantage, 0};
  }
  if (advantage == 0) return {};  // also for a ratio that overflows
  return {-ratio * advantage, -ratio * advantage};
}

Term value_term(double value, double old, double target, double clip, RlStatistics& statistics) {
  const double plain = value - target;
  const double limited = old + std::clamp(value - old, -clip, clip) - target;
  const bool held = clip > 0 && std::abs(value - old) > clip;
  if (!held || plain * plain > limited * limited) return {0.5 * plain * plain, plain};
  ++statistics.values_clipped;
  const bool tie = plain * plain == limited * limited;
  return {0.5 * limited * limited, tie ? 0.5 * plain : 0};
}

/// Returns the weight of a token's term in the mean.
double mean_weight(std::int64_t row_tokens, const RlSettings& s, const RlStep& step) {
  const auto rows = static_cast<double>(step.rows);
  switch (s.loss_mean) {
    case LossMean::token:
      return 1 / static_cast<double>(step.tokens);
    case LossMean::sequence:
      return 1 / (rows * static_cast<double>(row_tokens));
    case LossMean::constant:
      return 1 / (rows * static_cast<double>(s.max_new_tokens));
  }
  return 0;
}

/// Returns the importance weight of the whole row, or 1 if tokens have their own.
double row_importance(const RlRow& row, const RlSettings& s, RlStatistics& statistics) {
  if (s.importance_cap <= 0 || s.importance != Importance::sequence) return 1;
  double difference = 0;
  for (std::size_t t = 0; t < row.mask.size(); ++t) {
    if (row.mask[t] != 0) difference += row.old_log_probs[t] - row.rollout_log_probs[t];
  }
  const double weight = std::min(s.importance_cap, std::exp(difference));
  statistics.importance.add(weight);
  return weight;
}

double token_importance(const RlRow& row, std::size_t t, const RlSettings& s, RlStatistics& statistics) {
  if (s.importance_cap <= 0 || s.importance != Importance::token) return 1;
  const double weight = std::min(s.importance_cap, std::exp(row.old_log_probs[t] - row.rollout_log_probs[t]));
  statistics.importance.add(weight);
  return weight;
}

/// Writes `seed` unless the seeds of this input are not wanted.
void write(std::span<double> seeds, std::size_t t, double seed) {
  if (!seeds.empty()) seeds[t] = seed;
}

}  // namespace

void RlLoss::add(const RlLoss& other) {
  actor += other.actor;
  kl += other.kl;
  value += other.value;
  entropy += other.entropy;
}

void Weights::add(double weight) {
  min = std::min(min, weight);
  max = std::max(max, weight);
  count += 1;
  sum += weight;
  squares += weight * weight;
}

void Weights::add(const Weights& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  count += other.count;
  sum += other.sum;
  squares += other.squares;
}

double Weights::effective_share() const {
  return count == 0 ? 1 : sum * sum / (count * squares);
}

void RlStatistics::add(const RlStatistics& other) {
  tokens += other.tokens;
  clipped_low += other.clipped_low;
  clipped_high += other.clipped_high;
  clipped_dual += other.clipped_dual;
  values_clipped += other.values_clipped;
  ratio.add(other.ratio);
  importance.add(other.importance);
  kl += other.kl;
  old_kl += other.old_kl;
  entropy += other.entropy;
}

std::int64_t counted_tokens(std::span<const float> mask) {
  return std::ranges::count_if(mask, [](float m) { return m != 0; });
}

RlLoss rl_loss(const RlRow& row, const RlSettings& s, const RlStep& step, const RlSeeds& seeds,
               RlStatistics& statistics) {
  const std::int64_t tokens = counted_tokens(row.mask);
  const double weight = tokens == 0 ? 0 : mean_weight(tokens, s, step), scaled = weight * step.loss_scale;
  const double row_weight = tokens == 0 ? 1 : row_importance(row, s, statistics);
  statistics.tokens += tokens;
  RlLoss sum;
  for (std::size_t t = 0; t < row.mask.size(); ++t) {
    write(seeds.log_probs, t, 0);
    write(seeds.values, t, 0);
    write(seeds.entropies, t, 0);
    if (row.mask[t] == 0) continue;
    const double log_ratio = row.log_probs[t] - row.old_log_probs[t], ratio = std::exp(log_ratio);
    statistics.ratio.add(ratio);
    statistics.old_kl += std::expm1(log_ratio) - log_ratio;
    const double importance = row_weight * token_importance(row, t, s, statistics);
    const Term actor = actor_term(ratio, row.advantages[t], s, statistics);
    KlTerm kl;
    if (s.kl_in_loss()) kl = kl_term(s.kl, row.log_probs[t], row.ref_log_probs[t]);
    sum.actor += importance * actor.value;
    sum.kl += s.kl_coef * kl.value;
    statistics.kl += kl.value;
    write(seeds.log_probs, t, scaled * (importance * actor.derivative + s.kl_coef * kl.derivative));
    if (s.needs_values() && s.value_coef != 0) {
      const Term value =
          value_term(row.values[t], row.old_values[t], row.returns[t], s.value_clip, statistics);
      sum.value += s.value_coef * value.value;
      write(seeds.values, t, scaled * s.value_coef * value.derivative);
    }
    if (!row.entropies.empty()) statistics.entropy += row.entropies[t];
    if (s.entropy_coef != 0) {
      sum.entropy -= s.entropy_coef * row.entropies[t];
      write(seeds.entropies, t, -scaled * s.entropy_coef);
    }
  }
  return {weight * sum.actor, weight * sum.kl, weight * sum.value, weight * sum.entropy};
}

}  // namespace mantissa::objective
