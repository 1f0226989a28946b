// Runs a program's steps over its arena, for the part of its capacity that a run uses.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string_view>

#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/runtime/weights.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

class Executor {
 public:
  /// Allocates the arena and fills the constants. `program` and `weights` must outlive the executor;
  /// weights.program() must have the slots of `program`.
  Executor(const plan::Program& program, const WeightSet& weights, const kernels::Context& ctx);

  /// Memory of an input, constant, state or output by name; asserts that there is one.
  Matrix buffer(std::string_view name) const;
  Matrix buffer(plan::BufferId id) const;
  std::span<std::int32_t> integers(std::string_view name) const;

  /// Runs the steps of one phase. `accumulate`: weight gradients are added to what is there (all but the
  /// first micro-batch). Throws ShapeError, before any step runs, where the extent exceeds the capacity or
  /// does not fit an op (OpDef::check).
  void run(graph::Phase phase, const Extent& extent, bool accumulate = false);

  /// Where it is asked for, run() ends between two steps, and what it was to make is not made.
  std::stop_token stop;

  /// Called after each step, where set: what observers and profilers hang on to.
  std::function<void(const plan::Step&, const graph::Call&)> after_step;

  const plan::Program& program() const { return *program_; }
  const kernels::Context& context() const { return ctx_; }
  std::size_t bytes() const { return arena_.size(); }

 private:
  graph::Argument bind(plan::BufferId id, const Extent& extent) const;

  const plan::Program* program_;
  const WeightSet* weights_;
  Storage arena_;
  kernels::Context ctx_;
};

}  // namespace mantissa::runtime
