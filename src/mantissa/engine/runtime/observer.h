// Observes the values of a program while it runs: their range, distribution, and what each of its rounding
// points (engine/plan/rounding_points.h) does to them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/numeric/value_counts.h"
#include "mantissa/engine/plan/rounding_points.h"
#include "mantissa/engine/runtime/executor.h"
#include "mantissa/engine/runtime/repeated_step.h"

namespace mantissa::runtime {

/// The kind of an observed value: that of its rounding point; `result` also for a result that is exact.
using Observed = plan::RoundingKind;

/// A value of a step and its counts. Of a point inside a step, such as the rounding of partial sums, the
/// value is a result of the step before its own rounding, and its errors are the effect of that point alone.
struct ObservedValue {
  const plan::Step* step = nullptr;
  Observed kind = Observed::result;
  std::size_t index = 0;         // of the output; for weights and factors, of the input
  Scalar format = Scalar::f32;   // as stored; of a term, as added; of a point inside a step, of that point
  Scalar rounded = Scalar::f32;  // to which it is rounded
  std::optional<BlockFormat> blocks = {};    // it is rounded to blocks, whose values `format` represents
  WeightFormat served = WeightFormat::none;  // of a weight: it is rounded to this format first
  StateCodes codes = StateCodes::none;       // of a state of the optimizer: it is rounded to these, in blocks
  ValueCounts counts = {};
  /// Of an op with intermediate results in a lowered format: their error in the result, Σ error² and the
  /// count.
  double interior_squares = 0;
  std::uint64_t interior = 0;
  /// Of a state that an update keeps: elements that stay as they are although their update is not zero.
  std::uint64_t stuck = 0, moving = 0;  // moving: all elements whose update is not zero

  std::string point = {};  // of a point inside a step: its name ("P and dS", "partial sums", "softmax")
  std::string card = {};   // of partial sums: whose they are ("h100"), or ""
  int parts = 1;           // of a factor that is split
  bool rounds = true;      // false: the format stores every result of the arithmetic

  bool is_operand() const { return kind == Observed::weight || kind == Observed::factor; }
  bool is_inside() const { return plan::is_inside_step(kind); }
};

/// Returns the name of a value among those of its step: that of the operand, or of one of several results;
/// "sum" for a sum with a rounded term; of a point inside the step, its name after that of the result ("q:
/// softmax"); otherwise "".
std::string name_of(const plan::Program& program, const ObservedValue& value);

/// Returns the format to which a value is rounded: "bf16", "mxfp4"; "q4_0" of a weight that is first rounded
/// to it.
std::string_view format_name(const ObservedValue& value);

/// Returns the pass to which a value belongs. That of a result of the forward pass is forward, even if a step
/// of the backward pass computes it.
precision::Pass pass_of(const ObservedValue& value);

/// Returns the figures of a value by name, as in observations.jsonl (docs/cli/run-directory.md): shares of
/// its elements, and errors relative to its rms.
std::vector<std::pair<std::string_view, double>> figures(const ObservedValue& value);

/// Returns the bytes that an observer of the steps for which `wanted` returns true takes.
std::size_t observer_bytes(const plan::Program& program,
                           const std::function<bool(const plan::Step&)>& wanted);

/// Observes an executor as long as it exists. Changes no value. Runs every step whose results are rounded
/// again without that, and again without each of the roundings inside it, and counts every element, so an
/// observed step takes two to four times as long.
class Observer : private StepObserver {
 public:
  /// Observes the outputs of the steps for which `wanted` returns true.
  Observer(Executor& executor, const std::function<bool(const plan::Step&)>& wanted);
  ~Observer() override;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  /// Returns what was seen since the last call, in the order of the plan. Values of several micro-batches are
  /// added up, except weights, which are the same in all of them. Integers are not observed.
  std::vector<ObservedValue> take();
  /// Gives the same values to `see`, one by one, without a copy of all.
  void take(const std::function<void(const ObservedValue&)>& see);

 private:
  void before(const plan::Step& step, graph::Call& call) override;
  void after(const plan::Step& step, const graph::Call& call) override;
  /// Returns the values of a step, or none if the step is not observed.
  std::span<ObservedValue> values_of(const plan::Step& step);
  void see_operand(ObservedValue& value, const graph::Call& repeated);
  void see_results(std::span<ObservedValue> values, const graph::Call& call, const graph::Call& repeated);
  /// Sees a term and its sum.
  void see_term(std::span<ObservedValue> values, const graph::Call& call, const graph::Call& repeated);
  /// Sees the effect of a point inside the step on its results.
  void see_inside(std::span<ObservedValue> values, std::span<ObservedValue> results,
                  const graph::Call& repeated);
  /// Replaces constants with lowered intermediate results by those without.
  void raise_constants(const plan::Step& step, std::vector<graph::Argument>& inputs);

  Executor& executor_;
  std::vector<ObservedValue> seen_;
  std::vector<std::size_t> first_;  // in seen_, by step, and the end
  RepeatedStep repeated_;
  UnroundedResults wide_, inside_, without_card_;
  /// The results of the last step before their own rounding, without an addend: in wide_; none if not known.
  std::span<const graph::Argument> unrounded_;
  std::map<plan::BufferId, Storage> constants_;  // without lowered intermediate results
};

}  // namespace mantissa::runtime
