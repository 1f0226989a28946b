// Where the held-out rows of a run come from.
#pragma once

#include <string>

#include "mantissa/setup/config/run_config.h"

namespace mantissa::lab {

/// Returns the settings that choose the held-out rows: "0.1 of kk (2 to 3 people, seed 1)", or the files.
/// Equal texts mean equal rows, as long as their number is the same.
std::string held_out_of(const config::RunConfig& config);

}  // namespace mantissa::lab
