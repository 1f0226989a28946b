// Thin products (kernels/cpu/gemm_thin/thin-inl.h) with columns in packed blocks: a lane holds the next 32
// bits of its column, 8 or 4 elements, which are decoded one after the other, so nothing is staged.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_BLOCKS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_BLOCKS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/sums-inl.h"
#include "mantissa/kernels/cpu/stream_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// True if ThinPackedBlock can multiply columns of `b` from depth k on: blocks along the depth, not rounded.
/// Vectors of 4 lanes cannot look up 8 values at once.
inline bool IsThinPacked(const PackSource& b, std::size_t k) {
  return HWY_LANES(float) >= 8 && b.InBlocks() && !b.packed.scale_per_element && b.operand.plain() &&
         holds(b.operand.format, b.type) && k % kLongestBlock == 0;
}

/// The values of the element codes in the low bits of the lanes. Elements are finite.
template <BlockFormat F, class D>
HWY_INLINE hn::Vec<D> ElementValues(D d, hn::Vec<hn::RebindToUnsigned<D>> codes) {
  const hn::RebindToUnsigned<D> du;
  if constexpr (traits(F).element_bits == 4) {
    HWY_ALIGN static constexpr float kMagnitudes[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    const auto index = hn::IndicesFromVec(d, hn::And(codes, hn::Set(du, 7U)));
    const auto sign = hn::And(hn::ShiftLeft<28>(codes), hn::Set(du, 0x80000000U));
    const auto magnitude = hn::TableLookupLanes(hn::Load(d, kMagnitudes), index);
    return hn::BitCast(d, hn::Xor(hn::BitCast(du, magnitude), sign));
  } else {
    // As in LoadLanes: e5m2 is the upper byte of an f16, and e4m3 an f16 of 1/256 of the value.
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<hwy::float16_t, D> dh;
    constexpr bool kE4m3 = F == BlockFormat::mxfp8;
    const auto sign = hn::ShiftLeft<8>(hn::And(codes, hn::Set(du, kE4m3 ? 0x80U : 0xffU)));
    const auto rest = hn::ShiftLeft<7>(hn::And(codes, hn::Set(du, 0x7fU)));
    const auto half = hn::TruncateTo(du16, kE4m3 ? hn::Or(sign, rest) : sign);
    const auto value = hn::PromoteTo(d, hn::BitCast(dh, half));
    return kE4m3 ? hn::Mul(value, hn::Set(d, 256.0F)) : value;
  }
}

/// ThinBlock for the vector of columns from `column` on, depths [k, k + depth), of which IsThinPacked is
/// true.
template <SumOrder kOrder, std::size_t kRows, std::size_t kStrip, BlockFormat F>
HWY_NOINLINE void ThinPackedBlock(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                                  const float* HWY_RESTRICT a, StreamAhead ahead, float* HWY_RESTRICT out,
                                  std::size_t ld, TileStore store) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::uint32_t> du;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLanes = HWY_LANES(float);
  constexpr auto kBlock = static_cast<std::size_t>(traits(F).block),
                 kBits = static_cast<std::size_t>(traits(F).element_bits);
  constexpr std::size_t kStep = 128 / kBits, kPerLane = 32 / kBits;
  constexpr std::size_t kScales = std::max<std::size_t>(kStep / kBlock, 1);
  constexpr std::uint8_t kLeastExact = mantissa::HWY_NAMESPACE::least_exact_code<F>();
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  ThinSums<kOrder, kRows, float> sums;
  const V unscale = hn::Set(d, b.unscale);
  const std::uint8_t* elements = b.At(column, k);
  const std::uint8_t* scales = b.Packed(column).scales + k / kBlock;
  std::size_t at = 0;
  for (; at + kStep <= depth; at += kStep) {
    if (sums.kInBlocks && at > 0 && at % kTileBlock == 0) {
      sums.Store(out, ld, store);
      store = TileStore::add;
    }
    ahead.Ask<kLanes * kStep * kBits / 8>();
    const auto column_at = [&](std::size_t c) {
      return reinterpret_cast<const std::uint32_t*>(elements + c * b.run_bytes + b.Bytes(at));
    };
    HWY_ALIGN float scale[kScales][kLanes];
    bool exact = true;  // bf16 represents the products of elements and scales
    for (std::size_t block = 0; block < kScales; ++block) {
      HWY_ALIGN std::uint8_t codes[kLanes];
      for (std::size_t c = 0; c < kLanes; ++c) codes[c] = scales[c * b.scales_per_run + at / kBlock + block];
      mantissa::HWY_NAMESPACE::DecodeScales<F>(codes, kLanes, scale[block]);
      if constexpr (kLeastExact > 0)
        exact = exact && mantissa::HWY_NAMESPACE::CodesAreAtLeast(d8, codes, kLeastExact);
    }
    TransposePieces(du, column_at, 0, [&](std::size_t lane, hn::Vec<decltype(du)> codes) HWY_ATTR {
      const V of_block = hn::Load(d, scale[kPerLane * lane / kBlock]);
      HWY_UNROLL(8)
      for (std::size_t i = 0; i < kPerLane; ++i, codes = hn::ShiftRight<kBits>(codes)) {
        V value = hn::Mul(ElementValues<F>(d, codes), of_block);
        if (!exact) value = mantissa::HWY_NAMESPACE::RoundLanes<Scalar::bf16>(d, value);
        sums.Add(i, a + (at + kPerLane * lane + i) * kStrip, hn::Mul(value, unscale));
      }
    });
  }
  if (at < depth) {
    if (sums.kInBlocks && at > 0 && at % kTileBlock == 0) {
      sums.Store(out, ld, store);
      store = TileStore::add;
    }
    HWY_ALIGN float rest[kLanes * kStep], last[kLanes];
    for (std::size_t c = 0; c < kLanes; ++c)
      ConvertOperandRow<float>(b, column + c, k + at, depth - at, rest + c * kStep);
    for (std::size_t i = 0; at < depth; ++at, ++i) {
      for (std::size_t c = 0; c < kLanes; ++c) last[c] = rest[c * kStep + i];
      sums.Add(at, a + at * kStrip, hn::Load(d, last));
    }
  }
  sums.Store(out, ld, store);
}

/// ThinPackedBlock for all rows of a strip, in passes of as many as are summed at once.
template <SumOrder kOrder, std::size_t kStrip, BlockFormat F>
void ThinPackedStrip(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                     const float* a, StreamAhead ahead, float* out, std::size_t ld, TileStore store) {
  constexpr std::size_t kRows = thin_rows_at_once<kOrder>(kStrip);
  for (std::size_t i = 0; i < kStrip; i += kRows) {
    ThinPackedBlock<kOrder, kRows, kStrip, F>(b, column, k, depth, a + i, ahead, out + i * ld, ld, store);
  }
}

/// ThinPackedStrip for a number of rows known at run time.
template <SumOrder kOrder, BlockFormat F>
void ThinPackedOf(std::size_t rows, const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                  const float* a, StreamAhead ahead, float* out, std::size_t ld, TileStore store) {
  WithThinRows(rows, [&](auto n) HWY_ATTR {
    ThinPackedStrip<kOrder, n(), F>(b, column, k, depth, a, ahead, out, ld, store);
  });
}

/// ThinPackedOf for the format of `b`.
template <SumOrder kOrder>
void MultiplyThinPacked(std::size_t rows, const PackSource& b, std::size_t column, std::size_t k,
                        std::size_t depth, const float* a, StreamAhead ahead, float* out, std::size_t ld,
                        TileStore store) {
  mantissa::HWY_NAMESPACE::WithCodes(b.packed.format, [&](auto f) HWY_ATTR {
    ThinPackedOf<kOrder, f()>(rows, b, column, k, depth, a, ahead, out, ld, store);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_BLOCKS_INL_H_
