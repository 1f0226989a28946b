// The files that a trace may replace.
#pragma once

#include "mantissa/train/steps/trace.h"

namespace mantissa::train {

/// Throws FileError if the trace must not be written to options.out: if that is a directory or an input, or,
/// unless options.overwrite, another file that is not empty. An earlier trace is always replaced, also in the
/// model's directory.
void check_place(const TraceOptions& options);

}  // namespace mantissa::train
