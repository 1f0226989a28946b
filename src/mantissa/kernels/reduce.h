// Means and norms of the output of an expression program over a parameter: statistics of a whole tensor, its
// rows or its columns, which some optimizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels {

/// The elements that contribute to one result.
enum class Over : std::uint8_t { all, each_row, each_column };

/// Sums the program's single output over [rows, width] along `over`. `squares`: sums its squares. `mean`:
/// divides by the number of terms. `root`: takes the square root. The program runs in `arithmetic`, and its
/// operands broadcast as in sweeps. Sums, division and root are f64. The result rounds once to `type`. The
/// order of summation does not depend on threads or instruction sets. A row is divided into chunks of 4096
/// elements, a chunk is summed over 16 virtual lanes (joined 8, 4, 2, 1), and chunks are added in order.
/// `all`: row sums are added in order in chunks of 4096 rows, then the chunks in order. `each_column`: each
/// chunk of 256 rows is one chain from zero, and chunks are added in order.
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

/// Returns the bytes of workspace that reduce() needs.
std::size_t reduce_workspace(std::int64_t rows, std::int64_t width, Over over);

void reduce(const Context& ctx, const Reduce& r);

}  // namespace mantissa::kernels
