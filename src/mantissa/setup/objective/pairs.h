// The objectives of preference data: direct preference optimization and reward models (preference.h). Row 2i
// of a step is the chosen row of pair i, row 2i + 1 the rejected one; both are in one micro-batch.
//
// The loss of a step is the mean over its pairs. Metrics, also means: `accuracy`, the share of pairs whose
// chosen row has the larger reward; `margin`, chosen minus rejected reward; `chosen_reward` and
// `rejected_reward`; for dpo `chosen_log_prob` and `rejected_log_prob`. The reward of a row is
// implicit_rewards() for dpo, and the score after its last token for a reward model.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/objective/preference.h"
#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// The data of the rows of a step that the objective needs besides the outputs of their pass.
struct PairData {
  std::size_t pairs = 0;
  std::vector<double> reference = {};  // dpo with a reference: of each row, its log-probability under that
  std::vector<double> margins = {};    // reward model: of each pair; empty: 0
};

class PairObjective : public Objective {
 public:
  bool seeds_known() const final { return false; }
  /// Sets the pairs of the next step or validation. Call it before begin().
  void set_pairs(PairData data) { data_ = std::move(data); }

  void begin(const Step& step) final;
  void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) final;
  void observe(const MicroBatch& micro, const Outputs& outputs) final;
  Outcome end() final;

 protected:
  /// The tokens [begin, begin + length) of a row in its micro-batch, and its number in the step.
  struct RowTokens {
    std::size_t begin = 0, length = 0, number = 0;
  };
  /// The loss of a pair, and what metrics report of it.
  struct PairResult {
    PairLoss loss;
    double chosen_reward = 0, rejected_reward = 0;
    double chosen_log_prob = 0, rejected_log_prob = 0;
  };

  virtual PairResult result(const MicroBatch& micro, const Outputs& outputs, const RowTokens& chosen,
                            const RowTokens& rejected) const = 0;
  /// Writes the seeds of a row whose loss has the derivative `d` by its log-probability or score.
  virtual void write_seeds(const MicroBatch& micro, const RowTokens& row, double d,
                           const Seeds& seeds) const = 0;
  virtual bool has_log_probs() const = 0;
  const PairData& data() const { return data_; }

 private:
  /// Calls body(chosen, rejected) for each pair of a micro-batch.
  template <class Body>
  void for_pairs(const MicroBatch& micro, const Body& body) const;

  PairData data_;
  Step step_;
  std::vector<PairResult> results_;  // of the step
};

/// Direct preference optimization, and losses without a reference. The log-probability of a row is the sum
/// over its tokens with a weight.
std::unique_ptr<PairObjective> dpo(const PreferenceSettings& settings);
/// A reward model: the score of a row is the value after its last token.
std::unique_ptr<PairObjective> reward_model();

}  // namespace mantissa::objective
