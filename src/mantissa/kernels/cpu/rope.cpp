#include "mantissa/kernels/rope.h"

#include <algorithm>
#include <cmath>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kPairs = 512;  // pairs of channels that are rotated at once

/// Rotates the pairs (x[i], x[i + half]), i in [first, first + count), of every head of token t.
template <class T>
void RotatePairs(const Rope& r, std::size_t t, std::size_t position, std::size_t first, std::size_t count) {
  alignas(64) T cos_buffer[kPairs], sin_buffer[kPairs], x_buffers[2][kPairs], y_buffers[2][kPairs];
  const std::size_t heads = static_cast<std::size_t>(r.heads), dim = static_cast<std::size_t>(r.head_dim);
  const T* cos = ViewRow<T>(r.cos.data, r.cos.type, position * static_cast<std::size_t>(r.cos.ld) + first,
                            count, cos_buffer);
  const T* sin = ViewRow<T>(r.sin.data, r.sin.type, position * static_cast<std::size_t>(r.sin.ld) + first,
                            count, sin_buffer);
  const T direction = r.inverse ? T{-1} : T{1};
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t low = h * dim + first, high = low + dim / 2;
    const std::size_t x_row = t * static_cast<std::size_t>(r.x.ld),
                      y_row = t * static_cast<std::size_t>(r.y.ld);
    const T* x0 = ViewRow<T>(r.x.data, r.x.type, x_row + low, count, x_buffers[0]);
    const T* x1 = ViewRow<T>(r.x.data, r.x.type, x_row + high, count, x_buffers[1]);
    const OutRow<T> out0(r.y.data, r.y.type, y_row + low, count, y_buffers[0]);
    const OutRow<T> out1(r.y.data, r.y.type, y_row + high, count, y_buffers[1]);
    T* y0 = out0.data();
    T* y1 = out1.data();
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto a = hn::LoadU(d, x0 + i), b = hn::LoadU(d, x1 + i);
      const auto c = hn::LoadU(d, cos + i), s = hn::Mul(hn::LoadU(d, sin + i), hn::Set(d, direction));
      hn::StoreU(hn::MulSub(a, c, hn::Mul(b, s)), d, y0 + i);
      hn::StoreU(hn::MulAdd(b, c, hn::Mul(a, s)), d, y1 + i);
    });
    out0.Store();
    out1.Store();
  }
}

template <class T>
void RotateTokens(const Extent& extent, const Rope& r, std::size_t begin, std::size_t end) {
  const std::size_t half = static_cast<std::size_t>(r.head_dim) / 2;
  auto segment =
      std::upper_bound(extent.segments.begin(), extent.segments.end(), static_cast<std::int64_t>(begin),
                       [](std::int64_t t, const Segment& s) { return t < s.begin + s.length; });
  for (std::size_t t = begin; t < end; ++t) {
    const std::int64_t token = static_cast<std::int64_t>(t);
    while (token >= segment->begin + segment->length) ++segment;
    const std::size_t position = static_cast<std::size_t>(segment->position + token - segment->begin);
    for (std::size_t i = 0; i < half; i += kPairs)
      RotatePairs<T>(r, t, position, i, std::min(kPairs, half - i));
  }
}

void RopeTokens(const Extent& extent, const Rope& r, std::size_t begin, std::size_t end) {
  r.x.type == Scalar::f64 ? RotateTokens<double>(extent, r, begin, end)
                          : RotateTokens<float>(extent, r, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(RopeTokens);

void rope(const Context& ctx, const Extent& extent, const Rope& r) {
  const auto tokens = HWY_DISPATCH_TABLE(RopeTokens)[ctx.target()];
  for_row_ranges(ctx, extent.tokens, r.heads * r.head_dim,
                 [&](std::size_t begin, std::size_t end) { tokens(extent, r, begin, end); });
}

}  // namespace mantissa::kernels
#endif
