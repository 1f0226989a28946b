// The help on one key of a config.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

struct KeyHelp {
  OptionInfo key;
  std::string values;                  // "greater than 0", "stop, skip, continue"; "" if the type says it
  std::vector<std::string> spellings;  // in other trainers
  /// train.objective and the default under it, where it differs from `key.default_value`.
  std::vector<std::pair<std::string, std::string>> defaults;
};

/// Returns the help on `key`, one of options().
KeyHelp help_of(const OptionInfo& key);

}  // namespace mantissa::config
