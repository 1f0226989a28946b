// A conversion to packed blocks: the matrix, and where its elements and scales go.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/layout.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::kernels {

struct Packing {
  ConstMatrix from;  // dense
  std::size_t width = 0;
  Layout layout;  // with blocks
  std::uint8_t *elements = nullptr, *scales = nullptr;
  float tensor_scale = 1;
  BlockRounding how = {};

  std::uint8_t* elements_at(std::size_t row, std::size_t column) const {
    return elements + layout.element_offset(index(row), index(column), index(width));
  }
  std::uint8_t* scales_at(std::size_t row, std::size_t column) const {
    return scales + layout.scale_offset(index(row), index(column), index(width));
  }

 private:
  static std::int64_t index(std::size_t n) { return static_cast<std::int64_t>(n); }
};

}  // namespace mantissa::kernels
