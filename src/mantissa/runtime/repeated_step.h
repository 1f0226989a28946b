// A step of the plan, repeated with the operands that it had, to see its results before they were rounded.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "mantissa/graph/op.h"
#include "mantissa/plan/program.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

/// Returns the elements of an argument in f64, row by row.
std::vector<double> widened(const graph::Argument& a, const kernels::Context& ctx);

/// True if a result of the call lies where `in` did.
bool overwrites(const graph::Call& call, const graph::Argument& in);

class RepeatedStep {
 public:
  /// Copies the operands that the step overwrites. Call it before the step.
  void keep(const graph::Call& call);
  /// Forgets the copies.
  void clear() { kept_.clear(); }

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

  /// Returns output `output` of the call, in f64, computed again without rounding of the step's results. Null
  /// if the step has overwritten an operand of `call`.
  static std::optional<std::vector<double>> wide(graph::Call call, const plan::Step& step,
                                                 std::size_t output);

 private:
  void keep(const graph::Argument& in, const graph::Call& call);
  void restore(graph::Argument& in) const;

  std::vector<std::pair<const void*, Storage>> kept_;  // where each operand was, and its copy
};

}  // namespace mantissa::runtime
