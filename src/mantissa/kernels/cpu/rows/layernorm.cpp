#include "mantissa/kernels/layernorm.h"

#include <algorithm>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/layernorm.cpp"
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

/// Calls f(first, count) for the pieces of a row.
template <class F>
HWY_INLINE void ForEachPiece(std::size_t channels, const F& f) {
  for (std::size_t c = 0; c < channels; c += kLongPiece) f(c, std::min(kLongPiece, channels - c));
}

/// Returns elements [c, c + count) of row `t`, in place or in `buffer`.
template <class T>
HWY_INLINE const T* ViewPiece(ConstMatrix m, std::size_t t, std::size_t c, std::size_t count, T* buffer) {
  return ViewRow<T>(m.data, m.type, t * static_cast<std::size_t>(m.ld) + c, count, buffer);
}

/// out = x − mean.
template <class T>
HWY_INLINE void Centre(const T* x, std::size_t count, T mean, T* out) {
  ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), d, out + i);
  });
}

template <class T>
T ReciprocalRoot(T x) {
  const hn::CappedTag<T, 1> one;
  return hn::GetLane(mantissa::HWY_NAMESPACE::Rsqrt(one, hn::Set(one, x)));
}

template <class T>
void NormalizeRow(const LayerNorm& n, std::size_t t) {
  alignas(64) T x_buffer[kLongPiece], centred[kLongPiece], gain_buffer[kLongPiece], bias_buffer[kLongPiece],
      y_buffer[kLongPiece];
  const std::size_t channels = static_cast<std::size_t>(n.channels);
  const T count_of_all = static_cast<T>(n.channels);
  LaneSum<T> sum, squares;
  ForEachPiece(channels, [&](std::size_t c, std::size_t count)
                             HWY_ATTR { sum.Add(ViewPiece<T>(n.x, t, c, count, x_buffer), count); });
  const T mean = RoundNumber(sum.Total() / count_of_all, n.statistics);
  ForEachPiece(channels, [&](std::size_t c, std::size_t count) HWY_ATTR {
    Centre(ViewPiece<T>(n.x, t, c, count, x_buffer), count, mean, centred);
    squares.AddProduct(centred, centred, count);
  });
  const T variance = RoundNumber(squares.Total() / count_of_all, n.statistics);
  const T rstd = RoundNumber(ReciprocalRoot(variance + static_cast<T>(n.eps)), n.statistics);
  static_cast<T*>(n.mean.data)[t] = mean;
  static_cast<T*>(n.rstd.data)[t] = rstd;
  ForEachPiece(channels, [&](std::size_t c, std::size_t count) HWY_ATTR {
    if (channels > kLongPiece) Centre(ViewPiece<T>(n.x, t, c, count, x_buffer), count, mean, centred);
    const T* gain = ViewPiece<T>(n.gain, 0, c, count, gain_buffer);
    const T* bias = n.bias.data == nullptr ? nullptr : ViewPiece<T>(n.bias, 0, c, count, bias_buffer);
    const OutRow<T> y(n.y.data, n.y.type, t * static_cast<std::size_t>(n.y.ld) + c, count, y_buffer);
    T* out = y.data();
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto normal = hn::Mul(hn::LoadU(d, centred + i), hn::Set(d, rstd));
      const auto g = hn::LoadU(d, gain + i);
      const auto value = bias == nullptr ? hn::Mul(normal, g) : hn::MulAdd(normal, g, hn::LoadU(d, bias + i));
      hn::StoreU(value, d, out + i);
    });
    y.Store();
  });
}

/// Computes g = dy ∘ gain and x̂ of `count` channels from c on.
template <class T>
void NormalAndGradient(const LayerNormBackward& n, std::size_t t, std::size_t c, std::size_t count, T* g,
                       T* normal) {
  alignas(64) T x_buffer[kLongPiece], gain_buffer[kLongPiece], dy_buffer[kLongPiece];
  const T* x = ViewPiece<T>(n.x, t, c, count, x_buffer);
  const T* dy = ViewPiece<T>(n.dy, t, c, count, dy_buffer);
  const T* gain = ViewPiece<T>(n.gain, 0, c, count, gain_buffer);
  const T mean = static_cast<const T*>(n.mean.data)[t], rstd = static_cast<const T*>(n.rstd.data)[t];
  ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, gain + i)), d, g + i);
    const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    hn::StoreU(hn::Mul(centred, hn::Set(d, rstd)), d, normal + i);
  });
}

template <class T>
void BackwardRow(const LayerNormBackward& n, std::size_t t) {
  alignas(64) T g[kLongPiece], normal[kLongPiece], dx_buffer[kLongPiece], addend_buffer[kLongPiece];
  const std::size_t channels = static_cast<std::size_t>(n.channels);
  const T count_of_all = static_cast<T>(n.channels);
  LaneSum<T> gradients, products;
  ForEachPiece(channels, [&](std::size_t c, std::size_t count) HWY_ATTR {
    NormalAndGradient(n, t, c, count, g, normal);
    gradients.Add(g, count);
    products.AddProduct(g, normal, count);
  });
  const T mean = RoundNumber(gradients.Total() / count_of_all, n.statistics);
  const T pull = RoundNumber(products.Total() / count_of_all, n.statistics);
  const T rstd = static_cast<const T*>(n.rstd.data)[t];
  ForEachPiece(channels, [&](std::size_t c, std::size_t count) HWY_ATTR {
    if (channels > kLongPiece) NormalAndGradient(n, t, c, count, g, normal);
    const OutRow<T> dx(n.dx.data, n.dx.type, t * static_cast<std::size_t>(n.dx.ld) + c, count, dx_buffer);
    T* out = dx.data();
    const T* addend = n.addend.data == nullptr ? nullptr : ViewPiece<T>(n.addend, t, c, count, addend_buffer);
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, g + i), hn::Set(d, mean));
      const auto rest = hn::NegMulAdd(hn::LoadU(d, normal + i), hn::Set(d, pull), centred);
      auto value = hn::Mul(hn::Set(d, rstd), rest);
      if (addend != nullptr) value = hn::Add(value, hn::LoadU(d, addend + i));
      hn::StoreU(value, d, out + i);
    });
    dx.Store();
  });
}

/// Adds the chain of one block, tokens [begin, end) and channels [c, c + width), to `leaf`.
template <class T>
void AddGainBlock(const LayerNormGain& n, std::size_t begin, std::size_t end, std::size_t c,
                  std::size_t width, T* leaf) {
  alignas(64) T chain[kSumColumns], x_buffer[kSumColumns], dy_buffer[kSumColumns];
  std::fill_n(chain, width, T{0});
  for (std::size_t t = begin; t < end; ++t) {
    const T* x = ViewPiece<T>(n.x, t, c, width, x_buffer);
    const T* dy = ViewPiece<T>(n.dy, t, c, width, dy_buffer);
    const T mean = static_cast<const T*>(n.mean.data)[t], rstd = static_cast<const T*>(n.rstd.data)[t];
    ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
      const auto normal = hn::Mul(centred, hn::Set(d, rstd));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, dy + i), normal, hn::LoadU(d, chain + i)), d, chain + i);
    });
  }
  AddRow(chain, width, leaf);
}

template <class T>
void GainChannels(const Extent& extent, const LayerNormGain& n, std::size_t c, std::size_t width) {
  SumBlocks(extent, width, n.accumulate, static_cast<T*>(n.dgain.data) + c,
            [&](std::size_t begin, std::size_t end, T* leaf)
                HWY_ATTR { AddGainBlock(n, begin, end, c, width, leaf); });
}

void LayerNormRows(const LayerNorm& n, std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    n.x.type == Scalar::f64 ? NormalizeRow<double>(n, t) : NormalizeRow<float>(n, t);
  }
}

void LayerNormBackwardRows(const LayerNormBackward& n, std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    n.x.type == Scalar::f64 ? BackwardRow<double>(n, t) : BackwardRow<float>(n, t);
  }
}

void LayerNormGainRange(const Extent& extent, const LayerNormGain& n, std::size_t c, std::size_t width) {
  n.x.type == Scalar::f64 ? GainChannels<double>(extent, n, c, width)
                          : GainChannels<float>(extent, n, c, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(LayerNormRows);
HWY_EXPORT(LayerNormBackwardRows);
HWY_EXPORT(LayerNormGainRange);

void layernorm(const Context& ctx, std::int64_t tokens, const LayerNorm& n) {
  const auto rows = HWY_DISPATCH_TABLE(LayerNormRows)[ctx.target()];
  for_row_ranges(ctx, tokens, n.channels, [&](std::size_t begin, std::size_t end) { rows(n, begin, end); });
}

void layernorm_backward(const Context& ctx, std::int64_t tokens, const LayerNormBackward& n) {
  const auto rows = HWY_DISPATCH_TABLE(LayerNormBackwardRows)[ctx.target()];
  for_row_ranges(ctx, tokens, n.channels, [&](std::size_t begin, std::size_t end) { rows(n, begin, end); });
}

void layernorm_gain(const Context& ctx, const Extent& extent, const LayerNormGain& n) {
  const auto range = HWY_DISPATCH_TABLE(LayerNormGainRange)[ctx.target()];
  for_column_ranges(ctx, n.channels, extent.tokens,
                    [&](std::size_t c, std::size_t width) { range(extent, n, c, width); });
}

}  // namespace mantissa::kernels
#endif
