// The verdict of an audit.
#pragma once

#include <string>

#include "mantissa/lab/audit/audit.h"

namespace mantissa::lab {

/// Returns one paragraph about all findings, what was observed, and what was not.
std::string verdict_of(const Audit& audit);

}  // namespace mantissa::lab
