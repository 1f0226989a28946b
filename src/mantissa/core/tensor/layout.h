// How the elements of a buffer lie in memory: one after the other in a plain format, or packed in blocks that
// share scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/quants.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/tensor/shape.h"

namespace mantissa {

/// The block format of a matrix and the direction of its blocks. The first block of a row, or of a column,
/// starts at its first element; the last one may be shorter.
struct Blocks {
  BlockFormat format = BlockFormat::mxfp8;
  bool along_rows = false;  // a block lies along a column, over consecutive rows; else along a row
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// A matrix in quantized blocks (core/numeric/quants.h). Its rows follow one another.
struct QuantizedMatrix {
  QuantFormat format = QuantFormat::q8_0;
  bool transposed = false;  // rows of blocks are columns of the matrix

  /// Returns the bytes of a matrix [rows, width].
  std::size_t bytes(std::int64_t rows, std::int64_t width) const;
  std::size_t bytes(const Shape& shape) const { return bytes(shape.leading(), shape.last()); }
  /// Returns the rows of blocks of a matrix [rows, width] at `data`.
  QuantRows rows_of(const void* data, std::int64_t rows, std::int64_t width) const;
  friend bool operator==(const QuantizedMatrix&, const QuantizedMatrix&) = default;
};

/// The layout of a matrix [rows, width] whose rows follow one another.
///
/// Without blocks, elements are of `type`, or int32. With blocks, every row of elements starts at a byte;
/// elements of 4 bits lie two to a byte, the one of the even column in the low half. The scales follow the
/// elements, from the next multiple of kAlignment on, one byte each (e8m0, in nvfp4 e4m3): for every row one
/// per block, or, with blocks along columns, for every row of blocks one per column.
struct Layout {
  Scalar type = Scalar::f32;  // with blocks: a plain format of their values (core/numeric/scaled.h)
  bool integer = false;       // int32
  std::optional<Blocks> blocks = {};

  /// Bits of one element, without its share of a scale.
  std::size_t element_bits() const;
  /// Bytes from one row of elements to the next.
  std::size_t row_bytes(std::int64_t width) const;
  /// Scales of one row, or of one row of blocks. Requires blocks, as the functions below do.
  std::int64_t scales_per_row(std::int64_t width) const;
  /// Bytes from the first element to the first scale.
  std::size_t scales_begin(std::int64_t rows, std::int64_t width) const;
  /// Bytes from the first scale to the one of the element (row, column).
  std::size_t scale_offset(std::int64_t row, std::int64_t column, std::int64_t width) const;
  /// Bytes from the first element to the one at (row, column). With 4 bits an odd column lies in the upper
  /// half of that byte.
  std::size_t element_offset(std::int64_t row, std::int64_t column, std::int64_t width) const;

  /// Bytes of elements and scales.
  std::size_t bytes(std::int64_t rows, std::int64_t width) const;
  /// The same at the shape's capacity; the last dimension is the width.
  std::size_t bytes(const Shape& shape) const;

  friend bool operator==(const Layout&, const Layout&) = default;
};

}  // namespace mantissa
