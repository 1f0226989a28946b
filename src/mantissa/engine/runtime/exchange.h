// The transfers of weights and gradients between ranks while a program runs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::runtime {

/// Moves weights to the buffers in which steps read them, and gradients to their owners. Every rank calls it
/// alike.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// plan::Program::gathers[i]: `weight` is empty on ranks that do not have it.
  struct Weight {
    std::size_t i = 0;
    std::span<const std::byte> weight;
    std::span<std::byte> buffer;
  };
  /// Starts transfers at the same time. The buffers must stay as they are until await() returns.
  virtual void start(std::vector<Weight> weights) = 0;
  /// Returns when the buffer of gathers[i] has the weight.
  virtual void await(std::size_t i) = 0;
  /// Starts plan::Program::reductions[i] of a complete gradient. `sent` must stay as it is until
  /// await_reduction() returns.
  virtual void reduce(std::size_t i, Matrix gradient, Matrix sent) = 0;
  virtual void await_reduction(std::size_t i) = 0;
};

}  // namespace mantissa::runtime
