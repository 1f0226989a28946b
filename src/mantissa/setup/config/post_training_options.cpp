// The keys of the objectives after pretraining: preferences and reinforcement learning.
#include "mantissa/setup/config/option_rows.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::config {

std::vector<Option> post_training_options() {
  std::vector<Option> table;
  add<DpoSection>(
      table, "dpo", &RunConfig::dpo,
      {
          {"beta", &DpoSection::beta,
           "strength of the tie to the reference model; of simpo, the factor of the rewards; of orpo, the weight of "
           "the odds",
           above(0)},
          {"gamma", &DpoSection::gamma, "only of simpo: by how much the better reward should be larger",
           from(0)},
          {"label_smoothing", &DpoSection::label_smoothing,
           "assumed share of pairs in the wrong order (cDPO); only for sigmoid and simpo", from(0, 0.5)},
          {"loss", &DpoSection::loss, "sigmoid (DPO), ipo, or, without a reference model, simpo or orpo",
           words({"sigmoid", "ipo", "simpo", "orpo"})},
          {"nll_coef", &DpoSection::nll_coef,
           "share of the negative log-likelihood of the chosen answers in the loss", from(0)},
          {"reference", &DpoSection::reference,
           "model directory of the reference of sigmoid and ipo; empty: the starting weights", path()},
      });
  add<KtoSection>(
      table, "kto", &RunConfig::kto,
      {
          {"beta", &KtoSection::beta, "strength of the tie to the reference model", above(0)},
          {"desirable_weight", &KtoSection::desirable_weight, "weight of answers with the label true",
           from(0)},
          {"loss", &KtoSection::loss,
           "kto, which compares with the divergence from the reference, or apo-zero, which compares with 0",
           words({"kto", "apo-zero"})},
          {"reference", &KtoSection::reference,
           "model directory of the reference; empty: the starting weights", path()},
          {"undesirable_weight", &KtoSection::undesirable_weight, "weight of answers with the label false",
           from(0)},
      });
  add<RlSection>(
      table, "rl", &RunConfig::rl,
      {
          {"algorithm", &RlSection::algorithm, "estimator of the advantages",
           words({"grpo", "dr-grpo", "ppo", "reinforce++", "reinforce++-baseline", "rloo"})},
          {"reward", &RlSection::reward, fmt::format("rule of the rewards: {}", reward::rules_text())},
          {"reward_model", &RlSection::reward_model,
           "model directory of the reward model of reward = \"model\"", path()},
          {"reward_precision", &RlSection::reward_precision,
           "policy of the reward model; empty: that of training"},
          {"prompts_per_step", &RlSection::prompts_per_step, "prompts of a rollout", from(1, kLong)},
          {"samples_per_prompt", &RlSection::samples_per_prompt, "responses to each prompt", from(1, kLong)},
          {"epochs", &RlSection::epochs, "passes over the responses of a rollout", from(1, kLong)},
          {"minibatches", &RlSection::minibatches,
           "optimizer steps of a pass; a rollout serves epochs × minibatches steps", from(1, kLong)},
          {"temperature", &RlSection::temperature, "temperature of the sampling", above(0)},
          {"top_p", &RlSection::top_p,
           "probability of the most likely tokens among which responses are sampled", above(0, 1)},
          {"max_new_tokens", &RlSection::max_new_tokens, "longest response", from(1, kLong)},
          {"clip_low", &RlSection::clip_low, "the ratio is clipped below 1 − clip_low", from(0, 1)},
          {"clip_high", &RlSection::clip_high, "the ratio is clipped above 1 + clip_high", from(0)},
          {"dual_clip", &RlSection::dual_clip,
           "bound of the loss of tokens with a negative advantage, as a factor above 1; 0: none", from(0)},
          {"gamma", &RlSection::gamma, "discount of later rewards, in ppo and reinforce++", from(0, 1)},
          {"lambda", &RlSection::lambda, "λ of generalized advantage estimation, in ppo", from(0, 1)},
          {"whiten", &RlSection::whiten,
           "advantages are whitened over the tokens of a rollout; auto: in ppo, reinforce++ and "
           "reinforce++-baseline",
           words({"auto", "batch", "none"})},
          {"value_clip", &RlSection::value_clip,
           "largest change of a value that lowers its loss, in ppo; 0: none", from(0)},
          {"value_coef", &RlSection::value_coef, "share of the value loss, in ppo", from(0)},
          {"entropy_coef", &RlSection::entropy_coef, "share of the mean entropy that the loss subtracts",
           from(0)},
          {"kl", &RlSection::kl, "estimator of the divergence from the reference",
           words({"none", "k1", "k2", "k3"})},
          {"kl_in", &RlSection::kl_in, "the divergence is a part of the loss, or of the reward",
           words({"loss", "reward"})},
          {"kl_coef", &RlSection::kl_coef, "its coefficient", from(0)},
          {"loss_mean", &RlSection::loss_mean,
           "mean over the tokens of the batch, mean over sequences of their means, or sum / (rows · "
           "max_new_tokens)",
           words({"token", "sequence", "constant"})},
          {"importance", &RlSection::importance,
           "importance weights of samples of another policy (importance_cap): of each token, or of sequences",
           words({"token", "sequence"})},
          {"importance_cap", &RlSection::importance_cap, "largest importance weight; 0: no weights", from(0)},
          {"rollout_precision", &RlSection::rollout_precision,
           "another policy for sampling; empty: that of training, which gives equal log-probabilities"},
          {"reference", &RlSection::reference,
           "model directory of the reference, or none; empty: the starting weights", path({"none"})},
          {"reward_timeout", &RlSection::reward_timeout,
           "seconds that a reward program may take for the samples of a rollout", above(0, kMany)},
      });
  return table;
}

}  // namespace mantissa::config
