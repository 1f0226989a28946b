// Conversion of matrices to packed blocks (core/tensor/layout.h). Blocks along columns are processed column
// by column in vectors.
#include <algorithm>
#include <cassert>

#include "mantissa/kernels/cpu/blocks/token_blocks.h"
#include "mantissa/kernels/cpu/gemm/packing.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/scaled.h"
#include "mantissa/kernels/token_bits.h"

#include "mantissa/kernels/cpu/piece.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/pack_blocks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/encode_blocks-inl.h"
#include "mantissa/core/numeric/stochastic-inl.h"
#include "mantissa/kernels/cpu/blocks/shared_maxima-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::BlockMaxima;
using mantissa::HWY_NAMESPACE::BlockRounder;
using mantissa::HWY_NAMESPACE::BlockScales;
using mantissa::HWY_NAMESPACE::EncodeRow;
using mantissa::HWY_NAMESPACE::LoadCount;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RandomRow;
using mantissa::HWY_NAMESPACE::StoreCodes;
using mantissa::HWY_NAMESPACE::StoreElementCodes;
using mantissa::HWY_NAMESPACE::StoreScaleCodes;
using mantissa::HWY_NAMESPACE::ViewRow;
using mantissa::HWY_NAMESPACE::WithFormat;

/// Packs rows [begin, end), which share scales, in blocks along rows.
template <BlockFormat F>
void PackSharedRows(const Packing& p, std::size_t begin, std::size_t end) {
  const BlockRounder<F> rounder(p.tensor_scale, p.how.scaling.rounding);
  HWY_ALIGN float buffer[kPiece];
  HWY_ALIGN std::uint32_t random[kPiece];
  const std::uint32_t largest =
      p.how.scaling.length == kWholeSum ? LargestOfRow<F>(p.from, p.width, begin) : std::uint32_t{0};
  for (std::size_t i = 0; i < p.width; i += kPiece) {
    const std::size_t n = std::min(kPiece, p.width - i);
    const auto view = [&](std::size_t row) HWY_ATTR {
      return ViewRow<float>(p.from.data, p.from.type, row * p.width + i, n, buffer);
    };
    BlockMaxima<F> maxima(n);
    const float* values = nullptr;
    if (p.how.scaling.length == kWholeSum) {
      values = view(begin);
      maxima.ShareWithAll(largest);
    } else {
      for (std::size_t row = begin; row < end; ++row) maxima.Add(values = view(row));
      maxima.Share(p.how.scaling.length);
    }
    const BlockScales<F> scales(rounder, maxima);
    for (std::size_t row = begin; row < end; ++row) {
      if (end - begin > 1) values = view(row);
      if (p.how.stochastic != nullptr) {
        const TokenBits bits = token_bits(*p.how.stochastic, static_cast<std::int64_t>(row), p.how.name);
        RandomRow(bits.stream, bits.position * p.width + i, n, random);
      }
      EncodeRow<F>(rounder, scales, values, n, p.how.stochastic == nullptr ? nullptr : random,
                   p.elements_at(row, i), p.scales_at(row, i));
    }
  }
}

/// Packs rows [begin, end) in blocks along rows. Every `shared` rows share scales.
void PackRows(const Packing& p, std::size_t shared, std::size_t begin, std::size_t end) {
  WithFormat(p.layout.blocks->format, [&](auto f) HWY_ATTR {
    for (std::size_t row = begin; row < end; row += shared)
      PackSharedRows<f()>(p, row, std::min(row + shared, end));
  });
}

/// Packs rows [begin, end) of `columns` in blocks along columns. In each column one scale is shared by all of
/// them.
template <BlockFormat F>
void PackColumns(const Packing& p, std::size_t begin, std::size_t end, ColumnRange columns) {
  const hn::ScalableTag<float> d;
  const BlockRounder<F> rounder(p.tensor_scale, p.how.scaling.rounding);
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  const std::size_t square = p.how.scaling.square ? static_cast<std::size_t>(p.how.scaling.length) : 1;
  HWY_ALIGN float buffer[kLongestScale * kColumnPiece];
  HWY_ALIGN std::uint8_t codes[kLongestScale * kColumnPiece];
  HWY_ALIGN std::uint8_t scale_codes[kColumnPiece];
  HWY_ALIGN std::uint32_t most[kColumnPiece];
  for (std::size_t column = columns.begin; column < columns.end; column += kColumnPiece) {
    const std::size_t n = std::min(kColumnPiece, columns.end - column);
    const auto load = [&](std::size_t first, std::size_t last) HWY_ATTR {
      for (std::size_t row = first; row < last; ++row)
        LoadRow<float>(p.from.data, p.from.type, row * p.width + column, n,
                       buffer + (row - first) * kColumnPiece);
    };
    LargestOfColumns<F>(begin, end, n, load, buffer, most);
    for (std::size_t i = 0; square > 1 && i < n; i += square) {
      const std::size_t some = std::min(square, n - i);
      std::fill_n(most + i, some, *std::max_element(most + i, most + i + some));
    }
    for (std::size_t first = begin; first < end; first += kLongestScale) {
      const std::size_t last = std::min(end, first + kLongestScale);
      if (end - begin > kLongestScale) load(first, last);
      for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
        const auto scales = rounder.ScalesOf(hn::Load(du, most + i));
        StoreScaleCodes<F>(scales.scale, scale_codes + i);
        for (std::size_t row = 0; row < last - first; ++row) {
          const std::size_t at = row * kColumnPiece + i;
          StoreElementCodes(rounder, LoadCount(d, buffer + at, n - i), scales, codes + at);
        }
      }
      for (std::size_t row = first; row < last; row += kBlock)
        std::copy_n(scale_codes, n, p.scales_at(row, column));
      for (std::size_t row = first; row < last; ++row) {
        std::uint8_t* of_row = codes + (row - first) * kColumnPiece;
        std::fill(of_row + n, of_row + kColumnPiece, std::uint8_t{0});
        StoreCodes<F>(of_row, n, p.elements_at(row, column));
      }
    }
  }
}

void PackBlocksAcross(const Packing& p, std::size_t begin, std::size_t end, ColumnRange columns) {
  WithFormat(p.layout.blocks->format, [&](auto f) HWY_ATTR { PackColumns<f()>(p, begin, end, columns); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(PackRows);
HWY_EXPORT(PackBlocksAcross);

void pack_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, void* to,
                 const Blocks& blocks, float tensor_scale, const BlockRounding& how) {
  assert(!how.hadamard && !(how.stochastic != nullptr && (blocks.along_rows || how.scaling.square)));
  const Layout layout{.blocks = blocks};
  auto* elements = static_cast<std::uint8_t*>(to);
  const Packing packing{from,
                        static_cast<std::size_t>(width),
                        layout,
                        elements,
                        elements + layout.scales_begin(rows, width),
                        tensor_scale,
                        how};
  if (!blocks.along_rows) {
    const std::int64_t shared = how.scaling.square ? how.scaling.length : 1;
    const auto pack = HWY_DISPATCH_TABLE(PackRows)[ctx.target()];
    for_row_ranges(ctx, (rows + shared - 1) / shared, shared * width,
                   [&](std::size_t begin, std::size_t end) {
                     const auto n = static_cast<std::size_t>(shared);
                     pack(packing, n, begin * n, std::min(static_cast<std::size_t>(rows), end * n));
                   });
    return;
  }
  const auto pack = HWY_DISPATCH_TABLE(PackBlocksAcross)[ctx.target()];
  const std::vector<Row> shared =
      token_blocks(rows, shared_rows(traits(blocks.format).block, how.scaling, rows), {});
  for_columns_of_blocks(
      ctx, shared, width, how.scaling,
      [&](std::size_t begin, std::size_t end, ColumnRange columns) { pack(packing, begin, end, columns); });
}

}  // namespace mantissa::kernels
#endif
