// A plan on this machine and on others.
#pragma once

#include <span>

#include "mantissa/setup/programs/training.h"
#include "mantissa/train/explain/explained.h"

namespace mantissa::explain {

Here here(const plan::Program& program, const forecast::Machine& machine, const runtime::Device& device);

/// Returns the plan of training on `target`. `parts` were compiled from `run` and `model`; part `part` is
/// explained. The memory, the batch that fits and the total time are those of all stages.
There training_on(const forecast::Target& target, const config::RunConfig& run,
                  const model::ModelConfig& model, std::span<const programs::RunPart> parts, std::size_t part,
                  const runtime::Device& device);

/// Returns the plan of generation on `target`. `weights` is the number of bytes read for each token.
There generation_on(const forecast::Target& target, const plan::Program& program, std::size_t weights);

}  // namespace mantissa::explain
