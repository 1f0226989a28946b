// A weight stored again for products of few rows. Sixteen columns of Wᵀ lie side by side, so that a kernel
// reads memory in the order of its addresses and transposes nothing: on two cores of a Zen 5 server
// bench_thin reads 68 GB/s of f32 weights then, and 57 GB/s from rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/quants.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

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

/// Returns true for quantized formats that can be interleaved: those with scales in their blocks. A group
/// then holds for every two blocks of 32 elements of its rows, of which the last may be missing:
/// - the words with their scales: the two scales of a row, or each with its minimum if there is one;
/// - for each block, the words with the fifth bits of the codes, if there are any, and those of the codes.
/// These are as many bytes as in rows.
constexpr bool interleaves(QuantFormat format) {
  return !traits(format).apart;
}

/// Returns the words of two blocks of a row with their scales, and those of a block with its fifth bits and
/// its codes.
constexpr std::size_t interleaved_scale_words(QuantFormat format) {
  return traits(format).minimum ? 2 : 1;
}
constexpr std::size_t interleaved_fifth_words(QuantFormat format) {
  return traits(format).code_bits == 5 ? 1 : 0;
}
constexpr std::size_t interleaved_code_words(QuantFormat format) {
  return traits(format).code_bits == 8 ? 8 : 4;
}
constexpr std::size_t interleaved_pair_words(QuantFormat format) {
  return interleaved_scale_words(format) +
         2 * (interleaved_fifth_words(format) + interleaved_code_words(format));
}

/// Returns the bytes of an interleaved row of whole blocks.
constexpr std::size_t interleaved_row_bytes(std::int64_t width, QuantFormat format) {
  const std::size_t blocks = static_cast<std::size_t>(width) / kQuantBlock;
  return (blocks + 1) / 2 * interleaved_pair_words(format) * 4;
}

/// Returns the bytes of an interleaved matrix whose rows are whole blocks.
constexpr std::size_t interleaved_bytes(std::int64_t rows, std::int64_t width, QuantFormat format) {
  const std::int64_t groups = (rows + kInterleaved - 1) / kInterleaved;
  return static_cast<std::size_t>(groups * kInterleaved) * interleaved_row_bytes(width, format);
}

/// Writes the rows of blocks at `from` to `to`, which has interleaved_bytes() and begins at a multiple of 64.
void interleave(const Context& ctx, std::int64_t rows, std::int64_t width, QuantFormat format,
                const std::byte* from, std::byte* to);

/// Writes `from` [rows, width], of a format that interleaves(), to `to`, which has interleaved_bytes() and
/// begins at a multiple of 64.
void interleave(const Context& ctx, std::int64_t rows, std::int64_t width, const ConstMatrix& from,
                std::byte* to);

}  // namespace mantissa::kernels
