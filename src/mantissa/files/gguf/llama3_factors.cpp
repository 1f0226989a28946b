#include "mantissa/files/gguf/llama3_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mantissa::gguf {
namespace {

using nlohmann::json;

// The factors are computed in f32 by the programs that write them: frequencies, wavelengths and the
// interpolation round a few times each, and the interpolation magnifies errors by at most the factor.
constexpr double kTolerance = 2e-5;

double frequency(double theta, std::int64_t head_dim, std::size_t i) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
}

double factor_of(const Llama3Scaling& s, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_freq_factor) return 1;
  if (wavelength > s.original_positions / s.low_freq_factor) return s.factor;
  const double smooth =
      (s.original_positions / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return 1 / ((1 - smooth) / s.factor + smooth);
}

bool gives(const Llama3Scaling& s, const std::vector<float>& factors, double theta, std::int64_t head_dim) {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double expected = factor_of(s, frequency(theta, head_dim, i));
    if (std::abs(factors[i] - expected) > kTolerance * expected) return false;
  }
  return true;
}

/// Finds the scaling from two interpolated factors. There, the inverse factor is linear in the frequency.
std::optional<Llama3Scaling> fitted(const std::vector<float>& factors, double theta, std::int64_t head_dim) {
  Llama3Scaling s;
  s.factor = factors.back();
  std::vector<std::size_t> between;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] > 1 && factors[i] < factors.back()) between.push_back(i);
  }
  if (between.size() < 2) return std::nullopt;
  const auto smooth = [&](std::size_t i) {
    return (1 / double{factors[i]} - 1 / s.factor) / (1 - 1 / s.factor);
  };
  const std::size_t a = between.front(), b = between.back();
  const double fa = frequency(theta, head_dim, a), fb = frequency(theta, head_dim, b);
  const double slope = (smooth(a) - smooth(b)) / (fa - fb), offset = smooth(a) - slope * fa;
  if (!(slope > 0) || !(offset < 0)) return std::nullopt;
  constexpr double kStep = 64;  // the numbers in use are multiples of 1 / 64
  s.low_freq_factor = 1;
  s.high_freq_factor = std::round((1 - 1 / offset) * kStep) / kStep;
  s.original_positions = std::round(slope * 2 * std::numbers::pi * (s.high_freq_factor - 1));
  return s;
}

json to_json(const Llama3Scaling& s) {
  return {{"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", static_cast<std::int64_t>(s.original_positions)}};
}

}  // namespace

std::vector<float> llama3_factors(const Llama3Scaling& scaling, double theta, std::int64_t head_dim) {
  std::vector<float> factors;
  for (std::size_t i = 0; i < static_cast<std::size_t>(head_dim / 2); ++i)
    factors.push_back(static_cast<float>(factor_of(scaling, frequency(theta, head_dim, i))));
  return factors;
}

std::optional<json> llama3_scaling(const std::vector<float>& factors, double theta, std::int64_t head_dim) {
  const bool sizes_fit = head_dim > 0 && factors.size() == static_cast<std::size_t>(head_dim / 2);
  if (!sizes_fit || factors.empty() || !std::ranges::all_of(factors, [](float f) { return f >= 1; }))
    return std::nullopt;
  if (std::ranges::all_of(factors, [](float f) { return f == 1; })) return json();
  // Llama 3.1 and 3.2 have low_freq_factor 1, high_freq_factor 4 and a context of 8192; tests have smaller
  // ones.
  for (double positions = 8192; positions >= 16; positions /= 2) {
    const Llama3Scaling usual{factors.back(), 1, 4, positions};
    if (gives(usual, factors, theta, head_dim)) return to_json(usual);
  }
  const std::optional<Llama3Scaling> other = fitted(factors, theta, head_dim);
  const bool valid = other && other->high_freq_factor > 1 && other->original_positions >= 1 &&
                     other->original_positions <= 1e9 && gives(*other, factors, theta, head_dim);
  if (!valid) return std::nullopt;
  return to_json(*other);
}

std::int64_t gemma_query_scale(const Architecture& architecture, std::int64_t layers, std::int64_t heads,
                               std::int64_t hidden, std::int64_t head_dim) {
  const std::int64_t largest = architecture.name == "gemma2" ? 46 : 62;  // layers of the 27B models
  return layers == largest && heads > 0 ? hidden / heads : head_dim;
}

}  // namespace mantissa::gguf
