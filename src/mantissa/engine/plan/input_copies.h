// Finds or adds the copies of values in the formats in which steps read them.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "mantissa/engine/plan/policy_uses.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/plan/served_weights.h"
#include "mantissa/engine/plan/step_builder.h"

namespace mantissa::plan {

/// The copies of one program. The optimizer or the weight set writes those of weights, a step before the
/// first reader those of other values.
class InputCopies {
 public:
  /// All must outlive it.
  InputCopies(const graph::Graph& graph, PolicyUses& uses, Program& program, StepBuilder& steps)
      : graph_(graph),
        uses_(uses),
        program_(program),
        steps_(steps),
        served_(served_weights(graph, program.policy)) {}

  /// Returns input i of `node`: `b`, or a copy of it in the format in which `node` reads it if that cannot
  /// represent its values.
  Operand input(const graph::Node& node, std::size_t i, BufferId b);

  /// Returns the constant `b` with intermediate results rounded to `interior`.
  BufferId constant(BufferId b, Scalar interior);

 private:
  bool reads_copy(const graph::Node& node, const Buffer& from);
  Operand as_value(const graph::Node& node, BufferId b);
  Operand as_factor(const graph::Node& node, std::size_t i, const precision::Resolved& r, BufferId b);
  Operand as_scaled(const graph::Node& node, BufferId b, ScaledStorage q, const precision::Resolved& r,
                    Scalar element);
  BufferId weight_in(Scalar type, BufferId master);
  /// Returns how a weight is rounded before any use, and the format that represents its values then.
  kernels::WeightRounding served(const Buffer& from) const;
  Scalar held_in(const Buffer& from) const;

  const graph::Graph& graph_;
  PolicyUses& uses_;
  Program& program_;
  StepBuilder& steps_;
  std::map<std::pair<BufferId, Scalar>, std::pair<BufferId, graph::Phase>> casts_;
  std::map<std::pair<BufferId, Scalar>, BufferId> constants_;
  std::map<BufferId, std::vector<BufferId>> scaled_;
  std::vector<kernels::WeightRounding> served_;  // by value of the graph
};

}  // namespace mantissa::plan
