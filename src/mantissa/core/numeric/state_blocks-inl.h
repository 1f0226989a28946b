// Encodes and decodes states of optimizers in blocks (core/numeric/state_format.h). Included once per
// instruction set.
#if defined(MANTISSA_NUMERIC_STATE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_STATE_BLOCKS_INL_H_
#undef MANTISSA_NUMERIC_STATE_BLOCKS_INL_H_
#else
#define MANTISSA_NUMERIC_STATE_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/quant_codes.h"
#include "mantissa/core/numeric/state_format.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr auto kDynamicMidpoints = midpoints(kDynamicCodes);
inline constexpr auto kPositiveDynamicMidpoints = midpoints(kPositiveDynamicCodes);

/// Returns the largest magnitude of x[0, kStateBlock), or a value that is not finite if one of them is not.
HWY_INLINE float LargestOrNonfinite(const float* HWY_RESTRICT x) {
  // Magnitudes order like their bits; those of inf and NaN are the largest.
  const hn::ScalableTag<std::int32_t> di;
  const auto magnitude = hn::Set(di, std::numeric_limits<std::int32_t>::max());
  auto most = hn::Zero(di);
  for (std::size_t i = 0; i < kStateBlock; i += hn::Lanes(di))
    most = hn::Max(most, hn::And(hn::LoadU(di, reinterpret_cast<const std::int32_t*>(x) + i), magnitude));
  const std::int32_t bits = hn::GetLane(hn::MaxOfLanes(di, most));
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

/// Writes the codes of y[0, kStateBlock): for each the number of midpoints below it.
HWY_INLINE void FindDynamicCodes(const float* HWY_RESTRICT y, const float* HWY_RESTRICT midpoints,
                                 std::int32_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (std::size_t i = 0; i < kStateBlock; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(d, y + i);
    auto code = hn::Zero(di);
    for (std::int32_t step = 128; step > 0; step /= 2) {
      const auto middle = hn::GatherIndex(d, midpoints, hn::Add(code, hn::Set(di, step - 1)));
      const auto above = hn::RebindMask(di, hn::Gt(value, middle));
      code = hn::Add(code, hn::IfThenElseZero(above, hn::Set(di, step)));
    }
    hn::StoreU(code, di, codes + i);
  }
}

/// Encodes n values, which are followed by zeros up to kStateBlock, and returns their scale.
HWY_INLINE float EncodeStateBlock(StateCodes f, float* HWY_RESTRICT x, std::size_t n, void* codes,
                                  std::size_t first) {
  const float most = LargestOrNonfinite(x);
  auto* const bytes = static_cast<std::uint8_t*>(codes);
  const auto clear = [&] { std::memset(bytes + first * bytes_of(f), 0, n * bytes_of(f)); };
  if (!(most <= std::numeric_limits<float>::max())) {
    clear();
    return std::numeric_limits<float>::quiet_NaN();
  }
  const hn::ScalableTag<float> d;
  const bool dynamic = f == StateCodes::dynamic8 || f == StateCodes::dynamic8_positive;
  if (dynamic) {
    const auto factor = hn::Set(d, factor_to_one(most)), one = hn::Set(d, 1.0F);
    for (std::size_t i = 0; i < kStateBlock; i += hn::Lanes(d)) {
      const auto y = hn::Mul(hn::LoadU(d, x + i), factor);
      hn::StoreU(hn::Max(hn::Min(y, one), hn::Neg(one)), d, x + i);
    }
    HWY_ALIGN std::int32_t found[kStateBlock];
    FindDynamicCodes(
        x, f == StateCodes::dynamic8 ? kDynamicMidpoints.data() : kPositiveDynamicMidpoints.data(), found);
    for (std::size_t i = 0; i < n; ++i) bytes[first + i] = static_cast<std::uint8_t>(found[i]);
    return most;
  }
  const Scalar type = f == StateCodes::e4m3 ? Scalar::e4m3 : Scalar::f16;
  const auto limit = static_cast<float>(traits(type).max_finite);
  const float scale = most / limit;
  if (scale == 0) {
    clear();
    return 0;
  }
  const auto greatest = hn::Set(d, limit), divisor = hn::Set(d, scale);
  for (std::size_t i = 0; i < kStateBlock; i += hn::Lanes(d)) {
    const auto y = hn::Div(hn::LoadU(d, x + i), divisor);
    hn::StoreU(hn::Max(hn::Min(y, greatest), hn::Neg(greatest)), d, x + i);
  }
  StoreRow<float>(x, n, codes, type, first);
  return scale;
}

/// encode_states().
HWY_INLINE void EncodeStates(const BlockedState& to, std::size_t first, const float* values, std::size_t n) {
  HWY_ALIGN float block[kStateBlock];
  for (std::size_t i = 0; i < n; i += kStateBlock) {
    const std::size_t count = std::min(kStateBlock, n - i);
    std::copy_n(values + i, count, block);
    std::fill(block + count, block + kStateBlock, 0.0F);
    const float scale = EncodeStateBlock(to.codes, block, count, to.data + to.codes_begin(), first + i);
    std::memcpy(to.data + (first + i) / kStateBlock * sizeof scale, &scale, sizeof scale);
  }
}

/// Reads the numbers of n codes from element `first` on.
HWY_INLINE void LoadStateCodes(StateCodes f, const void* codes, std::size_t first, std::size_t n,
                               float* HWY_RESTRICT numbers) {
  if (f == StateCodes::e4m3) return LoadRow<float>(codes, Scalar::e4m3, first, n, numbers);
  if (f == StateCodes::f16) return LoadRow<float>(codes, Scalar::f16, first, n, numbers);
  const float* table = f == StateCodes::dynamic8 ? kDynamicCodes.data() : kPositiveDynamicCodes.data();
  const auto* bytes = static_cast<const std::uint8_t*>(codes) + first;
  for (std::size_t i = 0; i < n; ++i) numbers[i] = table[bytes[i]];
}

/// decode_states().
HWY_INLINE void DecodeStates(const BlockedState& from, std::size_t first, std::size_t n, float* values) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < n; i += kStateBlock) {
    const std::size_t count = std::min(kStateBlock, n - i);
    float scale;
    std::memcpy(&scale, from.data + (first + i) / kStateBlock * sizeof scale, sizeof scale);
    float* const to = values + i;
    if (scale == 0) {
      std::fill_n(to, count, 0.0F);
      continue;
    }
    LoadStateCodes(from.codes, from.data + from.codes_begin(), first + i, count, to);
    std::size_t k = 0;
    for (; k + hn::Lanes(d) <= count; k += hn::Lanes(d))
      hn::StoreU(hn::Mul(hn::LoadU(d, to + k), hn::Set(d, scale)), d, to + k);
    for (; k < count; ++k) to[k] *= scale;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_STATE_BLOCKS_INL_H_
