// The formats of the tensors of a trace, for its metadata.
#pragma once

#include <string>

#include "mantissa/engine/plan/program.h"

namespace mantissa::train {

/// The entry of a trace's metadata with formats_of().
inline constexpr const char* kFormatsKey = "mantissa.formats";

/// Returns a JSON object: for the name of each tensor that a trace of `program` can have, the formats of the
/// op that computes it, as `explain` names them: "store" (of the weight or input), "multiply", "accumulate",
/// "interior" (of intermediate results) and "output" (of the values). Formats that an op does not have are
/// missing.
std::string formats_of(const plan::Program& program);

}  // namespace mantissa::train
