// Objectives of responses: ppo, grpo and the others of [rl].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "mantissa/base/counted.h"
#include "mantissa/io/safetensors_header.h"
#include "mantissa/lab/objective/parts.h"
#include "mantissa/objective/advantages.h"
#include "mantissa/objective/kl.h"
#include "mantissa/objective/policy_loss.h"

namespace mantissa::lab {
namespace {

using Json = nlohmann::ordered_json;

struct PolicyBatch {
  Shape shape;  // [N, T]
  std::vector<float> mask;
  std::vector<double> log_probs, old_log_probs, ref_log_probs, rollout_log_probs, rewards, values, old_values,
      entropy;
  std::vector<std::int64_t> groups;

  std::int64_t rows() const { return shape.sizes[0]; }
  std::int64_t length() const { return shape.sizes[1]; }
};

Cure set(std::string key_and_value) {
  return {{"--set", std::move(key_and_value)}};
}

/// Reads [N, T] tensors whose values must be finite where the mask is 1.
class Reader {
 public:
  Reader(const Inputs& inputs, PolicyBatch& batch) : inputs_(inputs), batch_(batch) {}
  std::vector<double> read(std::string_view name, std::string_view why = {},
                           std::vector<Cure> cures = {}) const {
    std::vector<double> values = inputs_.numbers(name, batch_.shape, why, std::move(cures));
    inputs_.check_finite(name, values, batch_.mask);
    return values;
  }

 private:
  const Inputs& inputs_;
  PolicyBatch& batch_;
};

std::vector<double> read_rewards(const Inputs& inputs, const PolicyBatch& batch) {
  const bool of_rows = !inputs.has("rewards") || inputs.dimensions("rewards") == 1;
  const Shape shape = of_rows ? Shape{"[N]", {batch.rows()}} : batch.shape;
  std::vector<double> rewards = inputs.numbers("rewards", shape);
  inputs.check_finite("rewards", rewards, batch.mask);
  return rewards;
}

PolicyBatch read_batch(const Inputs& inputs, const config::RlSection& rl,
                       const objective::PolicySettings& s) {
  PolicyBatch b;
  b.shape = {"[N, T]", inputs.sizes("log_probs", 2, "[N, T]")};
  b.mask = inputs.mask(b.shape);
  const Reader reader(inputs, b);
  b.log_probs = reader.read("log_probs");
  b.old_log_probs =
      reader.read("old_log_probs", "for the ratio; before the first update, it equals log_probs");
  b.rewards = read_rewards(inputs, b);
  if (s.needs_groups()) {
    b.groups = inputs.integers("groups", {"[N]", {b.rows()}},
                               fmt::format("by {}: equal numbers are samples of one prompt", rl.algorithm));
  }
  if (s.needs_values()) {
    b.values = reader.read("values", "by ppo", {});
    b.old_values =
        reader.read("old_values", "by ppo for the advantages; before the first update, it equals values", {});
  }
  if (s.needs_reference() || (s.kl != objective::Kl::none && inputs.has("ref_log_probs"))) {
    b.ref_log_probs = reader.read("ref_log_probs", fmt::format("for rl.kl = {}", rl.kl), {set("rl.kl=none")});
  }
  if (s.importance_cap > 0) {
    b.rollout_log_probs =
        reader.read("rollout_log_probs",
                    "for rl.importance_cap: the log-probabilities of the policy that sampled the tokens",
                    {set("rl.importance_cap=0")});
  }
  if (s.entropy_coef != 0)
    b.entropy = reader.read("entropy", "for rl.entropy_coef", {set("rl.entropy_coef=0")});
  return b;
}

/// The loss of all rows, and everything that a replay writes.
struct Computed {
  objective::Advantages advantages;
  objective::PolicyStep step;
  objective::PolicyLoss loss;
  objective::PolicyStatistics statistics;
  std::vector<double> d_log_probs, d_values, d_entropy, kl;
};

Computed compute(const PolicyBatch& b, const objective::PolicySettings& s) {
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
  const auto length = static_cast<std::size_t>(b.length());
  const auto row_of = [&](auto& tensor, std::size_t row) {
    return tensor.empty() ? std::span(tensor) : std::span(tensor).subspan(row * length, length);
  };
  const auto rows = static_cast<std::size_t>(b.rows());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t tokens = objective::counted_tokens(row_of(b.mask, row));
    c.step.tokens += tokens;
    c.step.rows += tokens > 0 ? 1 : 0;
  }
  c.d_log_probs.resize(b.mask.size());
  c.d_values.resize(b.values.size());
  c.d_entropy.resize(b.entropy.size());
  for (std::size_t row = 0; row < rows; ++row) {
    c.loss.add(objective::policy_loss(
        {.mask = row_of(b.mask, row),
         .log_probs = row_of(b.log_probs, row),
         .old_log_probs = row_of(b.old_log_probs, row),
         .advantages = row_of(c.advantages.advantages, row),
         .ref_log_probs = row_of(b.ref_log_probs, row),
         .rollout_log_probs = row_of(b.rollout_log_probs, row),
         .values = row_of(b.values, row),
         .old_values = row_of(b.old_values, row),
         .returns = row_of(c.advantages.returns, row),
         .entropies = row_of(b.entropy, row)},
        s, c.step, {row_of(c.d_log_probs, row), row_of(c.d_values, row), row_of(c.d_entropy, row)},
        c.statistics));
  }
  if (b.ref_log_probs.empty()) return c;
  const std::vector<double>& policy = s.kl_in == objective::KlIn::reward ? b.old_log_probs : b.log_probs;
  for (std::size_t i = 0; i < b.mask.size(); ++i)
    c.kl.push_back(b.mask[i] == 0 ? 0 : objective::kl_term(s.kl, policy[i], b.ref_log_probs[i]).value);
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

std::size_t group_count(const PolicyBatch& b) {
  return std::set(b.groups.begin(), b.groups.end()).size();
}

Json numbers_of(const PolicyBatch& b, const Computed& c, const objective::PolicySettings& s) {
  const objective::PolicyStatistics& t = c.statistics;
  Json json = {
      {"parts",
       {{"policy", c.loss.policy}, {"kl", c.loss.kl}, {"value", c.loss.value}, {"entropy", c.loss.entropy}}},
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

std::string text_of(const PolicyBatch& b, const Computed& c, const config::RlSection& rl,
                    const objective::PolicySettings& s) {
  const objective::PolicyStatistics& t = c.statistics;
  std::string text = fmt::format("parts      policy {:.6g}", c.loss.policy);
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
std::string largest_ratio(const PolicyBatch& b) {
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

ObjectiveResult replay_policy(const Inputs& inputs, const config::RlSection& rl) {
  const objective::PolicySettings settings = objective::policy_settings(rl);
  const PolicyBatch batch = read_batch(inputs, rl, settings);
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
