// Single elements of an array in any format, for tests that look at one after another: load_row() and
// store_row() choose an instruction set for each call, which takes longer than a conversion.
#pragma once

#include <cstddef>
#include <cstring>

#include "mantissa/core/numeric/convert.h"

namespace mantissa::testing {

inline double element(const std::byte* data, Scalar type, std::size_t i) {
  double value = 0;
  if (type == Scalar::f64) {
    std::memcpy(&value, data + i * sizeof(double), sizeof(double));
  } else if (type == Scalar::f32) {
    float narrow = 0;
    std::memcpy(&narrow, data + i * sizeof(float), sizeof(float));
    value = narrow;
  } else {
    load_row(data, type, i, 1, &value);
  }
  return value;
}

/// Rounds like store_row(). A NaN is left to it.
inline void set_element(std::byte* data, Scalar type, std::size_t i, double value) {
  if (type == Scalar::f64 && value == value) {
    std::memcpy(data + i * sizeof(double), &value, sizeof(double));
  } else if (type == Scalar::f32 && value == value) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(data + i * sizeof(float), &narrow, sizeof(float));
  } else {
    store_row(&value, 1, data, type, i);
  }
}

}  // namespace mantissa::testing
