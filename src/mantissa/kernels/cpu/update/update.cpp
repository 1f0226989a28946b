#include "mantissa/kernels/update.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/update/update.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::SumRow;

constexpr std::size_t kChunk = 4096;       // elements per chunk of the sum of squares
constexpr std::size_t kBytesAhead = 2048;  // which the sum prefetches

/// Returns the chunk's sum of squares. `n` is a multiple of 16.
double SumOfSquares(const float* p, std::size_t n) {
  return SumRow<double>(n, [p](auto d, std::size_t i, std::size_t) HWY_ATTR {
    hwy::Prefetch(reinterpret_cast<const std::uint8_t*>(p + i) + kBytesAhead);
    const auto x = hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), p + i));
    return hn::Mul(x, x);
  });
}

GradientNorm ChunkNorm(const float* p, std::size_t n) {
  // Squares of these values cannot overflow in f64, so the sum is finite exactly if all values are.
  const double sum = SumOfSquares(p, n);
  return {sum, std::isfinite(sum)};
}

GradientNorm ChunkNorm(const double* p, std::size_t n) {
  const double sum = SumRow<double>(n, [p](auto d, std::size_t i, std::size_t) HWY_ATTR {
    const auto x = hn::LoadU(d, p + i);
    return hn::Mul(x, x);
  });
  const double zeros = SumRow<double>(n, [p](auto d, std::size_t i, std::size_t)
                                             HWY_ATTR { return hn::Mul(hn::LoadU(d, p + i), hn::Zero(d)); });
  return {sum, zeros == 0};
}

template <class T>
GradientNorm NormOfChunk(const void* gradient, Scalar type, std::size_t offset, std::size_t n) {
  alignas(64) T buffer[kChunk];
  if (n % 16 == 0) return ChunkNorm(ViewRow<T>(gradient, type, offset, n, buffer), n);
  const std::size_t padded = (n + 15) / 16 * 16;
  LoadRow(gradient, type, offset, n, buffer);
  std::fill(buffer + n, buffer + padded, T{0});
  return ChunkNorm(buffer, padded);
}

GradientNorm GradientChunk(const void* gradient, Scalar type, std::size_t offset, std::size_t n) {
  return type == Scalar::f64 ? NormOfChunk<double>(gradient, type, offset, n)
                             : NormOfChunk<float>(gradient, type, offset, n);
}

template <class T>
void CastElements(const void* src, Scalar src_type, void* dst, Scalar dst_type, std::size_t begin,
                  std::size_t end) {
  alignas(64) T buffer[kPiece];
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    StoreRow(ViewRow<T>(src, src_type, i, n, buffer), n, dst, dst_type, i);
  }
}

void CastRange(const void* src, Scalar src_type, void* dst, Scalar dst_type, std::size_t begin,
               std::size_t end) {
  src_type == Scalar::f64 || dst_type == Scalar::f64
      ? CastElements<double>(src, src_type, dst, dst_type, begin, end)
      : CastElements<float>(src, src_type, dst, dst_type, begin, end);
}

template <class T>
void AddElements(const T* contribution, void* gradient, Scalar type, std::size_t begin, std::size_t end) {
  alignas(64) T buffer[kPiece];
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    OutRow<T> sum(gradient, type, i, n, buffer);
    sum.Load();
    AddRow(contribution + i, n, sum.data());
    sum.Store();
  }
}

void CollectRange(const void* contribution, Scalar contribution_type, void* gradient, Scalar type,
                  std::size_t begin, std::size_t end) {
  contribution_type == Scalar::f64
      ? AddElements(static_cast<const double*>(contribution), gradient, type, begin, end)
      : AddElements(static_cast<const float*>(contribution), gradient, type, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(GradientChunk);
HWY_EXPORT(CastRange);
HWY_EXPORT(CollectRange);

namespace {

constexpr std::int64_t kSumChunk = 4096;

template <class T>
double sum_of_chunks(const T* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kSumChunk) {
    double chunk = 0;
    for (std::int64_t i = begin; i < std::min(count, begin + kSumChunk); ++i)
      chunk += static_cast<double>(values[i]);
    sum += chunk;
  }
  return sum;
}

}  // namespace

GradientNorm gradient_norm(const Context& ctx, const void* gradient, Scalar type, std::int64_t count) {
  const auto chunk_norm = HWY_DISPATCH_TABLE(GradientChunk)[ctx.target()];
  std::vector<GradientNorm> chunks(static_cast<std::size_t>((count + kSumChunk - 1) / kSumChunk));
  for_row_ranges(ctx, static_cast<std::int64_t>(chunks.size()), kSumChunk,
                 [&](std::size_t begin, std::size_t end) {
                   for (std::size_t i = begin; i < end; ++i) {
                     const std::int64_t offset = static_cast<std::int64_t>(i) * kSumChunk;
                     chunks[i] = chunk_norm(gradient, type, static_cast<std::size_t>(offset),
                                            static_cast<std::size_t>(std::min(kSumChunk, count - offset)));
                   }
                 });
  GradientNorm norm;
  for (const GradientNorm& chunk : chunks) {
    norm.sum_of_squares += chunk.sum_of_squares;
    norm.finite = norm.finite && chunk.finite;
  }
  return norm;
}

double chunked_sum(const void* values, Scalar type, std::int64_t count) {
  return type == Scalar::f64 ? sum_of_chunks(static_cast<const double*>(values), count)
                             : sum_of_chunks(static_cast<const float*>(values), count);
}

void collect_gradient(const Context& ctx, std::int64_t count, const void* contribution,
                      Scalar contribution_type, void* gradient, Scalar gradient_type, bool accumulate) {
  if (!accumulate) return cast(ctx, count, contribution, contribution_type, gradient, gradient_type);
  const auto range = HWY_DISPATCH_TABLE(CollectRange)[ctx.target()];
  for_row_ranges(ctx, count, 1, [&](std::size_t begin, std::size_t end) {
    range(contribution, contribution_type, gradient, gradient_type, begin, end);
  });
}

void cast(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
          Scalar dst_type) {
  const auto range = HWY_DISPATCH_TABLE(CastRange)[ctx.target()];
  for_row_ranges(ctx, count, 1, [&](std::size_t begin, std::size_t end) {
    if (src_type != dst_type) return range(src, src_type, dst, dst_type, begin, end);
    const std::size_t bytes = bytes_of(src_type);
    std::memcpy(static_cast<std::byte*>(dst) + begin * bytes,
                static_cast<const std::byte*>(src) + begin * bytes, (end - begin) * bytes);
  });
}

}  // namespace mantissa::kernels
#endif
