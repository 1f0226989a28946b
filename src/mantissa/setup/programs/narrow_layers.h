// Frozen weights that keep the policy's formats because blocks cannot hold their rows
// (core/tensor/narrow_rows.h).
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::programs {

/// Returns notes on the linear layers of a model whose base is held in blocks.
std::vector<std::string> narrow_layers_notes(const model::ModelConfig& model);

/// Returns notes on those of a run: of its adapter's base, or of the optimizer's groups.
std::vector<std::string> narrow_layers_notes(const config::RunConfig& config,
                                             const model::ModelConfig& model);

}  // namespace mantissa::programs
