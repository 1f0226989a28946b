// The differences between the elements of two tensors with the same number of elements.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/core/numeric/format.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// Counts and errors (b − a) of the elements. NaN equals NaN, and −0 equals +0; such elements whose bits
/// differ are counted separately. The errors cover the elements that are finite on both sides.
struct ElementDifferences {
  std::uint64_t count = 0;
  std::uint64_t differ = 0;      // elements whose values differ
  std::uint64_t nonfinite = 0;   // of these, those with inf or NaN on a side
  std::uint64_t zero_signs = 0;  // −0 and +0
  std::uint64_t nan_bits = 0;    // NaN on both sides with another sign or payload, if the dtypes are equal
  std::optional<std::uint64_t> first;       // the first element whose values differ
  std::optional<std::uint64_t> first_bits;  // the first element counted above
  double first_a = 0, first_b = 0;          // the values at `first`
  std::uint64_t measured = 0;               // elements that are finite on both sides
  double max_abs = 0;                       // largest |b − a|
  double sum_abs = 0, sum = 0;              // sums of |b − a| and of b − a
  double sum_squares = 0;                   // of b − a
  double sum_squares_a = 0;                 // of a, over the measured elements
  double largest = 0;                       // largest finite magnitude on either side
  double max_ulp = 0;  // largest |b − a| in units of the last place at the larger magnitude

  /// Adds the differences of the elements that follow.
  void merge(const ElementDifferences& next);
  double mean_abs() const { return measured == 0 ? 0 : sum_abs / static_cast<double>(measured); }
  /// Returns the signed mean of the errors, the bias.
  double bias() const { return measured == 0 ? 0 : sum / static_cast<double>(measured); }
  /// Returns the largest error as a share of the largest magnitude; 0 if all values are zero.
  double relative() const { return largest == 0 ? 0 : max_abs / largest; }
};

/// One side of a comparison.
struct TensorSide {
  const io::WeightFiles* files = nullptr;
  const io::TensorInfo* tensor = nullptr;  // of `files`
};

/// Returns true if values of the dtypes can be compared as numbers: floating-point numbers, integers and
/// booleans.
bool have_numbers(io::Dtype a, io::Dtype b);

/// Compares two tensors with the same number of elements, piece by piece. Dtypes without numbers are compared
/// as bytes: only `count`, `differ` and the indices are set, and every element differs if the dtypes do.
/// `unit` is the format of `max_ulp`; null: none. Integers are compared exactly. Throws FileError.
ElementDifferences compare_elements(const TensorSide& a, const TensorSide& b, std::optional<Scalar> unit,
                                    const kernels::Context& ctx);

}  // namespace mantissa::convert
