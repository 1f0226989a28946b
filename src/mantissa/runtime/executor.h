// Runs a program's steps over its arena, for the part of its capacity that a run uses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "mantissa/plan/program.h"
#include "mantissa/runtime/arena.h"
#include "mantissa/runtime/device.h"
#include "mantissa/runtime/weights.h"
#include "mantissa/tensor/extent.h"

namespace mantissa::runtime {

class Executor {
 public:
  /// Finds the program's weights in `weights` by name and takes `arena` as its memory; without one, or if it
  /// is too small, it allocates its own. All must outlive the executor. Throws InternalError if a step reads
  /// a weight that the set does not have.
  Executor(const plan::Program& program, const WeightSet& weights, Arena* arena = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Sets where a buffer of Home::kept or Home::bound lies. All of them must be placed before a run.
  void place(plan::BufferId id, std::byte* memory);

  /// Returns the memory of a buffer, or of an input, constant, state or output by name. Throws InternalError
  /// if there is none.
  Matrix buffer(std::string_view name) const;
  Matrix buffer(plan::BufferId id) const;
  std::span<std::int32_t> integers(std::string_view name) const;

  /// Runs the steps of one phase. `accumulate`: weight gradients are added to what is there (all but the
  /// first micro-batch). Throws ShapeError, before any step runs, if the extent exceeds the capacity or does
  /// not fit an op (OpDef::check). Throws InternalError if another executor has used the arena since the
  /// forward phase.
  void run(graph::Phase phase, const Extent& extent, bool accumulate = false);

  /// A weight that an update would make inf or nan, and the step that would.
  struct Broken {
    const plan::Step* step = nullptr;
    kernels::WeightOverflow weight;
  };
  /// Runs the steps of an update that may break weights (plan::Step::may_break) without changing any weight
  /// or state, and returns the first weight that would break.
  std::optional<Broken> find_broken(const Extent& extent);

  /// Takes the arena, and fills the constants if another executor has used it. Runs of the forward and update
  /// phases begin with this; so must writing inputs.
  void hold();
  /// Throws InternalError if another executor has used the arena since this one last took it.
  void require_held() const;

  /// Returns the part of the arena that is free between two runs: activations and scratch.
  std::span<std::byte> idle() const;

  /// A stop ends run() between two steps: what the run was to compute is then incomplete.
  std::stop_token stop;

  /// Called before and after each step, if set. Observers and profilers use them.
  std::function<void(const plan::Step&, const graph::Call&)> before_step, after_step;

  const plan::Program& program() const { return *program_; }
  const Device& device() const { return *device_; }
  /// Returns the bytes of the executor's own arena.
  std::size_t bytes() const { return own_ == nullptr ? 0 : own_->bytes(); }

 private:
  /// What a buffer of the program is bound to.
  struct Binding {
    std::byte* memory = nullptr;  // of weights, and of what was placed
    TensorScale* scale = nullptr;
  };
  void bind_weights(const WeightSet& weights);
  graph::Argument bind(plan::BufferId id, const Extent& extent) const;
  void run_step(const plan::Step& step, const Extent& extent, bool accumulate,
                std::optional<kernels::WeightOverflow>* overflow);

  const plan::Program* program_;
  const Device* device_;
  std::unique_ptr<Arena> own_;
  Arena* arena_;
  std::vector<Binding> bindings_;  // by buffer
  kernels::Context ctx_;
};

}  // namespace mantissa::runtime
