// Conversion to formats with scales, row by row. Blocks along columns are processed column by column in
// vectors.
#include "mantissa/kernels/scaled.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/round.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/scaled.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/core/numeric/scaled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::BlockRounder;
using mantissa::HWY_NAMESPACE::LoadCount;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::StoreCount;
using mantissa::HWY_NAMESPACE::StoreRow;
using mantissa::HWY_NAMESPACE::ViewRow;
using mantissa::HWY_NAMESPACE::WithFormat;

float MaximumOf(const void* src, Scalar type, std::size_t begin, std::size_t end) {
  const hn::ScalableTag<float> d;
  HWY_ALIGN float buffer[kPiece];
  auto most = hn::Zero(d);
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    const float* row = ViewRow<float>(src, type, i, n, buffer);
    for (std::size_t j = 0; j < n; j += hn::Lanes(d)) {
      const auto x = LoadCount(d, row + j, n - j);
      most = hn::Max(most, hn::IfThenElseZero(hn::IsFinite(x), hn::Abs(x)));
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// Rounds blocks along rows [begin, end).
void BlocksOfRows(ConstMatrix from, Matrix to, std::size_t width, BlockFormat format, float tensor_scale,
                  std::size_t begin, std::size_t end) {
  HWY_ALIGN float buffer[kPiece];
  for (std::size_t row = begin; row < end; ++row) {
    for (std::size_t i = 0; i < width; i += kPiece) {
      const std::size_t n = std::min(kPiece, width - i);
      LoadRow<float>(from.data, from.type, row * width + i, n, buffer);
      mantissa::HWY_NAMESPACE::RoundBlocks(format, buffer, n, tensor_scale);
      StoreRow<float>(buffer, n, to.data, to.type, row * width + i);
    }
  }
}

/// Rounds one block of each column: rows [begin, end), at most a block's length.
template <BlockFormat F>
void RoundColumns(ConstMatrix from, Matrix to, std::size_t width, float tensor_scale, std::size_t begin,
                  std::size_t end) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const BlockRounder<F> rounder(tensor_scale);
  HWY_ALIGN float buffer[kLongestBlock * kColumnPiece];
  for (std::size_t column = 0; column < width; column += kColumnPiece) {
    const std::size_t n = std::min(kColumnPiece, width - column);
    for (std::size_t row = begin; row < end; ++row)
      LoadRow<float>(from.data, from.type, row * width + column, n, buffer + (row - begin) * kColumnPiece);
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      auto most = hn::Zero(du);
      for (std::size_t row = 0; row < end - begin; ++row)
        most = BlockRounder<F>::Largest(most, LoadCount(d, buffer + row * kColumnPiece + i, n - i));
      const auto scales = rounder.ScalesOf(most);
      for (std::size_t row = 0; row < end - begin; ++row) {
        float* at = buffer + row * kColumnPiece + i;
        StoreCount(rounder.Round(LoadCount(d, at, n - i), scales), d, at, n - i);
      }
    }
    for (std::size_t row = begin; row < end; ++row)
      StoreRow<float>(buffer + (row - begin) * kColumnPiece, n, to.data, to.type, row * width + column);
  }
}

void BlocksAcross(ConstMatrix from, Matrix to, std::size_t width, BlockFormat format, float tensor_scale,
                  std::size_t begin, std::size_t end) {
  WithFormat(format, [&](auto f) HWY_ATTR { RoundColumns<f()>(from, to, width, tensor_scale, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(MaximumOf);
HWY_EXPORT(BlocksOfRows);
HWY_EXPORT(BlocksAcross);

float absolute_maximum(const Context& ctx, std::int64_t count, const void* src, Scalar type) {
  constexpr std::int64_t kPart = 1 << 14;
  std::vector<float> most(static_cast<std::size_t>((count + kPart - 1) / kPart));
  const auto maximum = HWY_DISPATCH_TABLE(MaximumOf)[ctx.target()];
  parallel_for(ctx, static_cast<std::int64_t>(most.size()), [&](std::int64_t i, int) {
    most[static_cast<std::size_t>(i)] = maximum(src, type, static_cast<std::size_t>(i * kPart),
                                                static_cast<std::size_t>(std::min(count, (i + 1) * kPart)));
  });
  return most.empty() ? 0.0F : *std::max_element(most.begin(), most.end());
}

void round_to_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                     BlockFormat format, float tensor_scale, bool along_rows, std::span<const Row> segments) {
  const auto columns = static_cast<std::size_t>(width);
  if (!along_rows) {
    const auto blocks = HWY_DISPATCH_TABLE(BlocksOfRows)[ctx.target()];
    for_row_ranges(ctx, rows, width, [&](std::size_t begin, std::size_t end) {
      blocks(from, to, columns, format, tensor_scale, begin, end);
    });
    return;
  }
  const Row whole{0, rows};
  std::vector<Row> blocks;
  for (const Row& segment : segments.empty() ? std::span(&whole, 1) : segments) {
    for (std::int64_t i = 0; i < segment.length; i += traits(format).block)
      blocks.push_back({segment.begin + i, std::min<std::int64_t>(traits(format).block, segment.length - i)});
  }
  const auto across = HWY_DISPATCH_TABLE(BlocksAcross)[ctx.target()];
  parallel_for(ctx, static_cast<std::int64_t>(blocks.size()), [&](std::int64_t i, int) {
    const Row& b = blocks[static_cast<std::size_t>(i)];
    across(from, to, columns, format, tensor_scale, static_cast<std::size_t>(b.begin),
           static_cast<std::size_t>(b.begin + b.length));
  });
}

void store_scaled(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                  const StoreScaled& how, TensorScale* scale, std::span<const Row> segments) {
  if (scale != nullptr && (how.current || scale->recording)) {
    const float amax = absolute_maximum(ctx, rows * width, from.data, from.type);
    if (how.current) set_scale(*scale, how.blocks == BlockFormat::nvfp4, to.type, amax, how.margin);
    if (scale->recording) scale->amax = std::max(scale->amax, amax);
  }
  const float factor = scale == nullptr ? 1.0F : scale->scale;
  if (how.blocks && how.packed) {
    assert(segments.empty() || !how.along_rows);
    pack_blocks(ctx, rows, width, from, to.data, {*how.blocks, how.along_rows}, factor);
  } else if (how.blocks) {
    round_to_blocks(ctx, rows, width, from, to, *how.blocks, factor, how.along_rows, segments);
  } else {
    round_tensor(ctx, rows * width, from.data, from.type, to.data, to.type, true, false, factor);
  }
}

}  // namespace mantissa::kernels
#endif
