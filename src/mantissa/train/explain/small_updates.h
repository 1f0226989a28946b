// Warnings before a run about weights that its updates cannot move.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::explain {

/// Returns a warning for the weights of `program`, which trains, that round to nearest in a format below f32
/// and lose at least half of their typical updates at the highest learning rate. A typical update is what the
/// optimizer states (optim::Optimizer::typical_update), and typical weights are those of the initialization.
std::vector<std::string> small_update_warnings(const config::RunConfig& config, const plan::Program& program);

}  // namespace mantissa::explain
