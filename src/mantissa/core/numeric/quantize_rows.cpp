#include "mantissa/core/numeric/quantize_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/quantize_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// The largest magnitude of n values; 0 for none.
float LargestMagnitude(const float* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t whole = n - n % hn::Lanes(d);
  auto most = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += hn::Lanes(d)) most = hn::Max(most, hn::Abs(hn::LoadU(d, x + i)));
  float result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (std::size_t i = whole; i < n; ++i) result = std::max(result, std::abs(x[i]));
  return result;
}

/// Writes the codes of a row and returns its scale.
float QuantizeBytes(const float* HWY_RESTRICT x, std::size_t n, std::uint8_t* HWY_RESTRICT codes) {
  constexpr float kLeast = 0x1p-120F;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int8_t, decltype(d)> di8;
  const float most = std::max(LargestMagnitude(x, n), kLeast), factor = 127 / most;
  auto* to = reinterpret_cast<std::int8_t*>(codes);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)));
    hn::StoreU(hn::DemoteTo(di8, hn::BitCast(di, code)), di8, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<std::int8_t>(std::nearbyint(x[i] * factor));
  return most / 127;
}

/// Writes the codes of 64 elements and returns their scale.
float QuantizeNormalFloats(const float* HWY_RESTRICT x, std::uint8_t* HWY_RESTRICT codes) {
  static constexpr auto kMidpoints = midpoints(kNormalFloat4);
  const hn::CappedTag<float, kNormalFloatBlock> d;
  const hn::RebindToSigned<decltype(d)> di;
  const float most = LargestMagnitude(x, kNormalFloatBlock);
  const auto factor = hn::Set(d, factor_to_one(most)), one = hn::Set(d, 1.0F);
  HWY_ALIGN std::int32_t code[kNormalFloatBlock];
  for (std::size_t i = 0; i < kNormalFloatBlock; i += hn::Lanes(d)) {
    const auto y = hn::Max(hn::Min(hn::Mul(hn::LoadU(d, x + i), factor), one), hn::Neg(one));
    auto below = hn::Zero(di);
    for (const float midpoint : kMidpoints)
      below = hn::Sub(below, hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(y, hn::Set(d, midpoint)))));
    hn::Store(below, di, code + i);
  }
  for (std::size_t i = 0; i < kNormalFloatBlock / 2; ++i)
    codes[i] = static_cast<std::uint8_t>(code[2 * i] << 4 | code[2 * i + 1]);
  return most;
}

}  // namespace

void QuantizeRowsImpl(const QuantMatrix& to, std::size_t first, std::size_t rows, const float* values,
                      float* scales) {
  const std::size_t row_bytes = quant_bytes(to.format, to.width),
                    row_scales = quant_scales(to.format, 1, to.width);
  std::uint8_t* const own = to.data + quant_scales_begin(to.format, to.rows, to.width);
  for (std::size_t r = 0; r < rows; ++r, values += to.width) {
    std::uint8_t* const codes = to.data + (first + r) * row_bytes;
    for (std::size_t i = 0; i < row_scales; ++i) {
      const float scale =
          to.format == QuantFormat::int8
              ? QuantizeBytes(values, to.width, codes)
              : QuantizeNormalFloats(values + i * kNormalFloatBlock, codes + i * (kNormalFloatBlock / 2));
      if (to.format == QuantFormat::nf4_double) {
        scales[r * row_scales + i] = scale;
      } else {
        std::memcpy(own + ((first + r) * row_scales + i) * sizeof scale, &scale, sizeof scale);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {
namespace {

HWY_EXPORT(QuantizeRowsImpl);

/// Writes a group's scale and the codes of its differences.
void quantize_group(std::span<const float> differences, std::uint8_t* to) {
  static constexpr auto kMidpoints = midpoints(kDynamicCodes);
  float most = 0;
  for (const float difference : differences) most = std::max(most, std::abs(difference));
  std::memcpy(to, &most, sizeof most);
  to += sizeof most;
  const float factor = factor_to_one(most);
  for (const float difference : differences) {
    const float y = std::clamp(difference * factor, -1.0F, 1.0F);
    *to++ = static_cast<std::uint8_t>(std::ranges::lower_bound(kMidpoints, y) - kMidpoints.begin());
  }
}

}  // namespace

void quantize_rows(const QuantMatrix& to, std::size_t first, std::size_t rows, const float* values,
                   float* scales, SimdTarget target) {
  HWY_DISPATCH_TABLE(QuantizeRowsImpl)[simd_index(target)](to, first, rows, values, scales);
}

void quantize_scales(const QuantMatrix& to, std::span<const float> scales) {
  double sum = 0;
  for (const float scale : scales) sum += static_cast<double>(scale);
  const auto mean = static_cast<float>(scales.empty() ? 0 : sum / static_cast<double>(scales.size()));
  std::uint8_t* at = to.data + quant_scales_begin(to.format, to.rows, to.width);
  std::memcpy(at, &mean, sizeof mean);
  at += sizeof mean;
  std::array<float, kScaleGroup> differences{};
  for (std::size_t i = 0; i < scales.size(); i += kScaleGroup, at += sizeof mean + kScaleGroup) {
    const std::size_t n = std::min(kScaleGroup, scales.size() - i);
    for (std::size_t j = 0; j < n; ++j) differences[j] = scales[i + j] - mean;
    quantize_group(std::span(differences).first(n), at);
  }
}

}  // namespace mantissa
#endif
