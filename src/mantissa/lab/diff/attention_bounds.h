// What attention adds to the bound of lab/diff/rounding.h: sharp scores, and gradients below a format's
// range.
#pragma once

#include <string>

#include "mantissa/files/io/checkpoint.h"
#include "mantissa/lab/diff/formats.h"

namespace mantissa::lab {

/// Returns A of rounding.h for the values `name` of two traces, from the log-sum-exps in one of the files. 0
/// for other ops.
double sharpness(const std::string& name, const io::WeightFiles& a, const io::WeightFiles& b);

/// Returns R of rounding.h for the gradient of the weight `name`: the relative error that the range of a
/// format causes in the backward pass of the attention whose operands the weight computes. 0 for other
/// weights, and if neither trace has the values of that pass.
double range_error(const std::string& name, const io::WeightFiles& a, const io::WeightFiles& b,
                   const TraceFormats& formats_a, const TraceFormats& formats_b);

}  // namespace mantissa::lab
