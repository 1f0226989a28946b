// A plan on this machine and on others.
#pragma once

#include <span>

#include "mantissa/explain/explained.h"

namespace mantissa::explain {

Here here(const plan::Program& program, const cost::Machine& machine, const runtime::Device& device);

/// Training on `target`. `config`, `model`: those that `program` was compiled from.
There training_on(const cost::Target& target, const config::RunConfig& config,
                  const model::ModelConfig& model, const plan::Program& program,
                  const runtime::Device& device);

/// Generation on `target`; `weights`: the bytes that are read for each token.
There generation_on(const cost::Target& target, const plan::Program& program, std::size_t weights);

}  // namespace mantissa::explain
