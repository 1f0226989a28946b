#include "mantissa/setup/objective/kto.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace mantissa::objective {

AnswerLoss kto_loss(double log_ratio, bool desirable, double kl, const KtoSettings& settings) {
  const double weight = desirable ? settings.desirable_weight : settings.undesirable_weight;
  const double sign = desirable ? settings.beta : -settings.beta, x = sign * (log_ratio - kl);
  // 1 − σ(x) and σ(x) without cancellation.
  const double e = std::exp(-std::abs(x)), small = e / (1 + e), large = 1 / (1 + e);
  return {weight * (x >= 0 ? small : large), -weight * sign * small * large};
}

void KtoObjective::begin(const Step& step) {
  step_ = step;
  answers_.clear();
}

template <class Body>
void KtoObjective::for_answers(const MicroBatch& micro, const Outputs& outputs, const Body& body) const {
  const Extent extent = micro.batch.extent();
  for (std::size_t r = 0; r < extent.rows.size(); ++r) {
    const auto begin = static_cast<std::size_t>(extent.rows[r].begin),
               length = static_cast<std::size_t>(extent.rows[r].length);
    body(micro.batch.weights().subspan(begin, length), begin, static_cast<std::size_t>(micro.first_row) + r,
         answer_log_prob(micro, outputs, begin, length));
  }
}

void KtoObjective::seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) {
  const double share = step_.loss_scale / static_cast<double>(data_.desirable.size());
  for_answers(micro, *outputs,
              [&](std::span<const float> mask, std::size_t begin, std::size_t number, double log_prob) {
                const double d = kto_loss(log_prob - data_.reference.at(number), data_.desirable.at(number),
                                          data_.kl, settings_)
                                     .derivative;
                for (std::size_t t = 0; t < mask.size(); ++t)
                  seeds.log_prob[begin + t] = mask[t] == 0 ? 0 : share * d;
              });
}

void KtoObjective::observe(const MicroBatch& micro, const Outputs& outputs) {
  for_answers(micro, outputs, [&](std::span<const float>, std::size_t, std::size_t number, double log_prob) {
    const bool desirable = data_.desirable.at(number);
    const double log_ratio = log_prob - data_.reference.at(number);
    answers_.push_back({kto_loss(log_ratio, desirable, data_.kl, settings_).loss, log_prob,
                        settings_.beta * log_ratio, desirable});
  });
}

Outcome KtoObjective::end() {
  std::vector<double> losses;
  std::vector<double> rewards[2], log_probs[2];  // of undesirable and desirable answers
  for (const Answer& a : answers_) {
    losses.push_back(a.loss);
    rewards[a.desirable ? 1 : 0].push_back(a.reward);
    log_probs[a.desirable ? 1 : 0].push_back(a.log_prob);
  }
  Outcome out{mean(losses)};
  if (settings_.compares_with_kl) out.metrics.push_back({"kl", data_.kl});
  if (!rewards[0].empty() && !rewards[1].empty())
    out.metrics.push_back({"margin", mean(rewards[1]) - mean(rewards[0])});
  for (const auto& [i, name] : {std::pair(1, "chosen"), {0, "rejected"}}) {
    if (rewards[i].empty()) continue;
    out.metrics.push_back({std::string(name) + "_reward", mean(rewards[i])});
    out.metrics.push_back({std::string(name) + "_log_prob", mean(log_probs[i])});
  }
  return out;
}

}  // namespace mantissa::objective
