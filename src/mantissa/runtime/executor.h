// Runs a program's steps over its arena, for the part of its capacity that a run uses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/runtime/weights.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

class Executor {
 public:
  /// Allocates the arena, or takes `arena` where that is large enough, and fills the constants. `program`,
  /// `weights` and `arena` must outlive the executor; weights.program() must have the slots of `program`.
  Executor(const plan::Program& program, const WeightSet& weights, const kernels::Context& ctx,
           std::span<std::byte> arena = {});

  /// Says where a buffer of Home::kept or Home::bound lies. All of them must be placed before a run.
  void place(plan::BufferId id, std::byte* memory);

  /// Memory of an input, constant, state or output by name; asserts that there is one.
  Matrix buffer(std::string_view name) const;
  Matrix buffer(plan::BufferId id) const;
  std::span<std::int32_t> integers(std::string_view name) const;

  /// Runs the steps of one phase. `accumulate`: weight gradients are added to what is there (all but the
  /// first micro-batch). Throws ShapeError, before any step runs, where the extent exceeds the capacity or
  /// does not fit an op (OpDef::check).
  void run(graph::Phase phase, const Extent& extent, bool accumulate = false);

  /// A weight that an update would make inf or nan, and the step that would.
  struct Broken {
    const plan::Step* step = nullptr;
    kernels::WeightOverflow weight;
  };
  /// Runs the steps of an update that may break weights (plan::Step::may_break) without changing any weight
  /// or state, and returns the first weight that would break.
  std::optional<Broken> find_broken(const Extent& extent);

  /// The part of the arena that holds nothing between two runs: activations and scratch.
  std::span<std::byte> idle() const;

  /// Where it is asked for, run() ends between two steps, and what it was to make is not made.
  std::stop_token stop;

  /// Called after each step, where set: what observers and profilers hang on to.
  std::function<void(const plan::Step&, const graph::Call&)> after_step;

  const plan::Program& program() const { return *program_; }
  const kernels::Context& context() const { return ctx_; }
  /// Of its own memory.
  std::size_t bytes() const { return own_.size(); }

 private:
  graph::Argument bind(plan::BufferId id, const Extent& extent) const;
  void run_step(const plan::Step& step, const Extent& extent, bool accumulate,
                std::optional<kernels::WeightOverflow>* overflow);

  const plan::Program* program_;
  const WeightSet* weights_;
  Storage own_;
  std::byte* arena_ = nullptr;
  std::vector<std::byte*> placed_;  // by buffer: where it lies, where that is not the arena or the weight set
  kernels::Context ctx_;
};

}  // namespace mantissa::runtime
