// The distribution of a tensor's values for a histogram: how many of each sign and power of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/core/numeric/binades.h"

namespace mantissa {

/// Sums over the added values that are finite.
struct Distribution {
  std::uint64_t count = 0, zeros = 0;
  Binades negative{}, positive{};
  double min = std::numeric_limits<double>::infinity(), max = -std::numeric_limits<double>::infinity();
  double sum = 0, squares = 0;

  /// Adds values[i] · factor.
  void add(const double* values, std::size_t n, double factor = 1);
  void merge(const Distribution& other);
};

}  // namespace mantissa
