// An objective whose seeds depend on whole rows, of which several ranks have a part each.
#pragma once

#include <functional>
#include <utility>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/setup/objective/objective.h"
#include "mantissa/train/steps/output_bytes.h"

namespace mantissa::train {

/// Gives the objective the outputs of whole rows, and the program the seeds of this rank's tokens.
class SharedRowObjective final : public objective::Objective {
 public:
  /// `parts` neighbouring ranks share rows. whole() returns the current micro-batch.
  SharedRowObjective(objective::Objective& objective, comm::Communicator& ranks, int parts,
                     std::function<WholeRows()> whole)
      : objective_(objective), ranks_(ranks), parts_(parts), whole_(std::move(whole)) {}

  bool seeds_known() const override { return objective_.seeds_known(); }
  void begin(const objective::Step& step) override { objective_.begin(step); }
  void seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
             const objective::Seeds& seeds) override;
  void observe(const objective::MicroBatch& micro, const objective::Outputs& outputs) override {
    objective_.observe(micro, outputs);
  }
  objective::Outcome end() override { return objective_.end(); }

 private:
  objective::Objective& objective_;
  comm::Communicator& ranks_;
  int parts_;
  std::function<WholeRows()> whole_;
};

}  // namespace mantissa::train
