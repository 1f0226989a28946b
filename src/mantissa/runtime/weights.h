// The memory of a model's parameters: masters, and the copies in lower formats that products read.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

/// Binds to the slots of one program, or of several that have the same slots (training and generation).
class WeightSet {
 public:
  explicit WeightSet(const plan::Program& program);

  /// The master of slot `i`, in its own format.
  Matrix master(std::size_t slot) const;
  /// Copy `c` of slot `i`.
  Matrix copy(std::size_t slot, std::size_t c) const;
  /// Memory of a master or copy of `program`, which may be another program over the same slots.
  std::byte* at(const plan::Program& program, plan::BufferId id) const;

  /// Draws every master as its slot's Init says: Philox keyed by (seed, the parameter's name, element index),
  /// so the values depend on nothing else; rounded to the master's format.
  void initialise(std::uint64_t seed, const kernels::Context& ctx);
  /// Writes every copy from its master.
  void refresh_copies(const kernels::Context& ctx);

  const plan::Program& program() const { return *program_; }
  std::size_t bytes() const { return storage_.size(); }

 private:
  const plan::Program* program_;
  Storage storage_;
};

}  // namespace mantissa::runtime
