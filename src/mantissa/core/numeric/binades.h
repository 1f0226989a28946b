// Histograms of magnitudes by power of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace mantissa {

/// Counts of values x with 2^e ≤ |x| < 2^(e+1), for the exponents of f32 with its subnormals; values of f64
/// beyond them count at the ends.
struct Binades {
  static constexpr int kLeast = -149, kMost = 127;
  std::array<std::uint64_t, kMost - kLeast + 1> counts{};

  /// Returns the exponent of a finite value that is not zero, within the range above.
  static int exponent_of(double x) {
    const auto field = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff);
    return std::clamp(field - 1023, kLeast, kMost);  // that of f64 subnormals is too small anyway
  }

  std::uint64_t& at(int exponent) { return counts[static_cast<std::size_t>(exponent - kLeast)]; }
  std::uint64_t at(int exponent) const { return counts[static_cast<std::size_t>(exponent - kLeast)]; }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : counts) sum += n;
    return sum;
  }
  void merge(const Binades& other) {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  }
};

}  // namespace mantissa
