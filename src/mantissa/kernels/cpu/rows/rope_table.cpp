#include <cstddef>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/row_math.h"
#include "mantissa/core/numeric/simd_target.h"
#include "mantissa/core/numeric/sin_cos.h"
#include "mantissa/kernels/rope.h"

namespace mantissa::kernels {
namespace {

/// Computes cos and sin of `n` angles.
void turn(const float* angles, std::size_t n, float* cos, float* sin) {
  for (std::size_t i = 0; i < n; ++i) {
    const SinCos of = sin_cos(angles[i]);
    cos[i] = static_cast<float>(of.cos);
    sin[i] = static_cast<float>(of.sin);
  }
}
void turn(const double* angles, std::size_t n, double* cos, double* sin) {
  map_row(MathFunction::cos, angles, n, cos);
  map_row(MathFunction::sin, angles, n, sin);
}

template <class T>
void fill(const RopeTable& table, Matrix cos, Matrix sin) {
  const std::size_t half = static_cast<std::size_t>(table.rotated / 2);
  const SimdTarget target =
      simd_targets().front();  // querying the machine for every row would dominate the time
  const auto round = [&](T* row, std::size_t n) { round_row(row, n, table.angles, target); };
  const std::vector<double> exact =
      inverse_frequencies(table.rotated, table.theta, table.scaling,
                          table.length == 0 ? table.positions : table.length, cos.type);
  std::vector<T> frequencies(exact.begin(), exact.end()), angles(half);
  round(frequencies.data(), half);
  const T factor = static_cast<T>(rope_attention_factor(table.scaling));
  const auto finish = [&](T* row) {
    round(row, half);
    if (factor == 1) return;
    for (std::size_t i = 0; i < half; ++i) row[i] *= factor;
    round(row, half);
  };
  for (std::int64_t p = 0; p < table.positions; ++p) {
    T position = static_cast<T>(p);
    round(&position, 1);
    for (std::size_t i = 0; i < half; ++i) angles[i] = position * frequencies[i];
    round(angles.data(), half);
    T *cos_row = static_cast<T*>(cos.data) + p * cos.ld, *sin_row = static_cast<T*>(sin.data) + p * sin.ld;
    turn(angles.data(), half, cos_row, sin_row);
    finish(cos_row);
    finish(sin_row);
  }
}

}  // namespace

void rope_table(const RopeTable& table, Matrix cos, Matrix sin) {
  cos.type == Scalar::f64 ? fill<double>(table, cos, sin) : fill<float>(table, cos, sin);
}

}  // namespace mantissa::kernels
