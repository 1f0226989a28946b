#include "mantissa/kernels/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <vector>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/update.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows-inl.h"
#include "mantissa/numeric/lanes-inl.h"
#include "mantissa/numeric/round_value-inl.h"
#include "mantissa/numeric/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::SumRow;

constexpr std::size_t kPiece = 1024;  // elements of the sweep's row buffers

/// The factors of AdamW, formed in double and rounded once.
template <class T>
struct Factors {
  explicit Factors(const AdamW& u)
      : gradient(static_cast<T>(u.gradient_factor)),
        beta1(static_cast<T>(u.beta1)),
        beta1_rest(static_cast<T>(1 - u.beta1)),
        beta2(static_cast<T>(u.beta2)),
        beta2_rest(static_cast<T>(1 - u.beta2)),
        keep(static_cast<T>(1 - u.lr * u.weight_decay)),
        decay(static_cast<T>(u.lr * u.weight_decay)),
        lr(static_cast<T>(u.lr)),
        correction1(static_cast<T>(1 - std::pow(u.beta1, static_cast<double>(u.t)))),
        correction2(static_cast<T>(1 - std::pow(u.beta2, static_cast<double>(u.t)))),
        eps(static_cast<T>(u.eps)) {}
  T gradient, beta1, beta1_rest, beta2, beta2_rest, keep, decay, lr, correction1, correction2, eps;
};

/// The streams of random bits of one parameter's update.
struct Streams {
  explicit Streams(const RoundingKey& k)
      : weight(k.seed, RandomUse::rounding, k.name_hash, k.step),
        first(k.seed, RandomUse::first_moment, k.name_hash, k.step),
        second(k.seed, RandomUse::second_moment, k.name_hash, k.step),
        compensation(k.seed, RandomUse::compensation, k.name_hash, k.step) {}
  RandomStream weight, first, second, compensation;
};

/// Rounds the result of every operation to the format of the arithmetic, where that is lowered.
template <bool kLowered, class T>
struct OperationRounding {
  Scalar format;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V result) const {
    if constexpr (!kLowered) return result;
    return mantissa::HWY_NAMESPACE::RoundVector(d, result, format);
  }
};

template <bool kCompensated, bool kLowered, class T>
void UpdateElements(const AdamW& u, const Factors<T>& f, std::size_t n, const T* gradient, T* w, T* m, T* v,
                    T* c) {
  const OperationRounding<kLowered, T> r{u.arithmetic};
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto times = [&](T factor, auto x) HWY_ATTR { return r(d, hn::Mul(x, hn::Set(d, factor))); };
    const auto g = times(f.gradient, hn::LoadU(d, gradient + i));
    const auto first = r(d, hn::Add(times(f.beta1, hn::LoadU(d, m + i)), times(f.beta1_rest, g)));
    const auto second =
        r(d, hn::Add(times(f.beta2, hn::LoadU(d, v + i)), times(f.beta2_rest, r(d, hn::Mul(g, g)))));
    const auto root = r(d, hn::Sqrt(r(d, hn::Div(second, hn::Set(d, f.correction2)))));
    const auto step = times(f.lr, r(d, hn::Div(first, hn::Set(d, f.correction1))));
    const auto update = r(d, hn::Div(step, r(d, hn::Add(root, hn::Set(d, f.eps)))));
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    const auto weight = hn::LoadU(d, w + i);
    if constexpr (kCompensated) {
      const auto change = r(d, hn::Add(times(f.decay, weight), update));
      hn::StoreU(r(d, hn::Sub(hn::LoadU(d, c + i), change)), d, c + i);
    } else {
      hn::StoreU(r(d, hn::Sub(times(f.keep, weight), update)), d, w + i);
    }
  });
}

/// What an element is updated to, in place. Where it is compensated, c takes what w is to change by and w is
/// left as it is.
template <class T>
void Update(const AdamW& u, const Factors<T>& f, std::size_t n, const T* gradient, T* w, T* m, T* v, T* c) {
  const bool lowered = !mantissa::HWY_NAMESPACE::IsRowScalar<T>(u.arithmetic);
  if (u.compensation != nullptr) {
    lowered ? UpdateElements<true, true>(u, f, n, gradient, w, m, v, c)
            : UpdateElements<true, false>(u, f, n, gradient, w, m, v, c);
  } else {
    lowered ? UpdateElements<false, true>(u, f, n, gradient, w, m, v, c)
            : UpdateElements<false, false>(u, f, n, gradient, w, m, v, c);
  }
}

/// Stores a row where it is rounded; nothing where it is updated in place.
template <class T>
void StoreUpdated(const T* row, std::size_t n, void* dst, Scalar type, std::size_t offset, Rounding rounding,
                  const RandomStream& stream) {
  if (IsStoredAs<T>(type)) return;
  if constexpr (std::is_same_v<T, float>) {
    mantissa::HWY_NAMESPACE::StoreRowRounded(row, n, dst, type, offset, rounding, stream, offset);
  } else {
    StoreRow(row, n, dst, type, offset);
  }
}

/// w + s into w, rounded and stored; c = s − (w' − w), where c holds s.
template <class T>
void StoreCompensated(const AdamW& u, const Streams& streams, std::size_t offset, std::size_t n, OutRow<T>& w,
                      OutRow<T>& c) {
  alignas(64) T before[kPiece];
  T *weight = w.data(), *sum = c.data();
  std::copy_n(weight, n, before);
  AddRow(sum, n, weight);
  StoreUpdated(weight, n, u.master, u.master_type, offset, u.rounding, streams.weight);
  w.Load();
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto moved = hn::Sub(hn::LoadU(d, weight + i), hn::LoadU(d, before + i));
    hn::StoreU(hn::Sub(hn::LoadU(d, sum + i), moved), d, sum + i);
  });
  StoreUpdated(sum, n, u.compensation, u.master_type, offset, u.rounding, streams.compensation);
}

template <class T>
void UpdatePiece(const AdamW& u, const Factors<T>& f, const Streams& streams, std::size_t offset,
                 std::size_t n) {
  alignas(64) T buffers[5][kPiece];
  const T* g = ViewRow<T>(u.gradient, u.gradient_type, offset, n, buffers[0]);
  OutRow<T> w(u.master, u.master_type, offset, n, buffers[1]);
  OutRow<T> m(u.first_moment, u.moment_type, offset, n, buffers[2]);
  OutRow<T> v(u.second_moment, u.moment_type, offset, n, buffers[3]);
  w.Load();
  m.Load();
  v.Load();
  if (u.compensation != nullptr) {
    OutRow<T> c(u.compensation, u.master_type, offset, n, buffers[4]);
    c.Load();
    Update(u, f, n, g, w.data(), m.data(), v.data(), c.data());
    StoreCompensated(u, streams, offset, n, w, c);
  } else {
    Update(u, f, n, g, w.data(), m.data(), v.data(), static_cast<T*>(nullptr));
    StoreUpdated(w.data(), n, u.master, u.master_type, offset, u.rounding, streams.weight);
    if (u.copy != nullptr) w.Load();  // so that the copy is the rounded master, not rounded beside it
  }
  StoreUpdated(m.data(), n, u.first_moment, u.moment_type, offset, u.rounding, streams.first);
  StoreUpdated(v.data(), n, u.second_moment, u.moment_type, offset, u.rounding, streams.second);
  if (u.copy != nullptr) StoreRow(w.data(), n, u.copy, u.copy_type, offset);
}

template <class T>
void UpdateRange(const AdamW& u, std::size_t begin, std::size_t end) {
  const Factors<T> f(u);
  const Streams streams(u.key);
  for (std::size_t i = begin; i < end; i += kPiece) UpdatePiece(u, f, streams, i, std::min(kPiece, end - i));
}

void AdamWRange(const AdamW& u, std::size_t begin, std::size_t end) {
  u.master_type == Scalar::f64 ? UpdateRange<double>(u, begin, end) : UpdateRange<float>(u, begin, end);
}

/// Whether all of |row| are at most `most`; what is nan is not.
template <class T>
bool AllWithin(const T* row, std::size_t n, T most) {
  bool within = true;
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    within = within && hn::AllTrue(d, hn::Le(hn::Abs(hn::LoadU(d, row + i)), hn::Set(d, most)));
  });
  return within;
}

/// The first of elements [offset, offset + n) that the update would store as inf or nan, counted from
/// `offset`, and its value before; n where there is none.
template <class T>
std::size_t OverflowInPiece(const AdamW& u, const Factors<T>& f, const Streams& streams, std::size_t offset,
                            std::size_t n, T& value) {
  alignas(64) T gradient[kPiece], w[kPiece], m[kPiece], v[kPiece], c[kPiece];
  const T* g = ViewRow<T>(u.gradient, u.gradient_type, offset, n, gradient);
  LoadRow(u.master, u.master_type, offset, n, w);
  LoadRow(u.first_moment, u.moment_type, offset, n, m);
  LoadRow(u.second_moment, u.moment_type, offset, n, v);
  if (u.compensation != nullptr) {
    LoadRow(u.compensation, u.master_type, offset, n, c);
    Update(u, f, n, g, w, m, v, c);
    AddRow(c, n, w);
  } else {
    Update(u, f, n, g, w, m, v, static_cast<T*>(nullptr));
  }
  // Rounding takes nothing that is at most the largest finite value beyond it.
  if (AllWithin(w, n, static_cast<T>(traits(u.master_type).max_finite))) return n;
  alignas(64) std::byte stored[kPiece * sizeof(T)];
  alignas(64) T after[kPiece];
  std::memcpy(after, w, n * sizeof(T));
  if constexpr (std::is_same_v<T, float>) {
    mantissa::HWY_NAMESPACE::StoreRowRounded(w, n, stored, u.master_type, 0, u.rounding, streams.weight,
                                             offset);
    LoadRow(stored, u.master_type, 0, n, after);
  }
  const auto at =
      static_cast<std::size_t>(std::find_if(after, after + n, [](T x) { return !std::isfinite(x); }) - after);
  if (at < n) value = w[at];
  return at;
}

template <class T>
std::optional<WeightOverflow> OverflowInRange(const AdamW& u, std::size_t begin, std::size_t end) {
  const Factors<T> f(u);
  const Streams streams(u.key);
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    T value{0};
    if (const std::size_t at = OverflowInPiece(u, f, streams, i, n, value); at < n)
      return WeightOverflow{static_cast<std::int64_t>(i + at), static_cast<double>(value)};
  }
  return std::nullopt;
}

std::optional<WeightOverflow> FindOverflow(const AdamW& u, std::size_t begin, std::size_t end) {
  return u.master_type == Scalar::f64 ? OverflowInRange<double>(u, begin, end)
                                      : OverflowInRange<float>(u, begin, end);
}

constexpr std::size_t kChunk = 4096;  // elements whose squares one chunk sums

/// The chunk's sum of squares. `n` is a multiple of 16.
double SumOfSquares(const float* p, std::size_t n) {
  return SumRow<double>(n, [p](auto d, std::size_t i, std::size_t) HWY_ATTR {
    const auto x = hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), p + i));
    return hn::Mul(x, x);
  });
}

GradientNorm ChunkNorm(const float* p, std::size_t n) {
  // Squares of these values cannot overflow in f64: the sum is finite where all of them are.
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

HWY_EXPORT(AdamWRange);
HWY_EXPORT(FindOverflow);
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

void adamw(const Context& ctx, const AdamW& u) {
  const auto range = HWY_DISPATCH_TABLE(AdamWRange)[ctx.target()];
  for_row_ranges(ctx, u.count, 1, [&](std::size_t begin, std::size_t end) { range(u, begin, end); });
}

std::optional<WeightOverflow> find_weight_overflow(const Context& ctx, const AdamW& u) {
  const auto find = HWY_DISPATCH_TABLE(FindOverflow)[ctx.target()];
  std::mutex found;
  std::optional<WeightOverflow> first;
  for_row_ranges(ctx, u.count, 1, [&](std::size_t begin, std::size_t end) {
    const std::optional<WeightOverflow> here = find(u, begin, end);
    if (!here) return;
    const std::lock_guard<std::mutex> lock(found);
    if (!first || here->element < first->element) first = here;
  });
  return first;
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
