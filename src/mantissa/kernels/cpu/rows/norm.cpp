#include "mantissa/kernels/norm.h"

#include <algorithm>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/core/numeric/round_value-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/cpu/rows/token_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LaneSum;
using mantissa::HWY_NAMESPACE::RoundNumber;

/// Returns the offset, in elements, of group `group` of token `t` in a matrix of the norm `n`.
template <class Norm>
HWY_INLINE std::size_t RowOf(const Norm& n, ConstMatrix matrix, std::size_t t, std::size_t group) {
  return t * static_cast<std::size_t>(matrix.ld) + group * static_cast<std::size_t>(n.channels);
}

/// to[i] *= by[i].
template <class T>
void MultiplyRow(const T* by, std::size_t n, T* to) {
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, to + i), hn::LoadU(d, by + i)), d, to + i);
  });
}

/// Computes x · rstd, rounded to `format`.
template <class T>
void RoundedNormals(const T* x, T rstd, std::size_t n, Scalar format, T* to) {
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd)), d, to + i);
  });
  RoundRow<T>(to, n, format);
}

template <class T>
void NormalizeRow(const RmsNorm& n, std::size_t t, std::size_t group) {
  alignas(64) T x_buffer[kLongPiece], gain_buffer[kLongPiece], y_buffer[kLongPiece];
  const std::size_t channels = static_cast<std::size_t>(n.channels);
  const std::size_t x_row = RowOf(n, n.x, t, group), y_row = RowOf(n, n.y, t, group);
  const T* x = nullptr;
  LaneSum<T> squares;
  squares.Clear();
  for (std::size_t c = 0; c < channels; c += kLongPiece) {
    const std::size_t count = std::min(kLongPiece, channels - c);
    x = ViewRow<T>(n.x.data, n.x.type, x_row + c, count, x_buffer);
    squares.AddProduct(x, x, count);
  }
  const hn::CappedTag<T, 1> one;
  const T mean = RoundNumber(squares.Total() / static_cast<T>(n.channels), n.statistics);
  const auto root = mantissa::HWY_NAMESPACE::Rsqrt(one, hn::Set(one, mean + static_cast<T>(n.eps)));
  const T rstd = RoundNumber(hn::GetLane(root), n.statistics);
  static_cast<T*>(n.rstd.data)[t * static_cast<std::size_t>(n.groups) + group] = rstd;
  for (std::size_t c = 0; c < channels; c += kLongPiece) {
    const std::size_t count = std::min(kLongPiece, channels - c);
    if (channels > kLongPiece) x = ViewRow<T>(n.x.data, n.x.type, x_row + c, count, x_buffer);
    const T* gain = ViewRow<T>(n.gain.data, n.gain.type, c, count, gain_buffer);
    const OutRow<T> y(n.y.data, n.y.type, y_row + c, count, y_buffer);
    T* out = y.data();
    if (n.normalized != Scalar::f64) {
      RoundedNormals(x, rstd, count, n.normalized, out);
      MultiplyRow(gain, count, out);
    } else {
      ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
        const auto normal = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd));
        hn::StoreU(hn::Mul(normal, hn::LoadU(d, gain + i)), d, out + i);
      });
    }
    y.Store();
  }
}

/// Computes g = dy ∘ gain and x̂ = x·rstd of `count` channels from c on.
template <class T>
void NormalAndGradient(const RmsNormBackward& n, std::size_t t, std::size_t group, T rstd, std::size_t c,
                       std::size_t count, T* g, T* normal) {
  alignas(64) T x_buffer[kLongPiece], gain_buffer[kLongPiece], dy_buffer[kLongPiece];
  const T* x = ViewRow<T>(n.x.data, n.x.type, RowOf(n, n.x, t, group) + c, count, x_buffer);
  const T* dy = ViewRow<T>(n.dy.data, n.dy.type, RowOf(n, n.dy, t, group) + c, count, dy_buffer);
  const T* gain = ViewRow<T>(n.gain.data, n.gain.type, c, count, gain_buffer);
  ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, gain + i)), d, g + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd)), d, normal + i);
  });
  RoundRow<T>(g, count, n.normalized);
}

template <class T>
void BackwardRow(const RmsNormBackward& n, std::size_t t, std::size_t group) {
  alignas(64) T g[kLongPiece], normal[kLongPiece], dx_buffer[kLongPiece], addend_buffer[kLongPiece];
  const std::size_t channels = static_cast<std::size_t>(n.channels);
  const T rstd = static_cast<const T*>(n.rstd.data)[t * static_cast<std::size_t>(n.groups) + group];
  LaneSum<T> products;
  products.Clear();
  for (std::size_t c = 0; c < channels; c += kLongPiece) {
    const std::size_t count = std::min(kLongPiece, channels - c);
    NormalAndGradient(n, t, group, rstd, c, count, g, normal);
    products.AddProduct(g, normal, count);
  }
  const T mean = RoundNumber(products.Total() / static_cast<T>(n.channels), n.statistics);
  for (std::size_t c = 0; c < channels; c += kLongPiece) {
    const std::size_t count = std::min(kLongPiece, channels - c);
    if (channels > kLongPiece) NormalAndGradient(n, t, group, rstd, c, count, g, normal);
    const OutRow<T> dx(n.dx.data, n.dx.type, RowOf(n, n.dx, t, group) + c, count, dx_buffer);
    T* out = dx.data();
    const T* addend = nullptr;
    if (n.addend.data != nullptr) {
      addend =
          ViewRow<T>(n.addend.data, n.addend.type, RowOf(n, n.addend, t, group) + c, count, addend_buffer);
    }
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::NegMulAdd(hn::LoadU(d, normal + i), hn::Set(d, mean), hn::LoadU(d, g + i));
      auto value = hn::Mul(hn::Set(d, rstd), centred);
      if (addend != nullptr) value = hn::Add(value, hn::LoadU(d, addend + i));
      hn::StoreU(value, d, out + i);
    });
    dx.Store();
  }
}

/// Computes the chains of one block, tokens [begin, end), for channels [c, c + width) of `groups` groups from
/// `first` on: chains[group][channel].
template <class T>
void GainChains(const RmsNormGain& n, std::size_t begin, std::size_t end, std::size_t c, std::size_t width,
                std::size_t first, std::size_t groups, T* chains) {
  alignas(64) T x_buffer[kSumColumns], dy_buffer[kSumColumns], normal[kSumColumns];
  std::fill_n(chains, groups * width, T{0});
  for (std::size_t t = begin; t < end; ++t) {
    const T* rstd = static_cast<const T*>(n.rstd.data) + t * static_cast<std::size_t>(n.groups) + first;
    for (std::size_t g = 0; g < groups; ++g) {
      const T* x = ViewRow<T>(n.x.data, n.x.type, RowOf(n, n.x, t, first + g) + c, width, x_buffer);
      const T* dy = ViewRow<T>(n.dy.data, n.dy.type, RowOf(n, n.dy, t, first + g) + c, width, dy_buffer);
      T* chain = chains + g * width;
      if (n.normalized != Scalar::f64) {
        RoundedNormals(x, rstd[g], width, n.normalized, normal);
        ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
          const auto product = hn::LoadU(d, dy + i);
          hn::StoreU(hn::MulAdd(product, hn::LoadU(d, normal + i), hn::LoadU(d, chain + i)), d, chain + i);
        });
        continue;
      }
      ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
        const auto normal = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd[g]));
        hn::StoreU(hn::MulAdd(hn::LoadU(d, dy + i), normal, hn::LoadU(d, chain + i)), d, chain + i);
      });
    }
  }
}

/// Adds the chains of one block to `leaf`, group by group. As many groups as fit into the cache share a pass
/// over the block's tokens.
template <class T>
void AddGainBlock(const RmsNormGain& n, std::size_t begin, std::size_t end, std::size_t c, std::size_t width,
                  T* leaf) {
  alignas(64) T chains[kSumColumns];
  const std::size_t groups = static_cast<std::size_t>(n.groups);
  const std::size_t together = std::min(groups, static_cast<std::size_t>(kSumColumns) / width);
  for (std::size_t first = 0; first < groups; first += together) {
    const std::size_t count = std::min(together, groups - first);
    GainChains(n, begin, end, c, width, first, count, chains);
    for (std::size_t g = 0; g < count; ++g) AddRow(chains + g * width, width, leaf);
  }
}

template <class T>
void GainChannels(const Extent& extent, const RmsNormGain& n, std::size_t c, std::size_t width) {
  SumBlocks(extent, width, n.accumulate, static_cast<T*>(n.dgain.data) + c,
            [&](std::size_t begin, std::size_t end, T* leaf)
                HWY_ATTR { AddGainBlock(n, begin, end, c, width, leaf); });
}

void NormalizeRows(const RmsNorm& n, std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    for (std::size_t g = 0; g < static_cast<std::size_t>(n.groups); ++g)
      n.x.type == Scalar::f64 ? NormalizeRow<double>(n, t, g) : NormalizeRow<float>(n, t, g);
  }
}

void BackwardRows(const RmsNormBackward& n, std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    for (std::size_t g = 0; g < static_cast<std::size_t>(n.groups); ++g)
      n.x.type == Scalar::f64 ? BackwardRow<double>(n, t, g) : BackwardRow<float>(n, t, g);
  }
}

void GainRange(const Extent& extent, const RmsNormGain& n, std::size_t c, std::size_t width) {
  n.x.type == Scalar::f64 ? GainChannels<double>(extent, n, c, width)
                          : GainChannels<float>(extent, n, c, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(NormalizeRows);
HWY_EXPORT(BackwardRows);
HWY_EXPORT(GainRange);

namespace {

/// Calls body(n) with the gain of `n` replaced by gain_offset + gain, computed once in T.
template <class T, class Norm, class Body>
void with_raised_gain(const Context& ctx, Norm n, const Body& body) {
  std::vector<T> gain(static_cast<std::size_t>(n.channels));
  load_row(n.gain.data, n.gain.type, 0, gain.size(), gain.data(), simd_target(ctx.simd));
  for (T& g : gain) g += static_cast<T>(n.gain_offset);
  n.gain = {gain.data(), std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32, n.channels};
  n.gain_offset = 0;
  body(n);
}

/// Calls with_raised_gain in the arithmetic of `n`, or body(n) without an offset.
template <class Norm, class Body>
void with_gain(const Context& ctx, const Norm& n, const Body& body) {
  if (n.gain_offset == 0) return body(n);
  n.x.type == Scalar::f64 ? with_raised_gain<double>(ctx, n, body) : with_raised_gain<float>(ctx, n, body);
}

}  // namespace

void rmsnorm(const Context& ctx, std::int64_t tokens, const RmsNorm& norm) {
  const auto rows = HWY_DISPATCH_TABLE(NormalizeRows)[ctx.target()];
  with_gain(ctx, norm, [&](const RmsNorm& n) {
    for_row_ranges(ctx, tokens, n.groups * n.channels,
                   [&](std::size_t begin, std::size_t end) { rows(n, begin, end); });
  });
}

void rmsnorm_backward(const Context& ctx, std::int64_t tokens, const RmsNormBackward& norm) {
  const auto rows = HWY_DISPATCH_TABLE(BackwardRows)[ctx.target()];
  with_gain(ctx, norm, [&](const RmsNormBackward& n) {
    for_row_ranges(ctx, tokens, n.groups * n.channels,
                   [&](std::size_t begin, std::size_t end) { rows(n, begin, end); });
  });
}

void rmsnorm_gain(const Context& ctx, const Extent& extent, const RmsNormGain& n) {
  const auto range = HWY_DISPATCH_TABLE(GainRange)[ctx.target()];
  for_column_ranges(ctx, n.channels, n.groups * extent.tokens,
                    [&](std::size_t c, std::size_t width) { range(extent, n, c, width); });
}

}  // namespace mantissa::kernels
#endif
