// Means and norms of what an expression program makes of a parameter's elements: what some optimizers need to
// know of a whole tensor, its rows or its columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/kernels/pointwise.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// What one result is made of.
enum class Over : std::uint8_t { all, each_row, each_column };

/// The sum over `over` of the program's one output over [rows, width], of its squares where `squares`,
/// divided by the number of terms where `mean`, its square root where `root`. The program runs in
/// `arithmetic`, its operands broadcast as in sweeps; sums, division and root are f64, and the result is
/// rounded once to `type`.
///
/// Order of the sums, whatever threads and instruction sets: a row is cut into chunks of 4096 elements, a
/// chunk is summed over 16 virtual lanes (joined 8, 4, 2, 1), chunks are added in order. `all`: the rows'
/// sums are added in order, in chunks of 4096 rows, and the chunks in order. `each_column`: chunks of 256
/// rows, each one chain from zero; chunks are added in order.
struct Reduce {
  const Expression& program;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::span<const PointwiseInput> inputs;
  Scalar arithmetic = Scalar::f32;  // or f64
  Over over = Over::all;
  bool squares = false, mean = false, root = false;
  void* result = nullptr;  // [1], [rows] or [width]
  Scalar type = Scalar::f32;
};

/// Scratch that reduce() needs.
std::size_t reduce_workspace(std::int64_t rows, std::int64_t width, Over over);

void reduce(const Context& ctx, const Reduce& r);

}  // namespace mantissa::kernels
