// Objectives of responses: ppo, grpo and the others of [rl].
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "mantissa/core/base/counted.h"
#include "mantissa/lab/objective/parts.h"
#include "mantissa/lab/objective/rl_batch.h"
#include "mantissa/setup/objective/advantages.h"
#include "mantissa/setup/objective/kl.h"
#include "mantissa/setup/objective/rl_loss.h"

namespace mantissa::lab {
namespace {

using Json = nlohmann::ordered_json;

/// The loss of all rows, and everything that a replay writes.
struct Computed {
  objective::Advantages advantages;
  objective::RlStep step;
  objective::RlLoss loss;
  objective::RlStatistics statistics;
  std::vector<double> d_log_probs, d_values, d_entropy, kl;
};

/// Row `row` of a tensor of [N, T], or of an empty one.
template <class Tensor>
auto row_of(Tensor& tensor, std::size_t row, std::int64_t length) {
  const auto size = static_cast<std::size_t>(length);
  return tensor.empty() ? std::span(tensor) : std::span(tensor).subspan(row * size, size);
}

objective::RlStep step_of(const RlBatch& b) {
  objective::RlStep step;
  for (std::size_t row = 0; row < static_cast<std::size_t>(b.rows()); ++row) {
    const std::int64_t tokens = objective::counted_tokens(row_of(b.mask, row, b.length()));
    step.tokens += tokens;
    step.rows += tokens > 0 ? 1 : 0;
  }
  return step;
}

void add_row(const RlBatch& b, std::size_t row, const objective::RlSettings& s, Computed& c) {
  const auto of = [&](auto& tensor) { return row_of(tensor, row, b.length()); };
  const objective::RlRow tokens{.mask = of(b.mask),
                                .log_probs = of(b.log_probs),
                                .old_log_probs = of(b.old_log_probs),
                                .advantages = of(c.advantages.advantages),
                                .ref_log_probs = of(b.ref_log_probs),
                                .rollout_log_probs = of(b.rollout_log_probs),
                                .values = of(b.values),
                                .old_values = of(b.old_values),
                                .returns = of(c.advantages.returns),
                                .entropies = of(b.entropy)};
  c.loss.add(objective::rl_loss(tokens, s, c.step, {of(c.d_log_probs), of(c.d_values), of(c.d_entropy)},
                                c.statistics));
}

std::vector<double> kl_of(const RlBatch& b, const objective::RlSettings& s) {
  std::vector<double> kl;
  if (b.ref_log_probs.empty()) return kl;
  const std::vector<double>& actor = s.kl_in == objective::KlIn::reward ? b.old_log_probs : b.log_probs;
  for (std::size_t i = 0; i < b.mask.size(); ++i)
    kl.push_back(b.mask[i] == 0 ? 0 : objective::kl_term(s.kl, actor[i], b.ref_log_probs[i]).value);
  return kl;
}

Computed compute(const RlBatch& b, const objective::RlSettings& s) {
  Computed c;
  c.advantages = objective::advantages({.rows = b.rows(),
                                        .length = b.length(),
                                        .mask = b.mask,
                                        .rewards = b.rewards,
                                        .groups = b.groups,
                                        .old_values = b.old_values,
                                        .old_log_probs = b.old_log_probs,
                                        .ref_log_probs = b.ref_log_probs},
                                       s);
  c.step = step_of(b);
  c.d_log_probs.resize(b.mask.size());
  c.d_values.resize(b.values.size());
  c.d_entropy.resize(b.entropy.size());
  for (std::size_t row = 0; row < static_cast<std::size_t>(b.rows()); ++row) add_row(b, row, s, c);
  c.kl = kl_of(b, s);
  return c;
}

Json json_of(const objective::Weights& w) {
  return {
      {"min", w.min}, {"max", w.max}, {"mean", w.sum / w.count}, {"effective_share", w.effective_share()}};
}

double mean_kl(const Computed& c) {
  double sum = 0;
  for (const double kl : c.kl) sum += kl;
  return sum / static_cast<double>(c.step.tokens);
}

std::size_t group_count(const RlBatch& b) {
  return std::set(b.groups.begin(), b.groups.end()).size();
}

Json numbers_of(const RlBatch& b, const Computed& c, const objective::RlSettings& s) {
  const objective::RlStatistics& t = c.statistics;
  Json json = {
      {"parts",
       {{"policy", c.loss.actor}, {"kl", c.loss.kl}, {"value", c.loss.value}, {"entropy", c.loss.entropy}}},
      {"rows", c.step.rows},
      {"tokens", c.step.tokens},
      {"groups", b.groups.empty() ? Json() : Json(group_count(b))},
      {"whitened", s.whiten},
      {"ratio", json_of(t.ratio)},
      {"clipped_low", t.clipped_low},
      {"clipped_high", t.clipped_high},
      {"clipped_dual", t.clipped_dual},
      {"values_clipped", s.needs_values() ? Json(t.values_clipped) : Json()},
      {"mean_kl", c.kl.empty() ? Json() : Json(mean_kl(c))},
      {"importance", s.importance_cap > 0 ? json_of(t.importance) : Json()}};
  return json;
}

std::string text_of(const RlBatch& b, const Computed& c, const config::RlSection& rl,
                    const objective::RlSettings& s) {
  const objective::RlStatistics& t = c.statistics;
  std::string text = fmt::format("parts      policy {:.6g}", c.loss.actor);
  if (s.kl_in_loss()) text += fmt::format(", KL {:.6g}", c.loss.kl);
  if (s.needs_values()) text += fmt::format(", value {:.6g}", c.loss.value);
  if (s.entropy_coef != 0) text += fmt::format(", entropy {:.6g}", c.loss.entropy);
  text += fmt::format("\nmean       {} of {}, by {}", counted(c.step.tokens, "token"),
                      counted(c.step.rows, "row"), rl.loss_mean);
  text += fmt::format("\nadvantages {}{}{}", rl.algorithm,
                      b.groups.empty() ? "" : ", " + counted(group_count(b), "group"),
                      s.whiten ? ", whitened over the tokens" : ", not whitened");
  text += fmt::format("\nratio      {:.6g} to {:.6g}; clipped: {} low, {} high", t.ratio.min, t.ratio.max,
                      t.clipped_low, t.clipped_high);
  if (s.dual_clip > 0) text += fmt::format(", {} dual", t.clipped_dual);
  if (!c.kl.empty()) {
    text += fmt::format("\nKL         mean {:.6g} ({}; coefficient {:g} in the {})", mean_kl(c), rl.kl,
                        s.kl_coef, rl.kl_in);
  }
  if (s.importance_cap > 0) {
    text +=
        fmt::format("\nimportance {:.6g} to {:.6g}, by {}; effective sample size {:.1f} %", t.importance.min,
                    t.importance.max, rl.importance, 100 * t.importance.effective_share());
  }
  return text + "\n";
}

/// Names the token with the largest ratio, which is what overflows.
std::string largest_ratio(const RlBatch& b) {
  std::size_t largest = 0;
  double difference = -INFINITY;
  for (std::size_t i = 0; i < b.mask.size(); ++i) {
    if (b.mask[i] == 0 || !(b.log_probs[i] - b.old_log_probs[i] > difference)) continue;
    difference = b.log_probs[i] - b.old_log_probs[i];
    largest = i;
  }
  const std::int64_t at = static_cast<std::int64_t>(largest);
  return fmt::format("log_probs − old_log_probs is at most {:.6g}, at [{}, {}]", difference, at / b.length(),
                     at % b.length());
}

}  // namespace

ObjectiveResult replay_rl(const Inputs& inputs, const config::RlSection& rl) {
  const objective::RlSettings settings = objective::rl_settings(rl);
  const RlBatch batch = read_rl_batch(inputs, rl, settings);
  Computed c = compute(batch, settings);
  ObjectiveResult out{.loss = c.loss.total(), .json = numbers_of(batch, c, settings)};
  out.text = text_of(batch, c, rl, settings);
  out.largest = largest_ratio(batch);
  const auto add = [&](const char* name, std::vector<double>& values) {
    if (!values.empty()) out.tensors.push_back({name, batch.shape.sizes, std::move(values)});
  };
  add("grad.log_probs", c.d_log_probs);
  add("grad.values", c.d_values);
  add("grad.entropy", c.d_entropy);
  add("advantages", c.advantages.advantages);
  add("returns", c.advantages.returns);
  add("kl", c.kl);
  return out;
}

}  // namespace mantissa::lab
