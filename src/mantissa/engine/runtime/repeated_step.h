// A step of the plan, repeated with the operands that it had, to see its results before they were rounded.
#pragma once

#include <span>
#include <vector>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/plan/program.h"

namespace mantissa::runtime {

/// Returns the elements of an argument in f64, row by row.
std::vector<double> widened(const graph::Argument& a, const kernels::Context& ctx);

/// True if a result of the call lies where `in` did.
bool overwrites(const graph::Call& call, const graph::Argument& in);

/// Keeps what a step overwrites: operands, and weight gradients to which it adds. Its memory grows with the
/// steps and is reused.
class RepeatedStep {
 public:
  /// Copies what the step overwrites. Call it before the step.
  void keep(const graph::Call& call);
  /// Forgets the copies.
  void clear() { kept_ = 0; }

  /// Returns the values that output `out` had before the step, if they were kept; otherwise null.
  void* before(const graph::Argument& out) const;

  /// The step's call with the operands that it had before. Valid as long as both arguments.
  class Before {
   public:
    Before(const graph::Call& after, const RepeatedStep& step);
    Before(const Before&) = delete;
    Before& operator=(const Before&) = delete;
    const graph::Call& call() const { return call_; }

   private:
    std::vector<graph::Argument> inputs_;
    graph::Call call_;
  };

 private:
  struct Copy {
    const void* of = nullptr;  // where the operand was
    Storage memory;
  };
  void keep(const graph::Argument& in, const graph::Call& call);
  void copy(const graph::Argument& in, const kernels::Context& ctx);
  void restore(graph::Argument& in) const;

  std::vector<Copy> copies_;
  std::size_t kept_ = 0;  // copies of the last step
};

/// Computes results again without rounding. Its memory grows with the steps and is reused.
class UnroundedResults {
 public:
  /// Runs the call again. Returns its outputs in call.arithmetic, valid until the next call; none if the step
  /// has overwritten an operand of `call`. A gradient that adds to that of earlier micro-batches is the sum
  /// with it if `kept` has it, and otherwise that of this micro-batch alone.
  std::span<const graph::Argument> compute(graph::Call call, const plan::Step& step,
                                           const RepeatedStep* kept = nullptr);
  /// Does the same, but the head rounds its logits as in the step.
  std::span<const graph::Argument> compute_with_logits(const graph::Call& call, const plan::Step& step,
                                                       const RepeatedStep* kept = nullptr);

 private:
  bool rounds_logits_ = false;
  std::vector<graph::Argument> outputs_;
  std::vector<Storage> memory_;
  std::vector<TensorScale> scales_;  // copies: a repeated step changes no scale
};

}  // namespace mantissa::runtime
