// The update of a training program's weights, compiled.
#pragma once

#include <span>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/optim/update_graph.h"
#include "mantissa/plan/program.h"

namespace mantissa::cost {

struct UpdateProgram {
  plan::Program program;
  std::vector<optim::Number> numbers;  // inputs of the program, to be given before each run
};

/// An optimizer with the parameters that it updates, before a policy is chosen.
struct UpdateSource {
  const optim::Optimizer* optimizer = nullptr;
  optim::Settings settings;
  std::vector<optim::Parameter> parameters;
};

/// The graph of an update under `policy`, which says whose weights keep what rounding them loses.
optim::UpdateGraph update_graph(const UpdateSource& source, const precision::Policy& policy);

/// The update of the weights of `training`, under its policy.
UpdateProgram compile_update(const UpdateSource& source, const plan::Program& training,
                             const kernels::Context& ctx);

}  // namespace mantissa::cost
