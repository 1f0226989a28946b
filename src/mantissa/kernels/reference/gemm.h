// The matrix product as its formula says, in double, one element at a time. The kernel is judged by this.
#pragma once

#include <vector>

#include "mantissa/kernels/gemm.h"

namespace mantissa::kernels::reference {

/// A product's result, rounded where `gemm` rounds it, and the size of what was summed.
struct GemmResult {
  std::vector<double> c;          // [m, n], dense
  std::vector<double> magnitude;  // [m, n]: |C before| + Σ|a||b| + |bias| + |addend|
};

/// `g` in double: operands rounded to `operand`, terms summed in ascending k (within the rows, where there
/// are any), the epilogue, and C's rounding. Reads C where g accumulates; writes nothing.
GemmResult gemm(const Gemm& g);

}  // namespace mantissa::kernels::reference
