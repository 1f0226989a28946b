// The update of all parameters as one graph: what the plan compiles into an update program.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/numeric/format.h"
#include "mantissa/optim/optimizer.h"

namespace mantissa::optim {

/// What the numbers of an update depend on.
struct Progress {
  double lr = 0;                    // of the schedule
  std::int64_t t = 1;               // of applied updates, from 1
  double gradient_factor = 1;       // unscales and clips
  Scalar arithmetic = Scalar::f32;  // of the update program
};

/// A number that an update reads: an input of the graph, given before each run.
struct Number {
  std::string name;
  std::function<double(const Progress&)> of;
};

/// A parameter as its update sees it.
struct Parameter {
  std::string name;
  Shape shape;
  bool hidden_matrix = false;  // a matrix that linear layers multiply by: neither embedding, head nor vector
  bool compensated = false;    // what rounding the weight loses is kept
  double lr_scale = 1;
  double weight_decay = 0;
};

/// The parameters of a model's graph that are trained: their names, shapes and uses.
std::vector<Parameter> trained_parameters(const graph::Graph& model);

struct UpdateGraph {
  graph::Graph graph;
  std::vector<Number> numbers;
};

/// The update of `parameters` by `optimizer`. States are named "first_moment.NAME", "compensation.NAME" and
/// so on, gradients "gradient.NAME".
UpdateGraph build_update(const Optimizer& optimizer, const Settings& settings,
                         std::span<const Parameter> parameters);

}  // namespace mantissa::optim
