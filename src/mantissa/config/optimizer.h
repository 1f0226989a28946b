// [optimizer]: the keys of the registry's optimizers, and parameter groups.
#pragma once

#include <string>
#include <vector>

#include "mantissa/config/entries.h"
#include "mantissa/config/options.h"

namespace mantissa::config {

/// The keys that the optimizers of the registry take, each once.
std::vector<Option> optimizer_options();

/// Whether the optimizer called `name` takes the key of [optimizer]. All take name, lr, max_grad_norm and
/// group.
bool takes(std::string_view name, std::string_view key);

/// Fills in the defaults of the chosen optimizer, and reads the groups. Throws ConfigError for keys that it
/// does not take.
void settle_optimizer(RunConfig& config, const Entries& entries);

/// "[[optimizer.group]]" for each group; "" where there are none.
std::string groups_text(const std::vector<optim::Group>& groups);

}  // namespace mantissa::config
