// The interface with which an optimizer builds the update of one parameter: states, numbers, passes over the
// elements, means and products. It names no number format; the plan gives each value its format.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/optim/common_settings.h"
#include "mantissa/engine/optim/update_graph.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/reduce.h"

namespace mantissa::optim {

class ParameterUpdate {
 public:
  using ValueId = graph::ValueId;

  ParameterUpdate(UpdateGraph& out, const Optimizer& optimizer, const Settings& settings,
                  const Parameter& parameter);

  const Parameter& parameter() const { return parameter_; }
  const Shape& shape() const { return parameter_.shape; }

  /// Return settings by key.
  double real(std::string_view key) const { return std::get<double>(settings_.find(key)->second); }
  std::int64_t whole(std::string_view key) const {
    return std::get<std::int64_t>(settings_.find(key)->second);
  }
  bool flag(std::string_view key) const { return std::get<bool>(settings_.find(key)->second); }
  std::array<double, 2> betas() const {
    return std::get<std::array<double, 2>>(settings_.find("betas")->second);
  }

  /// Returns what is known of the run.
  RunFacts facts() const { return facts_of(settings_); }

  /// Sets the name of the following steps in explain, if it differs from the optimizer's.
  void set_label(std::string_view label) { label_ = label; }

  ValueId weight() const { return weight_; }
  ValueId gradient() const { return gradient_; }  // scaled, not clipped
  /// Returns the compensation (the rounding error of the weight), or null if it is not kept.
  std::optional<ValueId> compensation();

  /// Declares a moment, which starts at zero: "KIND.NAME". The order of declaration determines the random
  /// bits of stochastic rounding.
  ValueId state(std::string_view kind, Shape shape) { return add_state(kind, std::move(shape), false); }
  ValueId state(std::string_view kind) { return state(kind, shape()); }
  /// Declares a moment of squares, which is never negative.
  ValueId squares(std::string_view kind) { return add_state(kind, shape(), true); }

  /// Declares a state that starts at the weight and is kept in the arithmetic's format, "KIND.NAME".
  ValueId weight_state(std::string_view kind);
  /// Declares the state, of the same kind, that validation, eval and the saved model read in place of the
  /// weight: "average.NAME". A parameter has at most one.
  ValueId average();
  /// Appends the average of the setting ema_decay, if it is not 0: average = average + (1 − decay)·(weight −
  /// average), from the weight after the update. As torch.optim.swa_utils.get_ema_multi_avg_fn.
  void average_weights();

  /// Declares a number that is computed in double for each run. It is one input of the graph for all
  /// parameters with the same rule, learning rate scale and decay.
  ValueId number(std::string_view name, std::function<double(const Progress&)> of,
                 std::optional<double> undecayed = {});
  /// Return numbers that most rules use: the factor for unscaling and clipping; the learning rate; the factor
  /// of weight decay, 1 − lr·decay, or lr·decay if there is a compensation.
  ValueId gradient_factor();
  ValueId lr();
  ValueId decay();

  /// Computes C = A·B, each operand plain or transposed.
  ValueId product(ValueId a, ValueId b, bool transpose_a, bool transpose_b);

  const graph::Value& value(ValueId id) const { return out_.graph.value(id); }
  /// Returns an output that replaces the weight or a state.
  graph::OutputSpec in_place(ValueId value) const;
  /// Appends a pass and returns its outputs.
  std::vector<ValueId> add_pass(kernels::Expression program, std::vector<ValueId> inputs,
                                const std::vector<graph::OutputSpec>& outputs);
  ValueId add_reduction(kernels::Expression program, std::vector<ValueId> inputs, kernels::Over over,
                        bool squares, bool mean, bool root);

 private:
  ValueId add_state(std::string_view kind, Shape shape, bool never_negative);
  ValueId add_state(std::string_view kind, Shape shape, RandomUse stream, bool never_negative);
  std::vector<ValueId> add(std::string_view op, kernels::Expression program, std::vector<ValueId> inputs,
                           graph::Attributes attributes, std::vector<graph::OutputSpec> outputs);

  UpdateGraph& out_;
  const Settings& settings_;
  const Parameter& parameter_;
  std::string label_;
  ValueId weight_ = graph::kNone, gradient_ = graph::kNone;
  std::optional<ValueId> compensation_;
  std::size_t states_ = 0;  // moments, which have a random stream each
};

/// One pass, written operation by operation. Operands have the shape of the results, or are a row [width], a
/// column [rows, 1], or one number.
class Sweep : private kernels::ExpressionBuilder {
 public:
  using ValueId = graph::ValueId;
  using ExpressionBuilder::abs, ExpressionBuilder::add, ExpressionBuilder::constant, ExpressionBuilder::div,
      ExpressionBuilder::max, ExpressionBuilder::min, ExpressionBuilder::mul, ExpressionBuilder::rsqrt,
      ExpressionBuilder::sign, ExpressionBuilder::sqrt, ExpressionBuilder::sub;
  using ExpressionBuilder::Reg;

  explicit Sweep(ParameterUpdate& p) : ExpressionBuilder(kernels::kMaxSweepInputs), p_(p) {}

  Reg read(ValueId value);
  /// Returns the gradient, unscaled and clipped.
  Reg gradient();
  Reg weight() { return read(p_.weight()); }
  /// from + (to − from)·share
  Reg lerp(Reg from, Reg to, Reg share) { return add(from, mul(sub(to, from), share)); }

  /// The results of a pass replace a state, are read by later passes, or move the weight.
  void write(ValueId state, Reg value);
  void make(Reg value, Shape shape, std::string_view name);
  /// Computes weight·(1 − lr·decay) − step. With a compensation, keeps the rounding error for the next
  /// update.
  void move_weight(Reg step);
  /// Computes weight − step.
  void move_weight_undecayed(Reg step);
  /// Ends the pass by move_weight(), or lets another pass do so if this one has no output left.
  void end_by_moving(Reg step);
  /// Appends the pass and returns the values from make(), in order.
  std::vector<ValueId> done();

  /// The result of a reduction. The first operand that was read has the shape of the terms.
  ValueId mean(Reg term, kernels::Over over) { return reduced(term, over, false, true, false); }
  ValueId mean_square(Reg term, kernels::Over over) { return reduced(term, over, true, true, false); }
  ValueId root_mean_square(Reg term) { return reduced(term, kernels::Over::all, true, true, true); }
  ValueId norm(Reg term) { return reduced(term, kernels::Over::all, true, false, true); }

 private:
  void move_compensated(Reg step);
  ValueId reduced(Reg term, kernels::Over over, bool squares, bool mean, bool root);

  ParameterUpdate& p_;
  std::vector<ValueId> inputs_;
  std::vector<graph::OutputSpec> outputs_;
};

}  // namespace mantissa::optim
