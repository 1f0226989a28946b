// A plan on this machine and on others.
#pragma once

#include <span>

#include "mantissa/explain/explained.h"

namespace mantissa::explain {

Here here(const plan::Program& program, const cost::Machine& machine, const runtime::Device& device);

/// Returns the plan of training on `target`. `program` was compiled from `config` and `model`.
There training_on(const cost::Target& target, const config::RunConfig& config,
                  const model::ModelConfig& model, const plan::Program& program,
                  const runtime::Device& device);

/// Returns the plan of generation on `target`. `weights` is the number of bytes read for each token.
There generation_on(const cost::Target& target, const plan::Program& program, std::size_t weights);

}  // namespace mantissa::explain
