// The format that stored values were rounded to, which may be narrower than the format that stores them.
#pragma once

#include <optional>

#include "mantissa/core/numeric/format.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// Returns the narrowest format that represents every value of the tensor and whose last place some value
/// needs, or else the format of the dtype. A trace stores bf16 values in f32: the result is bf16. For values
/// that need fewer places than any format has, such as ones, it is the format of the dtype. Null for integers
/// and other dtypes. Reads a tensor of 32 or 64 bits once. Throws FileError.
std::optional<Scalar> value_format(const io::WeightFiles& files, const io::TensorInfo& tensor,
                                   const kernels::Context& ctx);

}  // namespace mantissa::convert
