// The weights of a run whose ranks each update a part of them: what the ranks send each other.
#pragma once

#include <cstddef>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/sharing.h"
#include "mantissa/engine/runtime/exchange.h"
#include "mantissa/engine/runtime/health.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/train/steps/update.h"

namespace mantissa::train {

class SharedWeights final : public UpdateShares, public runtime::Exchange {
 public:
  /// `program` is that of this rank. All arguments must outlive this object.
  SharedWeights(comm::Communicator& ranks, const plan::Sharing& sharing, const plan::Program& program)
      : ranks_(ranks), sharing_(sharing), program_(program), gathers_(program.gathers.size()) {}

  /// Copies what all ranks keep of each parameter from its owner to the others: copies in the format of
  /// factors, and masters that steps read themselves.
  void send(const runtime::WeightSet& weights);
  /// Returns the memory of `slot` that send() makes equal on all ranks.
  std::vector<std::span<std::byte>> common(const runtime::WeightSet& weights, std::size_t slot) const;

  void start(std::size_t i, std::span<const std::byte> weight, std::span<std::byte> buffer) override;
  void await(std::size_t i) override { gathers_[i].get(); }

  /// Each gradient's norm comes from the owner of its parameter.
  void complete(std::span<kernels::GradientNorm> norms) override;
  /// The weight of the lowest slot.
  std::optional<BrokenWeight> first(const std::optional<BrokenWeight>& own) override;

  /// Returns the health of all parameters, in the order of their slots, on the first rank.
  std::vector<runtime::ParameterHealth> gather(std::vector<runtime::ParameterHealth> own);

 private:
  comm::Communicator& ranks_;
  const plan::Sharing& sharing_;
  const plan::Program& program_;
  std::vector<std::future<void>> gathers_;
};

}  // namespace mantissa::train
