// The weights of a run whose ranks each update a part of them: what the ranks send each other.
#pragma once

#include <cstddef>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/streamed_sum.h"
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
      : ranks_(ranks),
        sharing_(sharing),
        program_(program),
        read_(plan::read_by_steps(program)),
        gathers_(program.gathers.size()) {}

  /// Waits for the transfers that are under way: after an error of a step, their buffers are freed next.
  ~SharedWeights() override;
  SharedWeights(const SharedWeights&) = delete;
  SharedWeights& operator=(const SharedWeights&) = delete;

  /// Creates the sums of gradients that the program streams to their owners. `gradients` are those of the
  /// slots that have one, in order.
  void stream(std::vector<comm::Gradient> gradients, const runtime::Device& device, std::uint64_t seed);
  /// Returns them, or null.
  comm::StreamedSum* streamed() { return streamed_ ? &*streamed_ : nullptr; }
  /// Returns the owners of the slots that have a gradient.
  std::vector<int> owners_of_gradients() const;

  /// Copies what all ranks keep of each parameter from its owner to the others: copies in the format of
  /// factors, and masters that steps read themselves.
  void send(const runtime::WeightSet& weights);
  /// Returns the memory of `slot` that send() makes equal on all ranks.
  std::vector<std::span<std::byte>> common(const runtime::WeightSet& weights, std::size_t slot) const;

  void start(std::vector<Weight> weights) override;
  void await(std::size_t i) override { gathers_[i].get(); }
  void reduce(std::size_t i, Matrix gradient, Matrix sent) override;
  void await_reduction(std::size_t i) override;

  std::optional<Matrix> gradient(std::size_t slot) const override;

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
  std::vector<bool> read_;  // by buffer
  std::vector<std::shared_future<void>> gathers_;
  std::optional<comm::StreamedSum> streamed_;
  std::vector<std::size_t> gradient_of_;  // by slot, if gradients are streamed
  const runtime::Device* device_ = nullptr;
};

}  // namespace mantissa::train
