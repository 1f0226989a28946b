// [optimizer]: the keys of the registered optimizers, and parameter groups.
#pragma once

#include <string>
#include <vector>

#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/options.h"

namespace mantissa::config {

/// Returns the keys of all registered optimizers, each once.
std::vector<Option> optimizer_options();

/// Returns true if the optimizer `name` takes the key of [optimizer]. Every optimizer takes name, lr,
/// max_grad_norm and group.
bool takes(std::string_view name, std::string_view key);

/// Sets the defaults of the chosen optimizer and reads the groups. Throws ConfigError for keys that the
/// optimizer does not take.
void settle_optimizer(RunConfig& config, const Entries& entries);

/// Returns an "[[optimizer.group]]" table for each group, or "" without groups.
std::string groups_text(const std::vector<optim::Group>& groups);

}  // namespace mantissa::config
