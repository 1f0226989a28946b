// Reference for the matrix product by its formula, in double, one element at a time.
#pragma once

#include <vector>

#include "mantissa/kernels/gemm.h"

namespace mantissa::kernels::reference {

/// A product rounded where `gemm` rounds it, and the sum of the magnitudes of its terms.
struct GemmResult {
  std::vector<double> c;          // [m, n], dense
  std::vector<double> magnitude;  // [m, n]: |C before| + Σ|a||b| + |bias| + |addend|
};

/// Computes `g` in double: operands rounded to `operand`, terms summed in ascending k (within the rows, if
/// any), the epilogue, and C's rounding. Reads C if g accumulates; writes nothing.
GemmResult gemm(const Gemm& g);

}  // namespace mantissa::kernels::reference
