#include "mantissa/core/tensor/layout.h"

#include <utility>

#include "mantissa/core/tensor/storage.h"

namespace mantissa {
namespace {

std::int64_t blocks_of(BlockFormat format, std::int64_t elements) {
  const std::int64_t block = traits(format).block;
  return (elements + block - 1) / block;
}

}  // namespace

std::size_t QuantizedMatrix::bytes(std::int64_t rows, std::int64_t width) const {
  if (transposed) std::swap(rows, width);
  return quant_bytes(format, static_cast<std::size_t>(rows), static_cast<std::size_t>(width));
}

QuantRows QuantizedMatrix::rows_of(const void* data, std::int64_t rows, std::int64_t width) const {
  if (transposed) std::swap(rows, width);
  return quant_rows(format, data, static_cast<std::size_t>(rows), static_cast<std::size_t>(width));
}

std::size_t Layout::element_bits() const {
  if (blocks) return static_cast<std::size_t>(traits(blocks->format).element_bits);
  return 8 * (integer ? sizeof(std::int32_t) : bytes_of(type));
}

std::size_t Layout::row_bytes(std::int64_t width) const {
  return (static_cast<std::size_t>(width) * element_bits() + 7) / 8;
}

std::int64_t Layout::scales_per_row(std::int64_t width) const {
  return blocks->along_rows ? width : blocks_of(blocks->format, width);
}

std::size_t Layout::scales_begin(std::int64_t rows, std::int64_t width) const {
  return aligned(static_cast<std::size_t>(rows) * row_bytes(width));
}

std::size_t Layout::scale_offset(std::int64_t row, std::int64_t column, std::int64_t width) const {
  const std::int64_t block = traits(blocks->format).block;
  const std::int64_t at =
      blocks->along_rows ? row / block * width + column : row * scales_per_row(width) + column / block;
  return static_cast<std::size_t>(at);
}

std::size_t Layout::element_offset(std::int64_t row, std::int64_t column, std::int64_t width) const {
  return static_cast<std::size_t>(row) * row_bytes(width) +
         static_cast<std::size_t>(column) * element_bits() / 8;
}

std::size_t Layout::bytes(std::int64_t rows, std::int64_t width) const {
  if (!blocks) return static_cast<std::size_t>(rows) * row_bytes(width);
  const std::int64_t scale_rows = blocks->along_rows ? blocks_of(blocks->format, rows) : rows;
  return scales_begin(rows, width) + static_cast<std::size_t>(scale_rows * scales_per_row(width));
}

std::size_t Layout::bytes(const Shape& shape) const {
  return bytes(shape.leading(), shape.last());
}

}  // namespace mantissa
