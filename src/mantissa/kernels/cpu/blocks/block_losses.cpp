// Counts of what rounding a matrix to packed blocks lost. Only the matrix and the scales of the blocks are
// read, not the elements.
#include <algorithm>
#include <mutex>

#include "mantissa/core/numeric/power_of_two.h"
#include "mantissa/kernels/block_losses.h"
#include "mantissa/kernels/cpu/tasks.h"

#include "mantissa/kernels/cpu/piece.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/block_losses.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/decode_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::DecodeScales;
using mantissa::HWY_NAMESPACE::LoadCount;
using mantissa::HWY_NAMESPACE::ViewRow;
using mantissa::HWY_NAMESPACE::WithFormat;

/// Counts values[0, n), whose blocks have the scales `scale`, one for each element, before the factor
/// `tensor_scale`.
HWY_INLINE void CountPiece(const float* values, const float* scale, std::size_t n, const BlockTraits& t,
                           float tensor_scale, RangeCount& count) {
  const hn::ScalableTag<float> d;
  const auto zero = hn::Zero(d);
  const auto least = hn::Set(d, PowerOfTwo<float>(t.min_normal_exp - t.mantissa_bits - 1));
  const auto most =
      hn::Set(d, static_cast<float>(t.max_finite) + PowerOfTwo<float>(t.max_exp - t.mantissa_bits - 1));
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto x = hn::Abs(LoadCount(d, values + i, n - i)), s = LoadCount(d, scale + i, n - i);
    const auto y = hn::Div(x, hn::Mul(s, hn::Set(d, tensor_scale)));
    const auto zeroed = hn::Or(hn::Eq(s, zero), hn::Le(y, least));
    count.flushed += static_cast<std::int64_t>(hn::CountTrue(d, hn::And(hn::Gt(x, zero), zeroed)));
    count.saturated += static_cast<std::int64_t>(hn::CountTrue(d, hn::And(hn::Gt(s, zero), hn::Gt(y, most))));
  }
}

/// Widens the range of scales by those that are not 0 or NaN.
HWY_INLINE void SeeScales(const float* scales, std::size_t n, BlockLosses& losses) {
  for (std::size_t i = 0; i < n; ++i) {
    if (!(scales[i] > 0)) continue;
    losses.least_scale = std::min(losses.least_scale, scales[i]);
    losses.most_scale = std::max(losses.most_scale, scales[i]);
  }
}

template <BlockFormat F>
BlockLosses CountRows(const PackedMatrix& m, ConstMatrix values, std::size_t begin, std::size_t end) {
  constexpr BlockTraits kTraits = traits(F);
  constexpr auto kBlock = static_cast<std::size_t>(kTraits.block);
  HWY_ALIGN float buffer[kPiece];
  HWY_ALIGN float scales[kPiece], expanded[kPiece];
  const Layout layout{.blocks = m.blocks};
  const auto* codes = static_cast<const std::uint8_t*>(m.data) + layout.scales_begin(m.rows, m.width);
  const auto width = static_cast<std::size_t>(m.width);
  BlockLosses losses;
  for (std::size_t row = begin; row < end; ++row) {
    for (std::size_t column = 0; column < width; column += kPiece) {
      const std::size_t n = std::min(kPiece, width - column);
      const float* x = ViewRow<float>(values.data, values.type, row * width + column, n, buffer);
      const std::uint8_t* at = codes + layout.scale_offset(static_cast<std::int64_t>(row),
                                                           static_cast<std::int64_t>(column), m.width);
      const float* scale = scales;
      if (m.blocks.along_rows) {
        DecodeScales<F>(at, n, scales);
        if (row % kBlock == 0) SeeScales(scales, n, losses);
      } else {
        const std::size_t blocks = (n + kBlock - 1) / kBlock;
        DecodeScales<F>(at, blocks, scales);
        SeeScales(scales, blocks, losses);
        for (std::size_t b = 0; b < blocks; ++b) std::fill_n(expanded + b * kBlock, kBlock, scales[b]);
        scale = expanded;
      }
      CountPiece(x, scale, n, kTraits, m.tensor_scale, losses.range);
    }
  }
  return losses;
}

BlockLosses CountBlockRows(const PackedMatrix& m, ConstMatrix values, std::size_t begin, std::size_t end) {
  BlockLosses losses;
  WithFormat(m.blocks.format, [&](auto f) HWY_ATTR { losses = CountRows<f()>(m, values, begin, end); });
  return losses;
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(CountBlockRows);

BlockLosses count_block_losses(const Context& ctx, ConstMatrix values, const PackedMatrix& packed) {
  const auto count = HWY_DISPATCH_TABLE(CountBlockRows)[ctx.target()];
  BlockLosses all;
  std::mutex mutex;  // minima, maxima and sums of integers do not depend on the order
  for_row_ranges(ctx, packed.rows, packed.width, [&](std::size_t begin, std::size_t end) {
    const BlockLosses part = count(packed, values, begin, end);
    const std::scoped_lock lock(mutex);
    all.range.flushed += part.range.flushed;
    all.range.saturated += part.range.saturated;
    all.least_scale = std::min(all.least_scale, part.least_scale);
    all.most_scale = std::max(all.most_scale, part.most_scale);
  });
  all.least_scale *= packed.tensor_scale;
  all.most_scale *= packed.tensor_scale;
  return all;
}

}  // namespace mantissa::kernels
#endif
