#include "mantissa/text/rows/mixture.h"

#include <cmath>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/rows/permutation.h"

namespace mantissa::text {

Mixture::Mixture(std::vector<double> weights, std::uint64_t seed) : shares_(std::move(weights)), seed_(seed) {
  double rest = 0;
  for (std::size_t s = shares_.size(); s-- > 0;) {
    if (!std::isfinite(shares_[s]) || shares_[s] <= 0)
      throw ConfigError("data.weights: {} is not a weight; it must be above 0", shares_[s]);
    rest += shares_[s];
    shares_[s] /= rest;  // 1 for the last one
  }
}

MixedRow Mixture::at(std::int64_t row) const {
  const std::int64_t block = row / kBlock;
  const Permutation order(kBlock, seed_ ^ hash_name("mixture"), static_cast<std::uint64_t>(block));
  std::int64_t left =
      block * kBlock + static_cast<std::int64_t>(order(static_cast<std::uint64_t>(row % kBlock)));
  // Of the first n rows that reach a source, it takes the nearest whole number to n · share: these counts
  // grow by 0 or 1 from row to row. The others reach the next source.
  const auto taken_of = [](std::int64_t n, double share) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(n) * share + 0.5));
  };
  for (std::size_t s = 0; s + 1 < shares_.size(); ++s) {
    const std::int64_t taken = taken_of(left, shares_[s]);
    if (taken_of(left + 1, shares_[s]) > taken) return {s, taken};
    left -= taken;
  }
  return {shares_.size() - 1, left};
}

}  // namespace mantissa::text
