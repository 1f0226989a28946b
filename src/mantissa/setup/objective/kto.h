// The objective of answers with a label, desirable or undesirable: Kahneman-Tversky optimization.
//
// Sources: KTO: Ethayarajh et al., arXiv:2402.01306, with the estimate of the divergence and the mean of
// TRL's KTOTrainer; APO-zero: D'Oosterlinck et al., arXiv:2408.06266.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// The loss of an answer, and its derivative by the answer's log-probability.
struct AnswerLoss {
  double loss = 0, derivative = 0;
};

/// Returns, for the answer's log-probability minus that under the reference, `log_ratio`, and the divergence
/// `kl` with which it is compared (0 for apo-zero),
///   desirable:   desirable_weight (1 − σ(β (log_ratio − kl)))
///   undesirable: undesirable_weight (1 − σ(β (kl − log_ratio)))
/// `kl` is a constant of the derivative. The loss of a step is the mean over its answers.
AnswerLoss kto_loss(double log_ratio, bool desirable, double kl, const KtoSettings& settings);

/// The data of the rows of a step that the objective needs besides the outputs of their pass.
struct AnswerData {
  std::vector<bool> desirable;    // of each row
  std::vector<double> reference;  // its log-probability under the reference
  double kl = 0;                  // at least 0
};

/// Metrics are means over the rows: `kl`; `chosen_reward` and `rejected_reward`, β · log_ratio of the
/// desirable and of the undesirable rows, their difference `margin`, and `chosen_log_prob` and
/// `rejected_log_prob`. Those of a kind that the step does not have are left out.
class KtoObjective final : public Objective {
 public:
  explicit KtoObjective(const KtoSettings& settings) : settings_(settings) {}

  bool seeds_known() const override { return false; }
  /// Sets the rows of the next step or validation. Call it before begin().
  void set_answers(AnswerData data) { data_ = std::move(data); }

  void begin(const Step& step) override;
  void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) override;
  void observe(const MicroBatch& micro, const Outputs& outputs) override;
  Outcome end() override;

 private:
  struct Answer {
    double loss = 0, log_prob = 0, reward = 0;
    bool desirable = false;
  };

  /// Calls body(weights, begin, number, log_prob) for each row of a micro-batch: the weights of its tokens,
  /// the first of these, and its number in the step.
  template <class Body>
  void for_answers(const MicroBatch& micro, const Outputs& outputs, const Body& body) const;

  KtoSettings settings_;
  AnswerData data_;
  Step step_;
  std::vector<Answer> answers_;  // of the step
};

}  // namespace mantissa::objective
