#include "mantissa/files/convert/value_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/convert/block_rows.h"
#include "mantissa/files/convert/pieces.h"

namespace mantissa::convert {
namespace {

/// The narrowest first.
constexpr std::array kCandidates = {Scalar::e5m2, Scalar::e4m3, Scalar::bf16,
                                    Scalar::f16,  Scalar::tf32, Scalar::f32};

struct GridTest {
  std::array<bool, kCandidates.size()> holds = {true, true, true, true, true, true};
  std::array<bool, kCandidates.size()> needed = {};
};

/// Returns true if `value`, a value of `s`, needs the last place of `s`.
bool needs_last_place(double value, Scalar s) {
  if (!std::isfinite(value) || std::abs(value) < std::ldexp(1.0, traits(s).min_normal_exp)) return false;
  return std::fmod(std::abs(value) / ulp(value, s), 2.0) == 1.0;
}

void test_row(const double* values, std::size_t n, SimdTarget target, std::vector<double>& rounded,
              GridTest& test) {
  for (std::size_t f = 0; f < kCandidates.size(); ++f) {
    if (!test.holds[f]) continue;
    rounded.assign(values, values + n);
    round_row(rounded.data(), n, kCandidates[f], target);
    for (std::size_t i = 0; i < n && test.holds[f]; ++i)
      test.holds[f] = rounded[i] == values[i] || std::isnan(values[i]);
    for (std::size_t i = 0; i < n && !test.needed[f] && test.holds[f]; ++i)
      test.needed[f] = needs_last_place(values[i], kCandidates[f]);
  }
}

}  // namespace

std::optional<Scalar> value_format(const io::WeightFiles& files, const io::TensorInfo& tensor,
                                   const kernels::Context& ctx) {
  const std::optional<Scalar> stored = io::scalar_of(tensor.dtype);
  if (stored != Scalar::f32 && stored != Scalar::f64) return stored;
  const SimdTarget target = kernels::simd_target(ctx.simd);
  const auto test_piece = [&](std::uint64_t first, std::size_t n) {
    const std::size_t width = bytes_of(*stored);
    std::vector<std::byte> bytes(n * width);
    files.read(tensor.name, bytes, first * width);
    std::vector<double> row(kRow), rounded;
    GridTest test;
    for (std::size_t at = 0; at < n; at += kRow) {
      const std::size_t m = std::min<std::size_t>(kRow, n - at);
      load_row(bytes.data(), *stored, at, m, row.data(), target);
      test_row(row.data(), m, target, rounded, test);
    }
    return test;
  };
  GridTest all;
  for (const GridTest& piece :
       over_pieces<GridTest>(ctx, static_cast<std::uint64_t>(tensor.count()), test_piece)) {
    for (std::size_t f = 0; f < kCandidates.size(); ++f) {
      all.holds[f] = all.holds[f] && piece.holds[f];
      all.needed[f] = all.needed[f] || piece.needed[f];
    }
  }
  for (std::size_t f = 0; f < kCandidates.size(); ++f) {
    if (all.holds[f] && all.needed[f]) return kCandidates[f];
  }
  return stored;
}

}  // namespace mantissa::convert
