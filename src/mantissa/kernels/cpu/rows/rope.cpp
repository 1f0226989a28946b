#include "mantissa/kernels/rope.h"

#include <algorithm>
#include <vector>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Rows in the arithmetic type T, unless they are read and written in place.
template <class T>
struct RopeBuffers {
  explicit RopeBuffers(const Rope& r)
      : x(static_cast<std::size_t>(r.heads * r.head_dim)),
        y(x.size()),
        cos(static_cast<std::size_t>(r.rotated) / 2),
        sin(cos.size()) {}
  std::vector<T> x, y, cos, sin;
};

/// Rotates (a, b) by the angles i of all lanes.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE void RotatePair(D d, hn::TFromD<D> direction, const hn::TFromD<D>* cos, const hn::TFromD<D>* sin,
                           std::size_t i, V& a, V& b) {
  const V c = hn::LoadU(d, cos + i), s = hn::Mul(hn::LoadU(d, sin + i), hn::Set(d, direction));
  const V low = hn::MulSub(a, c, hn::Mul(b, s));
  b = hn::MulAdd(b, c, hn::Mul(a, s));
  a = low;
}

/// Rotates the first r.rotated values of every head of token t, and copies the others.
template <class T>
void RotateToken(const Rope& r, std::size_t t, std::size_t position, RopeBuffers<T>& buffers) {
  const auto dim = static_cast<std::size_t>(r.head_dim), rotated = static_cast<std::size_t>(r.rotated),
             half = rotated / 2, width = buffers.x.size();
  const auto row = [](const auto& matrix, std::size_t i) { return i * static_cast<std::size_t>(matrix.ld); };
  const T* cos = ViewRow<T>(r.cos.data, r.cos.type, row(r.cos, position), half, buffers.cos.data());
  const T* sin = ViewRow<T>(r.sin.data, r.sin.type, row(r.sin, position), half, buffers.sin.data());
  const T* x = ViewRow<T>(r.x.data, r.x.type, row(r.x, t), width, buffers.x.data());
  const OutRow<T> out(r.y.data, r.y.type, row(r.y, t), width, buffers.y.data());
  T* y = out.data();
  const T direction = r.inverse ? T{-1} : T{1};
  for (std::size_t h = 0; h < width; h += dim) {
    const T* x0 = x + h;
    T* y0 = y + h;
    if (r.pairs == RopePairs::neighbours) {
      ForEachVector<T>(half, [&](auto d, std::size_t i) HWY_ATTR {
        hn::VFromD<decltype(d)> a, b;
        hn::LoadInterleaved2(d, x0 + 2 * i, a, b);
        RotatePair(d, direction, cos, sin, i, a, b);
        hn::StoreInterleaved2(a, b, d, y0 + 2 * i);
      });
    } else {
      ForEachVector<T>(half, [&](auto d, std::size_t i) HWY_ATTR {
        auto a = hn::LoadU(d, x0 + i), b = hn::LoadU(d, x0 + half + i);
        RotatePair(d, direction, cos, sin, i, a, b);
        hn::StoreU(a, d, y0 + i);
        hn::StoreU(b, d, y0 + half + i);
      });
    }
    if (x0 != y0) std::copy(x0 + rotated, x0 + dim, y0 + rotated);
  }
  out.Store();
}

template <class T>
void RotateTokens(const Extent& extent, const Rope& r, std::size_t begin, std::size_t end) {
  RopeBuffers<T> buffers(r);
  auto segment =
      std::upper_bound(extent.segments.begin(), extent.segments.end(), static_cast<std::int64_t>(begin),
                       [](std::int64_t t, const Segment& s) { return t < s.begin + s.length; });
  for (std::size_t t = begin; t < end; ++t) {
    const std::int64_t token = static_cast<std::int64_t>(t);
    while (token >= segment->begin + segment->length) ++segment;
    RotateToken(r, t, static_cast<std::size_t>(segment->position + token - segment->begin), buffers);
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

void rope(const Context& ctx, const Extent& extent, const Rope& call) {
  Rope r = call;
  if (r.rotated == 0) r.rotated = r.head_dim;
  const auto tokens = HWY_DISPATCH_TABLE(RopeTokens)[ctx.target()];
  for_row_ranges(ctx, extent.tokens, r.heads * r.head_dim,
                 [&](std::size_t begin, std::size_t end) { tokens(extent, r, begin, end); });
}

}  // namespace mantissa::kernels
#endif
