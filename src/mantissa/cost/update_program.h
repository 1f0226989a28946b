// From an optimizer and its parameters to the update program of a training program.
#pragma once

#include <span>
#include <vector>

#include "mantissa/optim/update_graph.h"
#include "mantissa/plan/program.h"
#include "mantissa/runtime/device.h"

namespace mantissa::cost {

/// An optimizer with the parameters that it updates, before a policy is chosen.
struct UpdateSource {
  const optim::Optimizer* optimizer = nullptr;
  optim::Settings settings;
  std::vector<optim::Parameter> parameters;
};

/// The graph of an update under `policy`, which says whose weights keep what rounding them loses.
optim::UpdateGraph update_graph(const UpdateSource& source, const precision::Policy& policy);

/// Gives `training` its update, under its policy; returns the numbers that the update reads, to be given
/// before each run.
std::vector<optim::Number> add_update(plan::Program& training, const UpdateSource& source,
                                      const runtime::Device& device);

}  // namespace mantissa::cost
