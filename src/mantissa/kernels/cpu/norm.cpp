#include "mantissa/kernels/norm.h"

#include <algorithm>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows-inl.h"
#include "mantissa/numeric/lanes-inl.h"
#include "mantissa/numeric/math-inl.h"
#include "mantissa/numeric/round_value-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LaneSum;
using mantissa::HWY_NAMESPACE::RoundNumber;

// Rows are worked through in pieces that stay in the first-level cache. A multiple of the 16 virtual lanes,
// so that the lane of a channel does not depend on it.
constexpr std::size_t kPiece = 2048;

template <class T>
void NormalizeRow(const RmsNorm& n, std::size_t t) {
  alignas(64) T x_buffer[kPiece], gain_buffer[kPiece], y_buffer[kPiece];
  const std::size_t channels = static_cast<std::size_t>(n.channels);
  const std::size_t x_row = t * static_cast<std::size_t>(n.x.ld),
                    y_row = t * static_cast<std::size_t>(n.y.ld);
  const T* x = nullptr;
  LaneSum<T> squares;
  squares.Clear();
  for (std::size_t c = 0; c < channels; c += kPiece) {
    const std::size_t count = std::min(kPiece, channels - c);
    x = ViewRow<T>(n.x.data, n.x.type, x_row + c, count, x_buffer);
    squares.AddProduct(x, x, count);
  }
  const hn::CappedTag<T, 1> one;
  const T mean = RoundNumber(squares.Total() / static_cast<T>(n.channels), n.statistics);
  const auto root = mantissa::HWY_NAMESPACE::Rsqrt(one, hn::Set(one, mean + static_cast<T>(n.eps)));
  const T rstd = RoundNumber(hn::GetLane(root), n.statistics);
  static_cast<T*>(n.rstd.data)[t] = rstd;
  for (std::size_t c = 0; c < channels; c += kPiece) {
    const std::size_t count = std::min(kPiece, channels - c);
    if (channels > kPiece) x = ViewRow<T>(n.x.data, n.x.type, x_row + c, count, x_buffer);
    const T* gain = ViewRow<T>(n.gain.data, n.gain.type, c, count, gain_buffer);
    const OutRow<T> y(n.y.data, n.y.type, y_row + c, count, y_buffer);
    T* out = y.data();
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto normal = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd));
      hn::StoreU(hn::Mul(normal, hn::LoadU(d, gain + i)), d, out + i);
    });
    y.Store();
  }
}

/// g = dy ∘ gain and x̂ = x·rstd of `count` channels from c on.
template <class T>
void NormalAndGradient(const RmsNormBackward& n, std::size_t t, T rstd, std::size_t c, std::size_t count,
                       T* g, T* normal) {
  alignas(64) T x_buffer[kPiece], gain_buffer[kPiece], dy_buffer[kPiece];
  const T* x = ViewRow<T>(n.x.data, n.x.type, t * static_cast<std::size_t>(n.x.ld) + c, count, x_buffer);
  const T* dy = ViewRow<T>(n.dy.data, n.dy.type, t * static_cast<std::size_t>(n.dy.ld) + c, count, dy_buffer);
  const T* gain = ViewRow<T>(n.gain.data, n.gain.type, c, count, gain_buffer);
  ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, gain + i)), d, g + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd)), d, normal + i);
  });
}

template <class T>
void BackwardRow(const RmsNormBackward& n, std::size_t t) {
  alignas(64) T g[kPiece], normal[kPiece], dx_buffer[kPiece], addend_buffer[kPiece];
  const std::size_t channels = static_cast<std::size_t>(n.channels);
  const T rstd = static_cast<const T*>(n.rstd.data)[t];
  LaneSum<T> products;
  products.Clear();
  for (std::size_t c = 0; c < channels; c += kPiece) {
    const std::size_t count = std::min(kPiece, channels - c);
    NormalAndGradient(n, t, rstd, c, count, g, normal);
    products.AddProduct(g, normal, count);
  }
  const T mean = RoundNumber(products.Total() / static_cast<T>(n.channels), n.statistics);
  for (std::size_t c = 0; c < channels; c += kPiece) {
    const std::size_t count = std::min(kPiece, channels - c);
    if (channels > kPiece) NormalAndGradient(n, t, rstd, c, count, g, normal);
    const OutRow<T> dx(n.dx.data, n.dx.type, t * static_cast<std::size_t>(n.dx.ld) + c, count, dx_buffer);
    T* out = dx.data();
    const T* addend = nullptr;
    if (n.addend.data != nullptr) {
      addend = ViewRow<T>(n.addend.data, n.addend.type, t * static_cast<std::size_t>(n.addend.ld) + c, count,
                          addend_buffer);
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

// Most channels of one task of the gain's gradient: its chain and sums stay in the first-level cache. As wide
// as that, since narrow columns of a matrix are read slowly.
constexpr std::size_t kGainChannels = 1024;

/// The chain of one block: tokens [begin, end), channels [c, c + width).
template <class T>
void GainBlock(const RmsNormGain& n, std::size_t begin, std::size_t end, std::size_t c, std::size_t width,
               T* chain) {
  alignas(64) T x_buffer[kGainChannels], dy_buffer[kGainChannels];
  const T* rstd = static_cast<const T*>(n.rstd.data);
  std::fill_n(chain, width, T{0});
  for (std::size_t t = begin; t < end; ++t) {
    const T* x = ViewRow<T>(n.x.data, n.x.type, t * static_cast<std::size_t>(n.x.ld) + c, width, x_buffer);
    const T* dy =
        ViewRow<T>(n.dy.data, n.dy.type, t * static_cast<std::size_t>(n.dy.ld) + c, width, dy_buffer);
    ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
      const auto normal = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd[t]));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, dy + i), normal, hn::LoadU(d, chain + i)), d, chain + i);
    });
  }
}

template <class T>
void GainChannels(const Extent& extent, const RmsNormGain& n, std::size_t c, std::size_t width) {
  alignas(64) T chain[kGainChannels], leaf[kGainChannels];
  T* dgain = static_cast<T*>(n.dgain.data) + c;
  if (!n.accumulate) std::fill_n(dgain, width, T{0});
  const std::size_t rows_per_leaf = static_cast<std::size_t>(extent.rows_per_leaf);
  for (std::size_t first = 0; first < extent.rows.size(); first += rows_per_leaf) {
    std::fill_n(leaf, width, T{0});
    for (const Row& row : extent.rows.subspan(first, std::min(rows_per_leaf, extent.rows.size() - first))) {
      const std::int64_t row_end = row.begin + row.length;
      for (std::int64_t block = row.begin; block < row_end; block += kSumBlock) {
        GainBlock(n, static_cast<std::size_t>(block),
                  static_cast<std::size_t>(std::min(block + kSumBlock, row_end)), c, width, chain);
        AddRow(chain, width, leaf);
      }
    }
    AddRow(leaf, width, dgain);
  }
}

void NormalizeRows(const RmsNorm& n, std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    n.x.type == Scalar::f64 ? NormalizeRow<double>(n, t) : NormalizeRow<float>(n, t);
  }
}

void BackwardRows(const RmsNormBackward& n, std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    n.x.type == Scalar::f64 ? BackwardRow<double>(n, t) : BackwardRow<float>(n, t);
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

void rmsnorm(const Context& ctx, const Extent& extent, const RmsNorm& n) {
  const auto rows = HWY_DISPATCH_TABLE(NormalizeRows)[ctx.target()];
  for_row_ranges(ctx, extent.tokens, n.channels,
                 [&](std::size_t begin, std::size_t end) { rows(n, begin, end); });
}

void rmsnorm_backward(const Context& ctx, const Extent& extent, const RmsNormBackward& n) {
  const auto rows = HWY_DISPATCH_TABLE(BackwardRows)[ctx.target()];
  for_row_ranges(ctx, extent.tokens, n.channels,
                 [&](std::size_t begin, std::size_t end) { rows(n, begin, end); });
}

void rmsnorm_gain(const Context& ctx, const Extent& extent, const RmsNormGain& n) {
  const auto range = HWY_DISPATCH_TABLE(GainRange)[ctx.target()];
  // A range is a whole number of cache lines, one for each thread or several.
  const std::int64_t share = (n.channels + ctx.threads - 1) / ctx.threads;
  const std::int64_t width = std::min<std::int64_t>(1024, (share + 15) / 16 * 16);
  for_row_ranges(ctx, (n.channels + width - 1) / width, width * extent.tokens,
                 [&](std::size_t begin, std::size_t end) {
                   for (std::size_t i = begin; i < end; ++i) {
                     const std::int64_t c = static_cast<std::int64_t>(i) * width;
                     range(extent, n, static_cast<std::size_t>(c),
                           static_cast<std::size_t>(std::min(width, n.channels - c)));
                   }
                 });
}

}  // namespace mantissa::kernels
#endif
