// Conversion of matrices to packed blocks (core/tensor/layout.h). Blocks along columns are processed column
// by column in vectors.
#include <algorithm>

#include "mantissa/kernels/cpu/gemm/packing.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/scaled.h"

#include "mantissa/kernels/cpu/piece.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/pack_blocks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/encode_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::BlockRounder;
using mantissa::HWY_NAMESPACE::EncodeRow;
using mantissa::HWY_NAMESPACE::LoadCount;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::StoreCodes;
using mantissa::HWY_NAMESPACE::StoreElementCodes;
using mantissa::HWY_NAMESPACE::StoreScaleCodes;
using mantissa::HWY_NAMESPACE::ViewRow;
using mantissa::HWY_NAMESPACE::WithFormat;

/// Packs rows [begin, end) in blocks along rows.
void PackRows(const Packing& p, std::size_t begin, std::size_t end) {
  HWY_ALIGN float buffer[kPiece];
  for (std::size_t row = begin; row < end; ++row) {
    for (std::size_t i = 0; i < p.width; i += kPiece) {
      const std::size_t n = std::min(kPiece, p.width - i);
      const float* values = ViewRow<float>(p.from.data, p.from.type, row * p.width + i, n, buffer);
      EncodeRow(p.layout.blocks->format, values, n, p.tensor_scale, p.elements_at(row, i),
                p.scales_at(row, i));
    }
  }
}

/// Packs one block of every column: rows [begin, end), at most a block's length.
template <BlockFormat F>
void PackColumns(const Packing& p, std::size_t begin, std::size_t end) {
  const hn::ScalableTag<float> d;
  const BlockRounder<F> rounder(p.tensor_scale);
  const hn::RebindToUnsigned<decltype(d)> du;
  HWY_ALIGN float buffer[kLongestBlock * kColumnPiece] = {};
  HWY_ALIGN std::uint8_t codes[kLongestBlock * kColumnPiece];
  HWY_ALIGN std::uint8_t scale_codes[kColumnPiece];
  for (std::size_t column = 0; column < p.width; column += kColumnPiece) {
    const std::size_t n = std::min(kColumnPiece, p.width - column);
    for (std::size_t row = begin; row < end; ++row)
      LoadRow<float>(p.from.data, p.from.type, row * p.width + column, n,
                     buffer + (row - begin) * kColumnPiece);
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      auto most = hn::Zero(du);
      for (std::size_t row = 0; row < end - begin; ++row)
        most = BlockRounder<F>::Largest(most, LoadCount(d, buffer + row * kColumnPiece + i, n - i));
      const auto scales = rounder.ScalesOf(most);
      StoreScaleCodes<F>(scales.scale, scale_codes + i);
      for (std::size_t row = 0; row < end - begin; ++row) {
        const std::size_t at = row * kColumnPiece + i;
        StoreElementCodes(rounder, LoadCount(d, buffer + at, n - i), scales, codes + at);
      }
    }
    std::copy_n(scale_codes, n, p.scales_at(begin, column));
    for (std::size_t row = begin; row < end; ++row) {
      std::uint8_t* of_row = codes + (row - begin) * kColumnPiece;
      std::fill(of_row + n, of_row + kColumnPiece, std::uint8_t{0});
      StoreCodes<F>(of_row, n, p.elements_at(row, column));
    }
  }
}

void PackBlocksAcross(const Packing& p, std::size_t begin, std::size_t end) {
  WithFormat(p.layout.blocks->format, [&](auto f) HWY_ATTR { PackColumns<f()>(p, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(PackRows);
HWY_EXPORT(PackBlocksAcross);

void pack_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, void* to,
                 const Blocks& blocks, float tensor_scale) {
  const Layout layout{.blocks = blocks};
  auto* elements = static_cast<std::uint8_t*>(to);
  const Packing packing{from,
                        static_cast<std::size_t>(width),
                        layout,
                        elements,
                        elements + layout.scales_begin(rows, width),
                        tensor_scale};
  if (!blocks.along_rows) {
    const auto pack = HWY_DISPATCH_TABLE(PackRows)[ctx.target()];
    for_row_ranges(ctx, rows, width, [&](std::size_t begin, std::size_t end) { pack(packing, begin, end); });
    return;
  }
  const auto pack = HWY_DISPATCH_TABLE(PackBlocksAcross)[ctx.target()];
  const std::int64_t block = traits(blocks.format).block;
  parallel_for(ctx, (rows + block - 1) / block, [&](std::int64_t i, int) {
    pack(packing, static_cast<std::size_t>(i * block),
         static_cast<std::size_t>(std::min(rows, (i + 1) * block)));
  });
}

}  // namespace mantissa::kernels
#endif
