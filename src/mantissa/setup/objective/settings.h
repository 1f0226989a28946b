// Settings of the post-training objectives, from the config's [rl], [dpo] and [kto].
#pragma once

#include <cstdint>

#include "mantissa/setup/config/run_config.h"

namespace mantissa::objective {

/// Estimators of the advantages (advantages.h).
enum class Algorithm : std::uint8_t { grpo, dr_grpo, ppo, reinforce_pp, reinforce_pp_baseline, rloo };
/// Estimators of the divergence from the reference (kl.h).
enum class Kl : std::uint8_t { none, k1, k2, k3 };
enum class KlIn : std::uint8_t { loss, reward };
/// Means over tokens: over all tokens of the step; over its rows of each row's mean; the sum divided by
/// rows · max_new_tokens.
enum class LossMean : std::uint8_t { token, sequence, constant };
/// Importance weights of each token, or one for each row.
enum class Importance : std::uint8_t { token, sequence };

/// [rl] without the keys of sampling. The defaults are those of the config.
struct RlSettings {
  Algorithm algorithm = Algorithm::grpo;
  bool whiten = false;  // of the advantages, over the tokens of the rollout
  double clip_low = 0.2, clip_high = 0.2;
  double dual_clip = 0;  // 0: none
  double gamma = 1, lambda = 1;
  double value_clip = 0.5;  // 0: none
  double value_coef = 0.5, entropy_coef = 0;
  Kl kl = Kl::k3;
  KlIn kl_in = KlIn::loss;
  double kl_coef = 0.001;
  LossMean loss_mean = LossMean::token;
  std::int64_t max_new_tokens = 256;  // for LossMean::constant
  Importance importance = Importance::token;
  double importance_cap = 0;  // 0: no weights

  /// True if the advantages compare the samples of a prompt, so they need groups.
  bool needs_groups() const;
  /// True if there is a value head: advantages need old values, and the loss needs values.
  bool needs_values() const { return algorithm == Algorithm::ppo; }
  /// True if the rewards or the loss contain the divergence from the reference.
  bool needs_reference() const { return kl != Kl::none && kl_coef != 0; }
  bool kl_in_loss() const { return needs_reference() && kl_in == KlIn::loss; }
  bool kl_in_reward() const { return needs_reference() && kl_in == KlIn::reward; }
};

/// [dpo].
enum class PreferenceLoss { sigmoid, ipo, simpo, orpo };
struct PreferenceSettings {
  PreferenceLoss loss = PreferenceLoss::sigmoid;
  double beta = 0.1;
  double gamma = 0;  // simpo
  double label_smoothing = 0;
  double nll_coef = 0;
  bool has_reference() const { return loss == PreferenceLoss::sigmoid || loss == PreferenceLoss::ipo; }
};

/// [kto].
struct KtoSettings {
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  bool compares_with_kl = true;  // kto; false: apo-zero
};

/// Return the settings of a checked config. `rl.whiten = "auto"` is true for ppo, reinforce++ and
/// reinforce++-baseline.
RlSettings rl_settings(const config::RlSection& rl);
PreferenceSettings preference_settings(const config::DpoSection& dpo);
KtoSettings kto_settings(const config::KtoSection& kto);

}  // namespace mantissa::objective
