// Conversion to formats with scales, row by row. Blocks along columns are processed column by column in
// vectors.
#include "mantissa/kernels/scaled.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "mantissa/kernels/cpu/blocks/token_blocks.h"
#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/hadamard.h"
#include "mantissa/kernels/round.h"
#include "mantissa/kernels/token_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/scaled.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/core/numeric/scaled-inl.h"
#include "mantissa/core/numeric/stochastic-inl.h"
#include "mantissa/kernels/cpu/blocks/hadamard-inl.h"
#include "mantissa/kernels/cpu/blocks/shared_maxima-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::BlockMaxima;
using mantissa::HWY_NAMESPACE::BlockRounder;
using mantissa::HWY_NAMESPACE::BlockScales;
using mantissa::HWY_NAMESPACE::ClampRow;
using mantissa::HWY_NAMESPACE::LoadCount;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RandomRow;
using mantissa::HWY_NAMESPACE::RewriteRow;
using mantissa::HWY_NAMESPACE::RoundPart;
using mantissa::HWY_NAMESPACE::StoreCount;
using mantissa::HWY_NAMESPACE::StoreRow;
using mantissa::HWY_NAMESPACE::StoreRowStochastic;
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

/// Rounds rows [begin, end), which share scales, in blocks along rows.
template <BlockFormat F>
void RoundSharedRows(ConstMatrix from, Matrix to, std::size_t width, float tensor_scale,
                     const BlockRounding& how, std::size_t begin, std::size_t end) {
  const BlockRounder<F> rounder(tensor_scale, how.scaling.rounding);
  HWY_ALIGN float buffer[kPiece];
  HWY_ALIGN std::uint32_t random[kPiece];
  const std::uint32_t largest =
      how.scaling.length == kWholeSum ? LargestOfRow<F>(from, width, begin) : std::uint32_t{0};
  for (std::size_t i = 0; i < width; i += kPiece) {
    const std::size_t n = std::min(kPiece, width - i);
    BlockMaxima<F> maxima(n);
    for (std::size_t row = begin; row < end; ++row) {
      LoadRow<float>(from.data, from.type, row * width + i, n, buffer);
      if (how.scaling.length != kWholeSum) maxima.Add(buffer);
    }
    if (how.scaling.length == kWholeSum) {
      maxima.ShareWithAll(largest);
    } else {
      maxima.Share(how.scaling.length);
    }
    const BlockScales<F> scales(rounder, maxima);
    for (std::size_t row = begin; row < end; ++row) {
      if (end - begin > 1) LoadRow<float>(from.data, from.type, row * width + i, n, buffer);
      if (how.stochastic != nullptr) {
        const TokenBits bits = token_bits(*how.stochastic, static_cast<std::int64_t>(row), how.name);
        RandomRow(bits.stream, bits.position * width + i, n, random);
      }
      RoundPart<F>(rounder, scales, how.stochastic == nullptr ? nullptr : random, n, buffer);
      StoreRow<float>(buffer, n, to.data, to.type, row * width + i);
    }
  }
}

void BlocksOfRows(ConstMatrix from, Matrix to, std::size_t width, BlockFormat format, float tensor_scale,
                  const BlockRounding& how, std::size_t begin, std::size_t end) {
  WithFormat(format,
             [&](auto f) HWY_ATTR { RoundSharedRows<f()>(from, to, width, tensor_scale, how, begin, end); });
}

/// Transforms the rows of a block along tokens, which lie kColumnPiece apart, if `how` asks for it.
HWY_INLINE void TransformBlock(const BlockRounding& how, std::size_t rows, std::size_t n, Scalar type,
                               float* HWY_RESTRICT buffer) {
  if (how.hadamard) HadamardRows(buffer, rows, kColumnPiece, n, *how.hadamard, type);
}

/// Returns the largest finite magnitude of rows [begin, end) after their transform.
float MaximumOfBlock(ConstMatrix from, std::size_t width, const BlockRounding& how, std::size_t begin,
                     std::size_t end) {
  const hn::ScalableTag<float> d;
  HWY_ALIGN float buffer[kLongestScale * kColumnPiece];
  auto most = hn::Zero(d);
  for (std::size_t column = 0; column < width; column += kColumnPiece) {
    const std::size_t n = std::min(kColumnPiece, width - column);
    for (std::size_t row = begin; row < end; ++row)
      LoadRow<float>(from.data, from.type, row * width + column, n, buffer + (row - begin) * kColumnPiece);
    TransformBlock(how, end - begin, n, from.type, buffer);
    for (std::size_t row = 0; row < end - begin; ++row) {
      for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
        const auto x = LoadCount(d, buffer + row * kColumnPiece + i, n - i);
        most = hn::Max(most, hn::IfThenElseZero(hn::IsFinite(x), hn::Abs(x)));
      }
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// Rounds rows [begin, end) of `columns`, in each of which one scale is shared by all of them.
template <BlockFormat F>
void RoundColumns(ConstMatrix from, Matrix to, std::size_t width, float tensor_scale,
                  const BlockRounding& how, std::size_t begin, std::size_t end, ColumnRange columns) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const BlockRounder<F> rounder(tensor_scale, how.scaling.rounding);
  HWY_ALIGN float buffer[kLongestScale * kColumnPiece];
  HWY_ALIGN std::uint32_t random[kColumnPiece], most[kColumnPiece];
  HWY_ALIGN float scale[kColumnPiece], by[kColumnPiece];
  for (std::size_t column = columns.begin; column < columns.end; column += kColumnPiece) {
    const std::size_t n = std::min(kColumnPiece, columns.end - column);
    std::size_t loaded = end;
    const auto load = [&](std::size_t first, std::size_t last) HWY_ATTR {
      for (std::size_t row = first; row < last; ++row)
        LoadRow<float>(from.data, from.type, row * width + column, n, buffer + (row - first) * kColumnPiece);
      TransformBlock(how, last - first, n, from.type, buffer);
      loaded = first;
    };
    LargestOfColumns<F>(begin, end, n, load, buffer, most);
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      const auto scales = rounder.ScalesOf(hn::Load(du, most + i));
      hn::Store(scales.scale, d, scale + i);
      hn::Store(scales.by, d, by + i);
    }
    for (std::size_t row = begin; row < end; ++row) {
      const std::size_t first = row - (row - begin) % kLongestScale;
      if (first != loaded) load(first, std::min(end, first + kLongestScale));
      float* values = buffer + (row - first) * kColumnPiece;
      if (how.stochastic != nullptr) {
        const TokenBits bits = token_bits(*how.stochastic, static_cast<std::int64_t>(row), how.name);
        RandomRow(bits.stream, bits.position * width + column, n, random);
      }
      for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
        const auto x = LoadCount(d, values + i, n - i);
        const typename BlockRounder<F>::Scales scales{hn::Load(d, scale + i), hn::Load(d, by + i)};
        const auto value = how.stochastic == nullptr
                               ? rounder.Round(x, scales)
                               : rounder.Round(x, scales, LoadCount(du, random + i, n - i));
        StoreCount(value, d, values + i, n - i);
      }
      StoreRow<float>(values, n, to.data, to.type, row * width + column);
    }
  }
}

void BlocksAcross(ConstMatrix from, Matrix to, std::size_t width, BlockFormat format, float tensor_scale,
                  const BlockRounding& how, std::size_t begin, std::size_t end, ColumnRange columns) {
  WithFormat(format, [&](auto f) HWY_ATTR {
    RoundColumns<f()>(from, to, width, tensor_scale, how, begin, end, columns);
  });
}

/// Rounds row `row` times `factor` stochastically to the elements of to.type, saturating.
void RoundScaledToken(ConstMatrix from, Matrix to, std::size_t width, float factor, const TokenBits& bits,
                      std::size_t row) {
  HWY_ALIGN float buffer[kPiece];
  for (std::size_t i = 0; i < width; i += kPiece) {
    const std::size_t n = std::min(kPiece, width - i);
    LoadRow<float>(from.data, from.type, row * width + i, n, buffer);
    RewriteRow(buffer, n, [factor](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, factor)); });
    ClampRow(buffer, n, to.type);
    StoreRowStochastic(buffer, n, to.data, to.type, row * width + i, bits.stream, bits.position * width + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(MaximumOf);
HWY_EXPORT(BlocksOfRows);
HWY_EXPORT(BlocksAcross);
HWY_EXPORT(MaximumOfBlock);
HWY_EXPORT(RoundScaledToken);

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
                     BlockFormat format, float tensor_scale, bool along_rows, std::span<const Row> segments,
                     const BlockRounding& how) {
  const auto columns = static_cast<std::size_t>(width);
  if (!along_rows) {
    assert(!how.hadamard);
    const std::int64_t shared = how.scaling.square ? how.scaling.length : 1;
    const auto blocks = HWY_DISPATCH_TABLE(BlocksOfRows)[ctx.target()];
    parallel_for(ctx, (rows + shared - 1) / shared, [&](std::int64_t i, int) {
      blocks(from, to, columns, format, tensor_scale, how, static_cast<std::size_t>(i * shared),
             static_cast<std::size_t>(std::min(rows, (i + 1) * shared)));
    });
    return;
  }
  assert(!how.scaling.square);
  const std::vector<Row> blocks =
      token_blocks(rows, shared_rows(traits(format).block, how.scaling, rows), segments);
  const auto across = HWY_DISPATCH_TABLE(BlocksAcross)[ctx.target()];
  for_columns_of_blocks(ctx, blocks, width, how.scaling,
                        [&](std::size_t begin, std::size_t end, ColumnRange range) {
                          across(from, to, columns, format, tensor_scale, how, begin, end, range);
                        });
}

namespace {

/// absolute_maximum() of tokens that are transformed first.
float transformed_maximum(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from,
                          std::span<const Row> segments, const BlockRounding& how) {
  const std::vector<Row> blocks = token_blocks(rows, static_cast<std::int64_t>(kLongestScale), segments);
  std::vector<float> most(blocks.size());
  const auto maximum = HWY_DISPATCH_TABLE(MaximumOfBlock)[ctx.target()];
  parallel_for(ctx, static_cast<std::int64_t>(blocks.size()), [&](std::int64_t i, int) {
    const Row& b = blocks[static_cast<std::size_t>(i)];
    most[static_cast<std::size_t>(i)] =
        maximum(from, static_cast<std::size_t>(width), how, static_cast<std::size_t>(b.begin),
                static_cast<std::size_t>(b.begin + b.length));
  });
  return most.empty() ? 0.0F : *std::max_element(most.begin(), most.end());
}

void round_stochastically(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from,
                          Matrix to, const BlockRounding& how, float factor) {
  const auto round = HWY_DISPATCH_TABLE(RoundScaledToken)[ctx.target()];
  for_row_ranges(ctx, rows, width, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row)
      round(from, to, static_cast<std::size_t>(width), factor,
            token_bits(*how.stochastic, static_cast<std::int64_t>(row), how.name), row);
  });
}

}  // namespace

void store_scaled(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                  const StoreScaled& how, TensorScale* scale, std::span<const Row> segments) {
  if (scale != nullptr && (how.current || scale->recording)) {
    const float amax = how.rounding.hadamard
                           ? transformed_maximum(ctx, rows, width, from, segments, how.rounding)
                           : absolute_maximum(ctx, rows * width, from.data, from.type);
    if (how.current) set_scale(*scale, how.blocks == BlockFormat::nvfp4, to.type, amax, how.margin);
    if (scale->recording) scale->amax = std::max(scale->amax, amax);
  }
  const float factor = scale == nullptr ? 1.0F : scale->scale;
  if (how.blocks && how.packed) {
    assert(segments.empty() || !how.along_rows);
    pack_blocks(ctx, rows, width, from, to.data, {*how.blocks, how.along_rows}, factor, how.rounding);
  } else if (how.blocks) {
    round_to_blocks(ctx, rows, width, from, to, *how.blocks, factor, how.along_rows, segments, how.rounding);
  } else if (how.rounding.stochastic != nullptr) {
    round_stochastically(ctx, rows, width, from, to, how.rounding, factor);
  } else {
    round_tensor(ctx, rows * width, from.data, from.type, to.data, to.type, true, false, factor);
  }
}

}  // namespace mantissa::kernels
#endif
