// Shapes of what belongs to the chosen experts of a token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "mantissa/core/tensor/shape.h"

namespace mantissa::graph {

/// Returns the shape with another last dimension.
inline Shape with_last(const Shape& shape, std::int64_t size) {
  std::vector<Dim> dims(shape.dims().begin(), shape.dims().end() - 1);
  dims.push_back({size, Axis::fixed});
  return Shape(std::move(dims));
}

/// Returns the shape with one more dimension at its end.
inline Shape with_more(const Shape& shape, std::int64_t size) {
  std::vector<Dim> dims(shape.dims().size() + 1);
  std::ranges::copy(shape.dims(), dims.begin());
  dims.back() = {size, Axis::fixed};
  return Shape(std::move(dims));
}

}  // namespace mantissa::graph
