#include "mantissa/setup/objective/settings.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "mantissa/core/base/error_text.h"

namespace mantissa::objective {
namespace {

template <class Choice>
using Words = std::pair<std::string_view, Choice>;

template <class Choice, std::size_t N>
Choice choice_of(const Words<Choice> (&words)[N], const std::string& word) {
  const auto found = std::ranges::find(words, word, &Words<Choice>::first);
  if (found == std::end(words)) throw InternalError("\"{}\" is not a checked choice", word);
  return found->second;
}

constexpr Words<Algorithm> kAlgorithms[] = {{"grpo", Algorithm::grpo},
                                            {"dr-grpo", Algorithm::dr_grpo},
                                            {"ppo", Algorithm::ppo},
                                            {"reinforce++", Algorithm::reinforce_pp},
                                            {"reinforce++-baseline", Algorithm::reinforce_pp_baseline},
                                            {"rloo", Algorithm::rloo}};
constexpr Words<Kl> kKls[] = {{"none", Kl::none}, {"k1", Kl::k1}, {"k2", Kl::k2}, {"k3", Kl::k3}};
constexpr Words<KlIn> kKlIns[] = {{"loss", KlIn::loss}, {"reward", KlIn::reward}};
constexpr Words<LossMean> kLossMeans[] = {
    {"token", LossMean::token}, {"sequence", LossMean::sequence}, {"constant", LossMean::constant}};
constexpr Words<PreferenceLoss> kPreferenceLosses[] = {{"sigmoid", PreferenceLoss::sigmoid},
                                                       {"ipo", PreferenceLoss::ipo},
                                                       {"simpo", PreferenceLoss::simpo},
                                                       {"orpo", PreferenceLoss::orpo}};
constexpr Words<Importance> kImportances[] = {{"token", Importance::token},
                                              {"sequence", Importance::sequence}};

bool whitens(Algorithm algorithm, const std::string& whiten) {
  if (whiten != "auto") return whiten == "batch";
  return algorithm == Algorithm::ppo || algorithm == Algorithm::reinforce_pp ||
         algorithm == Algorithm::reinforce_pp_baseline;
}

}  // namespace

bool RlSettings::needs_groups() const {
  return algorithm != Algorithm::ppo && algorithm != Algorithm::reinforce_pp;
}

RlSettings rl_settings(const config::RlSection& rl) {
  const Algorithm algorithm = choice_of(kAlgorithms, rl.algorithm);
  return {.algorithm = algorithm,
          .whiten = whitens(algorithm, rl.whiten),
          .clip_low = rl.clip_low,
          .clip_high = rl.clip_high,
          .dual_clip = rl.dual_clip,
          .gamma = rl.gamma,
          .lambda = rl.lambda,
          .value_clip = rl.value_clip,
          .value_coef = rl.value_coef,
          .entropy_coef = rl.entropy_coef,
          .kl = choice_of(kKls, rl.kl),
          .kl_in = choice_of(kKlIns, rl.kl_in),
          .kl_coef = rl.kl_coef,
          .loss_mean = choice_of(kLossMeans, rl.loss_mean),
          .max_new_tokens = rl.max_new_tokens,
          .importance = choice_of(kImportances, rl.importance),
          .importance_cap = rl.importance_cap};
}

PreferenceSettings preference_settings(const config::DpoSection& dpo) {
  return {.loss = choice_of(kPreferenceLosses, dpo.loss),
          .beta = dpo.beta,
          .gamma = dpo.gamma,
          .label_smoothing = dpo.label_smoothing,
          .nll_coef = dpo.nll_coef};
}

KtoSettings kto_settings(const config::KtoSection& kto) {
  return {.beta = kto.beta,
          .desirable_weight = kto.desirable_weight,
          .undesirable_weight = kto.undesirable_weight,
          .compares_with_kl = kto.loss == "kto"};
}

}  // namespace mantissa::objective
