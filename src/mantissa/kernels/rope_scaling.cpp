#include "mantissa/kernels/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mantissa::kernels {
namespace {

/// Computes the power in double, so it does not depend on the machine's single-precision pow.
template <class T>
T power(T base, double exponent) {
  return static_cast<T>(std::pow(static_cast<double>(base), exponent));
}

/// base^(2i / head_dim).
template <class T>
std::vector<T> powers(std::int64_t head_dim, T base) {
  std::vector<T> all;
  for (std::int64_t i = 0; i < head_dim; i += 2)
    all.push_back(power(base, static_cast<double>(static_cast<T>(i) / static_cast<T>(head_dim))));
  return all;
}

template <class T>
std::vector<T> reciprocals(std::vector<T> values) {
  for (T& x : values) x = T{1} / x;
  return values;
}

/// Returns the base for a sequence of `length` positions.
template <class T>
T dynamic_base(std::int64_t head_dim, double theta, const RopeScaling& s, std::int64_t length) {
  if (length <= s.original_positions) return static_cast<T>(theta);
  const T ratio = static_cast<T>(s.factor) * static_cast<T>(length) / static_cast<T>(s.original_positions);
  const double d = static_cast<double>(head_dim);
  const T growth = power(ratio - static_cast<T>(s.factor - 1), d / (d - 2));
  return static_cast<T>(theta) * growth;
}

/// Scales one frequency: unchanged for short wavelengths, divided by the factor for long ones, and blended in
/// between.
template <class T>
T llama3_frequency(T frequency, const RopeScaling& s) {
  const double original = static_cast<double>(s.original_positions);
  const T wavelength = T{1} / frequency * static_cast<T>(2 * std::numbers::pi);
  const T divided = frequency / static_cast<T>(s.factor);
  if (wavelength > static_cast<T>(original / s.low_freq_factor)) return divided;
  if (wavelength < static_cast<T>(original / s.high_freq_factor)) return frequency;
  const T turns = T{1} / wavelength * static_cast<T>(original);
  const T smooth =
      (turns - static_cast<T>(s.low_freq_factor)) / static_cast<T>(s.high_freq_factor - s.low_freq_factor);
  return (T{1} - smooth) * frequency / static_cast<T>(s.factor) + smooth * frequency;
}

/// The range of pairs over which YaRN blends from unchanged to divided frequencies.
struct Range {
  double low, high;
};

Range yarn_range(std::int64_t head_dim, double theta, const RopeScaling& s) {
  const double d = static_cast<double>(head_dim), original = static_cast<double>(s.original_positions);
  // The dimension whose angle makes `rotations` turns over the original context.
  const auto dimension = [&](double rotations) {
    return d * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  Range r{dimension(s.beta_fast), dimension(s.beta_slow)};
  if (s.truncate) r = {std::floor(r.low), std::ceil(r.high)};
  r = {std::max(r.low, 0.0), std::min(r.high, d - 1)};
  if (r.low == r.high) r.high += 0.001;
  return r;
}

template <class T>
std::vector<T> yarn(std::int64_t head_dim, double theta, const RopeScaling& s) {
  std::vector<T> all = powers(head_dim, static_cast<T>(theta));
  const Range range = yarn_range(head_dim, theta, s);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const T ramp = (static_cast<T>(i) - static_cast<T>(range.low)) / static_cast<T>(range.high - range.low);
    const T kept = T{1} - std::clamp(ramp, T{0}, T{1});
    const T divided = T{1} / (static_cast<T>(s.factor) * all[i]);
    all[i] = divided * (T{1} - kept) + T{1} / all[i] * kept;
  }
  return all;
}

template <class T>
std::vector<T> frequencies(std::int64_t head_dim, double theta, const RopeScaling& s, std::int64_t length) {
  const T base = static_cast<T>(theta);
  switch (s.kind) {
    case RopeScaling::Kind::none:
      break;
    case RopeScaling::Kind::dynamic:
      return reciprocals(powers(head_dim, dynamic_base<T>(head_dim, theta, s, length)));
    case RopeScaling::Kind::yarn:
      return yarn<T>(head_dim, theta, s);
    case RopeScaling::Kind::linear:
    case RopeScaling::Kind::llama3: {
      std::vector<T> all = reciprocals(powers(head_dim, base));
      const bool linear = s.kind == RopeScaling::Kind::linear;
      for (T& f : all) f = linear ? f / static_cast<T>(s.factor) : llama3_frequency(f, s);
      return all;
    }
  }
  return reciprocals(powers(head_dim, base));
}

/// YaRN's recommended temperature of the softmax.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

double rope_attention_factor(const RopeScaling& s) {
  if (s.kind != RopeScaling::Kind::yarn) return 1;
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale != 0 && s.mscale_all_dim != 0)
    return yarn_mscale(s.factor, s.mscale) / yarn_mscale(s.factor, s.mscale_all_dim);
  return yarn_mscale(s.factor, 1);
}

std::vector<double> inverse_frequencies(std::int64_t head_dim, double theta, const RopeScaling& scaling,
                                        std::int64_t length, Scalar arithmetic) {
  if (arithmetic == Scalar::f64) return frequencies<double>(head_dim, theta, scaling, length);
  const std::vector<float> f32 = frequencies<float>(head_dim, theta, scaling, length);
  return {f32.begin(), f32.end()};
}

}  // namespace mantissa::kernels
