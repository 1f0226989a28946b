// The arithmetic of kernels/amx_arithmetic.h for the 16 columns of a tile's row at once, for numbers that are
// neither infinite nor NaN, and whose sums cannot become so.
#pragma once

#include <cstdint>

#include "kernels/amx_arithmetic.h"

namespace mantissa::kernels::testing::amx {

inline constexpr unsigned kColumns = 16;

/// True for binary32 numbers below 2^60: 32 of their products, and a sum below 2^122, do not overflow.
inline bool is_moderate(std::uint32_t x) {
  return (x & 0x7f800000U) < (127U + 60U) << 23U;
}

/// The numbers of 16 columns, each a binary32 number.
class Row {
 public:
  void set(unsigned column, std::uint32_t x) { part_[column / 8][column % 8] = operand(x); }
  std::uint32_t word(unsigned column) const {
    return std::bit_cast<std::uint32_t>(static_cast<float>(part_[column / 8][column % 8]));
  }
  /// Adds `factor` · x, a product that a double holds, with the rounding of multiply_add().
  __attribute__((always_inline)) void add(double factor, const Row& x) {
    for (unsigned i = 0; i < 2; ++i) add(factor, x.part_[i], part_[i]);
  }

 private:
  using Part = double __attribute__((vector_size(64)));
  using Bits = std::int64_t __attribute__((vector_size(64)));
  using Floats = float __attribute__((vector_size(32)));

  __attribute__((always_inline)) static void add(double factor, const Part& x, Part& addend) {
    const Part product = factor * x, sum = product + addend, of_addend = sum - product;
    const Part rest = (product - (sum - of_addend)) + (addend - of_addend);  // Knuth's exact error of a sum
    // To odd: towards the rest if it is not zero and the last bit is.
    auto bits = reinterpret_cast<Bits>(sum);
    const Bits moves = (rest != 0) & ((bits & 1) == 0), grows = (rest > 0) == (sum > 0);
    bits += moves & ((grows & 2) - 1);  // 1 or -1
    const Bits sign = bits & INT64_MIN, magnitude = bits & INT64_MAX;
    const Bits tiny = reinterpret_cast<Part>(magnitude) < Part{} + (0x1p-126 - 0x1p-151);
    const auto kept = reinterpret_cast<Part>(sign | (magnitude & ~tiny));
    addend = __builtin_convertvector(__builtin_convertvector(kept, Floats), Part);
  }

  Part part_[2] = {};
};

}  // namespace mantissa::kernels::testing::amx
