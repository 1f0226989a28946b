// Weights stored a second time for the products of few rows (kernels/interleave.h), which are most of the
// time of generating one token after the other.
#pragma once

#include <cstddef>
#include <map>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/weights.h"

namespace mantissa::runtime {

class InterleavedWeights {
 public:
  /// Interleaves those weights of `weights` that forward products of `program` multiply as they are stored.
  /// The weights must not change afterwards. Throws ResourceError if there is not enough memory.
  InterleavedWeights(const plan::Program& program, const WeightSet& weights);

  /// Returns the bytes that the constructor would allocate.
  static std::size_t bytes(const plan::Program& program, const WeightSet& weights);

  /// Returns the interleaved copy of the weight at `memory`, or null if there is none.
  const std::byte* find(const std::byte* memory) const;

 private:
  Storage storage_;
  std::map<const std::byte*, std::size_t> copies_;  // their offsets
};

}  // namespace mantissa::runtime
