#include "mantissa/lab/objective/rl_batch.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace mantissa::lab {
namespace {

Cure set(std::string key_and_value) {
  return {{"--set", std::move(key_and_value)}};
}

/// Reads [N, T] tensors whose values must be finite where the mask is 1.
class Reader {
 public:
  Reader(const Inputs& inputs, RlBatch& batch) : inputs_(inputs), batch_(batch) {}
  std::vector<double> read(std::string_view name, std::string_view why = {},
                           const std::vector<Cure>& cures = {}) const {
    std::vector<double> values = inputs_.numbers(name, batch_.shape, why, cures);
    inputs_.check_finite(name, values, batch_.mask);
    return values;
  }

 private:
  const Inputs& inputs_;
  RlBatch& batch_;
};

std::vector<double> read_rewards(const Inputs& inputs, const RlBatch& batch) {
  const bool of_rows = !inputs.has("rewards") || inputs.dimensions("rewards") == 1;
  const Shape shape = of_rows ? Shape{"[N]", {batch.rows()}} : batch.shape;
  std::vector<double> rewards = inputs.numbers("rewards", shape);
  inputs.check_finite("rewards", rewards, batch.mask);
  return rewards;
}

}  // namespace

RlBatch read_rl_batch(const Inputs& inputs, const config::RlSection& rl, const objective::RlSettings& s) {
  RlBatch b;
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

}  // namespace mantissa::lab
