// The memory of a model's parameters: masters, and the copies in lower formats that products read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/runtime/scales.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

/// Bytes of the masters and copies that the program's steps read: what a program that does not train needs.
std::size_t read_weight_bytes(const plan::Program& program);

/// Binds to the slots of one program, or of several that have the same slots (training and generation).
class WeightSet {
 public:
  /// Memory of its own for all masters and copies.
  explicit WeightSet(const plan::Program& program);

  /// Where a master or copy lies that is read where it is, and what keeps it there.
  struct View {
    plan::BufferId buffer = plan::kNoBuffer;
    const std::byte* data = nullptr;
    std::shared_ptr<const void> keep;
  };
  /// For programs that do not train: what the steps read is there, in memory of its own but for `views`; what
  /// none reads is not. Nobody may write to a view.
  WeightSet(const plan::Program& program, std::vector<View> views);

  /// Whether the master or copy is there.
  bool has(plan::BufferId id) const { return places_[static_cast<std::size_t>(id)] != nullptr; }
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
  /// Only those that are stored under scales: the optimizer writes the others.
  void quantize_copies(const kernels::Context& ctx);

  /// The scales of the program's scaled tensors. They change while it runs.
  Scales& scales() const { return *scales_; }
  /// Scale `i` of `program`, which may be another program: by the tensor's name. Null where this set has
  /// none.
  TensorScale* scale(const plan::Program& program, std::int32_t i) const;

  const plan::Program& program() const { return *program_; }
  /// Of its own memory.
  std::size_t bytes() const { return storage_.size(); }

 private:
  Matrix matrix(plan::BufferId id) const;

  const plan::Program* program_;
  std::unique_ptr<Scales> scales_;
  Storage storage_;
  std::vector<View> views_;
  std::vector<std::byte*> places_;  // of each buffer of the program; null where it is no weight or not there
};

}  // namespace mantissa::runtime
