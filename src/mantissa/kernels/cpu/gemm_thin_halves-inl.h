// Thin products (kernels/cpu/gemm_thin-inl.h) with columns in packed blocks of 4-bit elements: a lane holds 8
// elements of its column, which are decoded one after the other, so nothing is staged.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_HALVES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_HALVES_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_HALVES_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_HALVES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/gemm_pack-inl.h"
#include "mantissa/kernels/cpu/gemm_source-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Elements of a column that one piece of 128 bits holds.
inline constexpr std::size_t kHalvesStep = 32;

/// True if ThinHalvesBlock can multiply columns of `b` from depth k on: blocks of 4 bits along the depth, not
/// rounded. Vectors of 4 lanes cannot look up 8 values at once.
inline bool IsThinHalves(const PackSource& b, std::size_t k) {
  return HWY_LANES(float) >= 8 && b.InBlocks() && b.element_bits == 4 && !b.packed.scale_per_element &&
         b.operand.plain() && holds(b.operand.format, b.type) && k % kHalvesStep == 0;
}

/// The values of the codes in the low 4 bits of the lanes: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the sign in bit 3.
template <class D>
HWY_INLINE hn::Vec<D> HalfValues(D d, hn::Vec<hn::RebindToUnsigned<D>> codes) {
  const hn::RebindToUnsigned<D> du;
  HWY_ALIGN static constexpr float kMagnitudes[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const auto table = hn::Load(d, kMagnitudes);
  const auto index = hn::IndicesFromVec(d, hn::And(codes, hn::Set(du, 7U)));
  const auto sign = hn::And(hn::ShiftLeft<28>(codes), hn::Set(du, 0x80000000U));
  return hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::TableLookupLanes(table, index)), sign));
}

/// ThinBlock for the vector of columns from `column` on, depths [k, k + depth), of which IsThinHalves is
/// true.
template <std::size_t kRows, BlockFormat F>
HWY_NOINLINE void ThinHalvesBlock(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                                  const float* HWY_RESTRICT a, const std::uint8_t* ahead,
                                  float* HWY_RESTRICT out, std::size_t ld, TileStore store) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::uint32_t> du;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLanes = HWY_LANES(float);
  constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  V sum[kRows];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) sum[i] = hn::Zero(d);
  const auto put = [&](std::size_t at, V v) HWY_ATTR {
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i) sum[i] = hn::MulAdd(hn::Set(d, a[at * kRows + i]), v, sum[i]);
  };
  const V unscale = hn::Set(d, b.unscale);
  const std::uint8_t* elements = b.At(column, k);
  const std::uint8_t* scales = b.Packed(column).scales + k / kBlock;
  std::size_t at = 0;
  for (; at + kHalvesStep <= depth; at += kHalvesStep) {
    for (std::size_t i = 0; i < 16 * kLanes; i += 64) __builtin_prefetch(ahead + i, 0, 2);
    ahead += 16 * kLanes;
    const auto column_at = [&](std::size_t c) {
      return reinterpret_cast<const std::uint32_t*>(elements + c * b.run_bytes + at / 2);
    };
    HWY_ALIGN float scale[kHalvesStep / kBlock][kLanes];
    for (std::size_t block = 0; block < kHalvesStep / kBlock; ++block) {
      HWY_ALIGN std::uint8_t codes[kLanes];
      for (std::size_t c = 0; c < kLanes; ++c) codes[c] = scales[c * b.scales_per_run + at / kBlock + block];
      mantissa::HWY_NAMESPACE::DecodeScales<F>(codes, kLanes, scale[block]);
    }
    TransposePieces(du, column_at, 0, [&](std::size_t eight, hn::Vec<decltype(du)> codes) HWY_ATTR {
      const V of_block = hn::Load(d, scale[8 * eight / kBlock]);
      HWY_UNROLL(8)
      for (std::size_t i = 0; i < 8; ++i, codes = hn::ShiftRight<4>(codes))
        put(at + 8 * eight + i, hn::Mul(hn::Mul(HalfValues(d, codes), of_block), unscale));
    });
  }
  if (at < depth) {
    HWY_ALIGN float rest[kLanes * kHalvesStep], last[kLanes];
    for (std::size_t c = 0; c < kLanes; ++c)
      ConvertOperandRow<float>(b, column + c, k + at, depth - at, rest + c * kHalvesStep);
    for (std::size_t i = 0; at < depth; ++at, ++i) {
      for (std::size_t c = 0; c < kLanes; ++c) last[c] = rest[c * kHalvesStep + i];
      put(at, hn::Load(d, last));
    }
  }
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) {
    float* to = out + i * ld;
    hn::StoreU(store == TileStore::add ? hn::Add(hn::LoadU(d, to), sum[i]) : sum[i], d, to);
  }
}

/// ThinHalvesBlock for a number of rows known at run time.
template <BlockFormat F>
void ThinHalvesOf(std::size_t rows, const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                  const float* a, const std::uint8_t* ahead, float* out, std::size_t ld, TileStore store) {
  switch (rows) {
    case 1:
      return ThinHalvesBlock<1, F>(b, column, k, depth, a, ahead, out, ld, store);
    case 2:
      return ThinHalvesBlock<2, F>(b, column, k, depth, a, ahead, out, ld, store);
    case 4:
      return ThinHalvesBlock<4, F>(b, column, k, depth, a, ahead, out, ld, store);
    case 8:
      return ThinHalvesBlock<8, F>(b, column, k, depth, a, ahead, out, ld, store);
    default:
      return ThinHalvesBlock<16, F>(b, column, k, depth, a, ahead, out, ld, store);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_HALVES_INL_H_
