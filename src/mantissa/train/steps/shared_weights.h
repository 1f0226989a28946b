// The weights of a run whose ranks each update a part of them: what the ranks send each other.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/sharing.h"
#include "mantissa/engine/runtime/health.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/train/steps/update.h"

namespace mantissa::train {

class SharedWeights final : public UpdateShares {
 public:
  /// `sharing` is that of the run. Both must outlive this object.
  SharedWeights(comm::Communicator& ranks, const plan::Sharing& sharing) : ranks_(ranks), sharing_(sharing) {}

  /// Copies what steps read of each parameter from its owner to the other ranks: copies in the format of
  /// factors, and masters that steps read themselves.
  void send(const runtime::WeightSet& weights);

  /// Each gradient's norm comes from the owner of its parameter.
  void complete(std::span<kernels::GradientNorm> norms) override;
  /// The weight of the lowest slot.
  std::optional<BrokenWeight> first(const std::optional<BrokenWeight>& own) override;

  /// Returns the health of all parameters, in the order of their slots, on the first rank.
  std::vector<runtime::ParameterHealth> gather(std::vector<runtime::ParameterHealth> own,
                                               const plan::Program& program);

 private:
  comm::Communicator& ranks_;
  const plan::Sharing& sharing_;
};

}  // namespace mantissa::train
