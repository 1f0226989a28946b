#include "mantissa/kernels/round.h"

#include <algorithm>
#include <cassert>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/token_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/round.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/core/numeric/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::ClampRow;
using mantissa::HWY_NAMESPACE::FlushRow;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RewriteRow;
using mantissa::HWY_NAMESPACE::RoundRowAs;
using mantissa::HWY_NAMESPACE::StoreRow;
using mantissa::HWY_NAMESPACE::StoreRowRounded;

template <class T>
void RoundElements(const void* src, Scalar src_type, void* dst, Scalar dst_type, bool saturate, bool flush,
                   T scale, std::size_t begin, std::size_t end) {
  HWY_ALIGN T buffer[kPiece];
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    LoadRow<T>(src, src_type, i, n, buffer);
    if (scale != 1)
      RewriteRow(buffer, n, [scale](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, scale)); });
    RoundRowAs<T>(buffer, n, dst_type, saturate, flush);
    StoreRow<T>(buffer, n, dst, dst_type, i);
  }
}

void RoundRange(const void* src, Scalar src_type, void* dst, Scalar dst_type, bool saturate, bool flush,
                float scale, std::size_t begin, std::size_t end) {
  src_type == Scalar::f64 || dst_type == Scalar::f64
      ? RoundElements<double>(src, src_type, dst, dst_type, saturate, flush, scale, begin, end)
      : RoundElements<float>(src, src_type, dst, dst_type, saturate, flush, scale, begin, end);
}

/// Flushes at most kPiece elements from `offset` on.
HWY_NOINLINE void FlushStored(Matrix to, std::size_t offset, std::size_t n) {
  HWY_ALIGN float buffer[kPiece];
  LoadRow<float>(to.data, to.type, offset, n, buffer);
  FlushRow(buffer, n, to.type);
  StoreRow<float>(buffer, n, to.data, to.type, offset);
}

/// Rounds `n` elements of one token, the first of which has number `index` in its sequence.
void RoundToken(const float* from, std::size_t offset, std::size_t n, Matrix to,
                const ActivationRounding& how, const RandomStream& stream, std::uint64_t index) {
  HWY_ALIGN float buffer[kPiece];
  for (std::size_t i = 0; i < n; i += kPiece) {
    const std::size_t count = std::min(kPiece, n - i);
    const float* row = from + offset + i;
    if (how.saturate) {
      std::copy_n(row, count, buffer);
      ClampRow(buffer, count, to.type);
      row = buffer;
    }
    StoreRowRounded(row, count, to.data, to.type, offset + i, how.rounding, stream, index + i);
    if (how.flush_subnormals) FlushStored(to, offset + i, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(RoundRange);
HWY_EXPORT(RoundToken);

void round_tensor(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
                  Scalar dst_type, bool saturate, bool flush_subnormals, float scale) {
  const auto range = HWY_DISPATCH_TABLE(RoundRange)[ctx.target()];
  for_row_ranges(ctx, count, 1, [&](std::size_t begin, std::size_t end) {
    range(src, src_type, dst, dst_type, saturate, flush_subnormals, scale, begin, end);
  });
}

void round_activations(const Context& ctx, const Extent& extent, std::int64_t rows, std::int64_t width,
                       ConstMatrix from, Matrix to, const ActivationRounding& how) {
  assert(from.type == Scalar::f32);
  assert(rows == extent.tokens || rows == static_cast<std::int64_t>(extent.rows.size()));
  const auto round = HWY_DISPATCH_TABLE(RoundToken)[ctx.target()];
  const auto n = static_cast<std::size_t>(width);
  for_row_ranges(ctx, rows, width, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const std::int64_t token = rows == extent.tokens ? static_cast<std::int64_t>(r)
                                                       : extent.rows[r].begin + extent.rows[r].length - 1;
      const TokenBits bits = token_bits(extent, token, how.name);
      round(static_cast<const float*>(from.data), r * n, n, to, how, bits.stream, bits.position * n);
    }
  });
}

}  // namespace mantissa::kernels
#endif
