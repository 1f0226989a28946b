// The update of all parameters as one graph, which the plan compiles into an update program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/engine/graph/graph.h"
#include "mantissa/engine/optim/optimizer.h"

namespace mantissa::optim {

/// The values that the numbers of an update depend on.
struct Progress {
  double lr = 0;                    // from the schedule
  std::int64_t t = 1;               // count of applied updates, from 1
  double gradient_factor = 1;       // unscales and clips
  Scalar arithmetic = Scalar::f32;  // of the update program
};

/// A number that an update reads: an input of the graph, set before each run.
struct Number {
  std::string name;
  std::function<double(const Progress&)> of;
  std::optional<double> undecayed{};  // the value without weight decay, for the factor of a decoupled decay
};

/// A parameter and the properties that its update depends on.
struct Parameter {
  std::string name;
  Shape shape;
  bool hidden_matrix = false;  // a matrix of a linear layer, but not the embedding or the head
  bool compensated = false;    // has a compensation for the rounding error of the weight
  double lr_scale = 1;
  double weight_decay = 0;
};

/// Returns the names, shapes and uses of the trained parameters of a model's graph.
std::vector<Parameter> trained_parameters(const graph::Graph& model);

struct UpdateGraph {
  graph::Graph graph;
  std::vector<Number> numbers;
};

/// Builds the update of `parameters` by `optimizer`. States are named "first_moment.NAME",
/// "compensation.NAME" and so on, gradients "gradient.NAME".
UpdateGraph build_update(const Optimizer& optimizer, const Settings& settings,
                         std::span<const Parameter> parameters);

}  // namespace mantissa::optim
