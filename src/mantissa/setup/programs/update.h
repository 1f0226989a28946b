// The update program of a training program, from an optimizer and its parameters.
#pragma once

#include <vector>

#include "mantissa/engine/optim/update_graph.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"

namespace mantissa::programs {

/// An optimizer and the parameters that it updates, before a policy is chosen.
struct UpdateSource {
  const optim::Optimizer* optimizer = nullptr;
  optim::Settings settings;
  std::vector<optim::Parameter> parameters;
};

/// Returns the graph of an update under `policy`, which decides whether weights keep a compensation.
optim::UpdateGraph update_graph(const UpdateSource& source, const precision::Policy& policy);

/// Adds the update to `training`, under its policy. Returns the numbers that the update reads, which must be
/// set before each run.
std::vector<optim::Number> add_update(plan::Program& training, const UpdateSource& source,
                                      const runtime::Device& device);

}  // namespace mantissa::programs
