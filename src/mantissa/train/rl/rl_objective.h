// Policy optimization as the objective of a trainer: the loss of setup/objective/rl_loss.h on the
// responses of a rollout.
#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/objective/rl_loss.h"
#include "mantissa/setup/objective/settings.h"
#include "mantissa/train/rl/experience.h"

namespace mantissa::rl {

class RlObjective final : public objective::Objective {
 public:
  explicit RlObjective(objective::RlSettings settings) : settings_(settings) {}

  /// Sets the responses of the next step, in the order of its rows. `fresh`: the weights are those of the
  /// rollout. `experience` must live until the step ends.
  void set_rows(const Experience& experience, std::vector<std::size_t> order, bool fresh);

  bool seeds_known() const override { return false; }
  void begin(const objective::Step& step) override;
  void seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
             const objective::Seeds& seeds) override;
  void observe(const objective::MicroBatch& /*micro*/, const objective::Outputs& /*outputs*/) override {}
  /// The metrics are those of the experience, if `fresh`, then the parts of the loss and its statistics.
  objective::Outcome end() override;

 private:
  objective::RlSettings settings_;
  const Experience* experience_ = nullptr;
  std::vector<std::size_t> order_;
  bool fresh_ = false;
  objective::RlStep step_;
  objective::RlLoss loss_;
  objective::RlStatistics statistics_;
  double difference_ = 0;  // largest |log-probability in training − when sampled|
};

}  // namespace mantissa::rl
