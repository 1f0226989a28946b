#include "mantissa/core/tensor/shape.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"

namespace mantissa {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) dims_.push_back({size, Axis::fixed});
}

Shape Shape::tokens(std::int64_t tokens, std::initializer_list<std::int64_t> features) {
  Shape shape(features);
  shape.dims_.insert(shape.dims_.begin(), {tokens, Axis::tokens});
  return shape;
}

Shape Shape::rows(std::int64_t rows, std::initializer_list<std::int64_t> features) {
  Shape shape(features);
  shape.dims_.insert(shape.dims_.begin(), {rows, Axis::rows});
  return shape;
}

std::vector<std::int64_t> Shape::sizes() const {
  std::vector<std::int64_t> out;
  for (const Dim& d : dims_) out.push_back(d.size);
  return out;
}

std::int64_t Shape::count() const {
  std::int64_t n = 1;
  for (const Dim& d : dims_) {
    if (d.size < 0 || __builtin_mul_overflow(n, d.size, &n)) {
      throw ShapeError("shape {}: expected an element count from 0 to 2^63 - 1", str());
    }
  }
  return n;
}

std::string Shape::str() const {
  std::string text = "[";
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    const char* unit = dims_[i].axis == Axis::tokens ? " tokens" : dims_[i].axis == Axis::rows ? " rows" : "";
    text += fmt::format("{}{}{}", i == 0 ? "" : ", ", dims_[i].size, unit);
  }
  return text + "]";
}

}  // namespace mantissa
