// What an optimizer writes the update of one parameter with: states, numbers, passes over the elements, means
// and products. No number format is named: the plan gives each value its own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/graph/op.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/reduce.h"
#include "mantissa/optim/update_graph.h"

namespace mantissa::optim {

class ParameterUpdate {
 public:
  using ValueId = graph::ValueId;

  ParameterUpdate(UpdateGraph& out, const Optimizer& optimizer, const Settings& settings,
                  const Parameter& parameter);

  const Parameter& parameter() const { return parameter_; }
  const Shape& shape() const { return parameter_.shape; }

  /// Settings by their keys.
  double real(std::string_view key) const { return std::get<double>(settings_.find(key)->second); }
  std::int64_t whole(std::string_view key) const {
    return std::get<std::int64_t>(settings_.find(key)->second);
  }
  bool flag(std::string_view key) const { return std::get<bool>(settings_.find(key)->second); }
  std::array<double, 2> betas() const {
    return std::get<std::array<double, 2>>(settings_.find("betas")->second);
  }

  /// What explain calls the steps that follow, where that is not the optimizer's name.
  void set_label(std::string_view label) { label_ = label; }

  ValueId weight() const { return weight_; }
  ValueId gradient() const { return gradient_; }  // scaled and not clipped
  /// What rounding the weight loses, where that is kept.
  std::optional<ValueId> compensation();

  /// A moment, which begins at zero: "KIND.NAME". Random bits of stochastic rounding follow the order in
  /// which states are declared.
  ValueId state(std::string_view kind, Shape shape);
  ValueId state(std::string_view kind) { return state(kind, shape()); }

  /// A number of each run, formed in double; one input of the graph for all parameters with the same rule,
  /// learning rate scale and decay.
  ValueId number(std::string_view name, std::function<double(const Progress&)> of);
  /// Numbers that most rules have: unscaling and clipping; the learning rate; the factor by which a weight
  /// decays, 1 − lr·decay, or where what rounding loses is kept lr·decay.
  ValueId gradient_factor();
  ValueId lr();
  ValueId decay();

  /// C = A·B, each as it lies or transposed.
  ValueId product(ValueId a, ValueId b, bool transpose_a, bool transpose_b);

  const graph::Value& value(ValueId id) const { return out_.graph.value(id); }
  /// The weight or a state as an output that replaces it.
  graph::OutputSpec in_place(ValueId value) const;
  /// Appends a pass; returns its outputs.
  std::vector<ValueId> add_pass(kernels::Expression program, std::vector<ValueId> inputs,
                                const std::vector<graph::OutputSpec>& outputs);
  ValueId add_reduction(kernels::Expression program, std::vector<ValueId> inputs, kernels::Over over,
                        bool squares, bool mean, bool root);

 private:
  std::vector<ValueId> add(std::string_view op, kernels::Expression program, std::vector<ValueId> inputs,
                           graph::Attributes attributes, std::vector<graph::OutputSpec> outputs);

  UpdateGraph& out_;
  const Settings& settings_;
  const Parameter& parameter_;
  std::string label_;
  ValueId weight_ = graph::kNone, gradient_ = graph::kNone;
  std::optional<ValueId> compensation_;
  std::size_t states_ = 0;
};

/// One pass, written operation by operation. Operands have the shape of the results, or are a row [width], a
/// column [rows, 1] or one number for all of them.
class Sweep : private kernels::ExpressionBuilder {
 public:
  using ValueId = graph::ValueId;
  using ExpressionBuilder::abs, ExpressionBuilder::add, ExpressionBuilder::constant, ExpressionBuilder::div,
      ExpressionBuilder::max, ExpressionBuilder::min, ExpressionBuilder::mul, ExpressionBuilder::rsqrt,
      ExpressionBuilder::sign, ExpressionBuilder::sqrt, ExpressionBuilder::sub;
  using ExpressionBuilder::Reg;

  explicit Sweep(ParameterUpdate& p) : ExpressionBuilder(kernels::kMaxSweepInputs), p_(p) {}

  Reg read(ValueId value);
  /// The gradient, unscaled and clipped.
  Reg gradient();
  Reg weight() { return read(p_.weight()); }
  /// from + (to − from)·share
  Reg lerp(Reg from, Reg to, Reg share) { return add(from, mul(sub(to, from), share)); }

  /// What ends a pass: results that replace a state, that are read by later passes, or that move the weight.
  void write(ValueId state, Reg value);
  void make(Reg value, Shape shape, std::string_view name);
  /// weight·(1 − lr·decay) − step; what rounding it loses is kept for the next update where that is asked
  /// for.
  void move_weight(Reg step);
  /// weight − step
  void move_weight_undecayed(Reg step);
  /// Appends the pass; returns what make() made, in order.
  std::vector<ValueId> done();

  /// What ends a reduction: its terms. The first operand that was read has their shape.
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
