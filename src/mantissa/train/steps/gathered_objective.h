// An objective whose micro-batches run on several ranks: every rank observes all of them, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/setup/objective/objective.h"
#include "mantissa/train/steps/output_bytes.h"

namespace mantissa::train {

/// The items [first, end) of a step that one rank runs.
struct Share {
  std::int64_t first = 0, end = 0;
};
/// Returns the items of rank `rank` of `ranks`: whole parts of `part` items, the last of which may be
/// shorter. Ranks have parts in their order.
Share share_of(int rank, int ranks, std::int64_t items, std::int64_t part);

/// Keeps the outputs of this rank's micro-batches, for all ranks to observe: sums over a step are then those
/// of one rank. Alone it is the objective itself.
class GatheredObjective final : public objective::Objective {
 public:
  /// `parts` neighbouring ranks have a part of each row (runtime::Batch::add_part).
  GatheredObjective(objective::Objective& objective, comm::Communicator& ranks, int parts = 1)
      : objective_(objective), ranks_(ranks), parts_(static_cast<std::size_t>(parts)) {}

  bool seeds_known() const override { return objective_.seeds_known(); }
  void begin(const objective::Step& step) override;
  void seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
             const objective::Seeds& seeds) override;
  void observe(const objective::MicroBatch& micro, const objective::Outputs& outputs) override;
  /// Begins the step again, with the micro-batches of all ranks. `next` returns those of the step, in
  /// order. `in_turns`: each rank (or ranks that share rows) ran one after the other, in place of
  /// neighbouring ones.
  void gather(const std::function<WholeRows()>& next, bool in_turns);
  objective::Outcome end() override { return objective_.end(); }

 private:
  objective::Objective& objective_;
  comm::Communicator& ranks_;
  std::size_t parts_;
  objective::Step step_;
  std::vector<std::byte> kept_;
  bool seeded_ = false, seeds_entropy_ = false, seeds_value_ = false;  // what seeds() was asked for
};

}  // namespace mantissa::train
