// The list of runs as text.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/lab/list_runs.h"

namespace mantissa::lab {

/// Returns "complete", "running", "stopped" or "unreadable".
std::string_view name(ListedRun::State state);

/// Returns the runs as a table with times of this place, or a sentence if there are none.
std::string to_text(const RunList& list);
/// Returns a JSON array (docs/cli/runs.md). Numbers that no file has are null; times are UTC.
std::string to_json(const RunList& list);

}  // namespace mantissa::lab
