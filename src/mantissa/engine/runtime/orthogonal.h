// Random orthogonal matrices, the initial values of some weights.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/core/numeric/philox.h"
#include "mantissa/kernels/context.h"

namespace mantissa::runtime {

/// Returns a matrix [rows, columns] whose rows or columns, whichever are fewer, are orthogonal and of length
/// `gain`: the first factor of the QR decomposition, with a positive diagonal in the second, of normal
/// numbers from `stream`. The result has the Haar distribution (Mezzadri, 2007). Its bits depend only on the
/// arguments.
std::vector<double> orthogonal_matrix(const kernels::Context& ctx, const RandomStream& stream,
                                      std::int64_t rows, std::int64_t columns, double gain);

}  // namespace mantissa::runtime
