// A weight stored again for products of few rows. Sixteen columns of Wᵀ lie side by side, so that a kernel
// reads memory in the order of its addresses and transposes nothing: on two cores of a Zen 5 server
// bench_thin reads 68 GB/s of f32 weights then, and 57 GB/s from rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// The rows of a matrix [rows, width], which are the columns of a product, in groups of kInterleaved. A group
/// holds words of 32 bits, word w of every row, then word w + 1: an f32 number, or two neighbours in a 16-bit
/// format. What is missing of the last group and the last word is zero.
inline constexpr std::int64_t kInterleaved = 16;

/// Returns true for formats that can be interleaved: f32, bf16 and f16.
constexpr bool interleaves(Scalar type) {
  return type == Scalar::f32 || type == Scalar::bf16 || type == Scalar::f16;
}

/// Returns the number of elements of a row with the rest of its last word.
constexpr std::int64_t interleaved_width(std::int64_t width, Scalar type) {
  return bytes_of(type) == 4 ? width : (width + 1) / 2 * 2;
}

/// Returns the bytes of an interleaved matrix.
constexpr std::size_t interleaved_bytes(std::int64_t rows, std::int64_t width, Scalar type) {
  const std::int64_t groups = (rows + kInterleaved - 1) / kInterleaved;
  return static_cast<std::size_t>(groups * kInterleaved * interleaved_width(width, type)) * bytes_of(type);
}

/// Writes `from` [rows, width], of a format that interleaves(), to `to`, which has interleaved_bytes() and
/// begins at a multiple of 64.
void interleave(const Context& ctx, std::int64_t rows, std::int64_t width, const ConstMatrix& from,
                std::byte* to);

}  // namespace mantissa::kernels
