// Adds buffers and steps to the program of a graph, with the formats that the policy gives them.
#pragma once

#include <string>

#include "mantissa/engine/plan/policy_uses.h"
#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

class StepBuilder {
 public:
  /// All must outlive it.
  StepBuilder(const graph::Graph& graph, PolicyUses& uses, Program& program)
      : graph_(graph), uses_(uses), program_(program) {}

  /// Adds a buffer for `value`, or for none of the graph's values.
  BufferId add_buffer(std::string name, const Shape& shape, Scalar type, Home home,
                      graph::ValueId value = graph::kNone);

  /// Returns a step for `node`, without inputs and outputs.
  Step step_for(const graph::Node& node);

  /// Adds a step that rounds `from`, a result or an input of `node`, to the format of `to`.
  void add_cast(const graph::Node& node, BufferId from, BufferId to);

  /// Returns the key of the random numbers with which the contents of `b` round.
  std::uint64_t random_name(const Buffer& b) const;

 private:
  void round_states(const graph::Node& node, Step& s) const;
  std::string name_of(const Buffer& b) const;

  const graph::Graph& graph_;
  PolicyUses& uses_;
  Program& program_;
};

}  // namespace mantissa::plan
