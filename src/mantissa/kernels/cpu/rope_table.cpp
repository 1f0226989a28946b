#include <cmath>
#include <cstddef>
#include <vector>

#include "mantissa/kernels/rope.h"
#include "mantissa/numeric/convert.h"
#include "mantissa/numeric/row_math.h"
#include "mantissa/numeric/simd_target.h"
#include "mantissa/numeric/sin_cos.h"

namespace mantissa::kernels {
namespace {

/// theta^(−2i / head_dim) for i in [0, head_dim / 2), every step rounded to T. The power itself is taken in
/// double, so that it does not depend on which single-precision pow the machine has.
template <class T>
std::vector<T> inverse_frequencies(std::int64_t head_dim, double theta) {
  std::vector<T> frequencies;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const T exponent = static_cast<T>(i) / static_cast<T>(head_dim);
    const T power =
        static_cast<T>(std::pow(static_cast<double>(static_cast<T>(theta)), static_cast<double>(exponent)));
    frequencies.push_back(T{1} / power);
  }
  return frequencies;
}

/// cos and sin of `n` angles.
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
void fill(std::int64_t positions, std::int64_t head_dim, double theta, Matrix cos, Matrix sin,
          Scalar format) {
  const std::size_t half = static_cast<std::size_t>(head_dim / 2);
  const SimdTarget target = simd_targets().front();  // asking the machine for every row would take longest
  const auto round = [&](T* row, std::size_t n) { round_row(row, n, format, target); };
  std::vector<T> frequencies = inverse_frequencies<T>(head_dim, theta);
  round(frequencies.data(), half);
  std::vector<T> angles(half);
  for (std::int64_t p = 0; p < positions; ++p) {
    T position = static_cast<T>(p);
    round(&position, 1);
    for (std::size_t i = 0; i < half; ++i) angles[i] = position * frequencies[i];
    round(angles.data(), half);
    T *cos_row = static_cast<T*>(cos.data) + p * cos.ld, *sin_row = static_cast<T*>(sin.data) + p * sin.ld;
    turn(angles.data(), half, cos_row, sin_row);
    round(cos_row, half);
    round(sin_row, half);
  }
}

}  // namespace

void rope_table(std::int64_t positions, std::int64_t head_dim, double theta, Matrix cos, Matrix sin,
                Scalar angles) {
  cos.type == Scalar::f64 ? fill<double>(positions, head_dim, theta, cos, sin, angles)
                          : fill<float>(positions, head_dim, theta, cos, sin, angles);
}

}  // namespace mantissa::kernels
