// The counts of value_counts.h over rows of f32. Counts are integers, sums run in f64 over 16 virtual lanes
// for every vector width.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/count_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/value_counts.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Narrow = LaneTag<float>;  // 16 virtual lanes
using Codes = hn::RebindToSigned<Narrow>;
using Wide = LaneTag<double>;
using WideBits = hn::RebindToUnsigned<Wide>;
constexpr std::size_t kLanes = hn::MaxLanes(Narrow());
constexpr std::size_t kVectors = kVirtualLanes / kLanes;
constexpr std::int32_t kInfinityCode = 0x7f800000;

/// One vector of f32 in f64: vectors 2v and 2v + 1 of a LaneSum<double>.
struct Halves {
  hn::Vec<Wide> v[2];
  HWY_INLINE explicit Halves(hn::Vec<Narrow> x) {
    const hn::Half<Narrow> half;
    v[0] = hn::PromoteTo(Wide(), hn::LowerHalf(half, x));
    v[1] = hn::PromoteTo(Wide(), hn::UpperHalf(half, x));
  }
};

/// A count for each lane of a vector.
class LaneCount {
 public:
  HWY_INLINE LaneCount() : count_(hn::Zero(Codes())) {}
  HWY_INLINE void Add(hn::Mask<Codes> m) { count_ = hn::Sub(count_, hn::VecFromMask(Codes(), m)); }
  HWY_INLINE std::uint64_t Total() const {
    HWY_ALIGN std::int32_t lanes[kLanes];
    hn::Store(count_, Codes(), lanes);
    std::uint64_t total = 0;
    for (const std::int32_t lane : lanes) total += static_cast<std::uint32_t>(lane);
    return total;
  }

 private:
  hn::Vec<Codes> count_;
};

/// A histogram of the exponent fields of f32: 0 for zero and subnormals, 255 for inf and nan.
class Exponents {
 public:
  /// Counts n exponent fields, a multiple of 16.
  HWY_INLINE void Add(const std::int32_t* HWY_RESTRICT fields, std::size_t n) {
    for (std::size_t i = 0; i < n; i += kCopies) {
      for (std::size_t copy = 0; copy < kCopies; ++copy) ++count_[copy][fields[i + copy]];
    }
  }

  std::uint64_t At(std::size_t field) const {
    std::uint64_t sum = 0;
    for (const auto& copy : count_) sum += copy[field];
    return sum;
  }

  /// Adds the normal numbers.
  void AddTo(Binades& binades) const {
    for (std::size_t field = 1; field < kInfinityField; ++field)
      binades.at(static_cast<int>(field) - 127) += At(field);
  }

  static constexpr std::size_t kInfinityField = 255;

 private:
  // Neighbours often have the same exponent: counts in several copies do not wait for each other.
  static constexpr std::size_t kCopies = 4;
  std::uint32_t count_[kCopies][kInfinityField + 1] = {};
};

/// Values whose exponent fields are counted at once, after the vector code.
constexpr std::size_t kChunk = 32 * kVirtualLanes;

/// Counts the subnormals of f32 among the values.
void AddSubnormals(const float* values, std::size_t n, Binades& binades) {
  for (std::size_t i = 0; i < n; ++i) {
    if (values[i] != 0 && std::abs(values[i]) < 0x1p-126F) ++binades.at(Binades::exponent_of(values[i]));
  }
}

std::int32_t CodeOf(double magnitude) {
  return std::bit_cast<std::int32_t>(static_cast<float>(magnitude));
}

/// Counts n values, a multiple of 16.
void CountValues(const float* HWY_RESTRICT values, std::size_t n, Scalar format, ValueCounts& to) {
  const Narrow d;
  const Codes di;
  const hn::RebindToUnsigned<Narrow> du;
  const auto infinity = hn::Set(di, kInfinityCode), zero = hn::Zero(di);
  const auto normal = hn::Set(di, CodeOf(std::ldexp(1.0, traits(format).min_normal_exp)));
  const auto largest = hn::Set(di, CodeOf(traits(format).max_finite));
  Exponents exponents;
  LaneCount zeros, small, saturated, nan;
  auto most = zero;
  auto least = hn::Set(du, ~0U);  // of code − 1, so that zero comes last
  LaneSum<double> sum, squares;
  HWY_ALIGN std::int32_t fields[kChunk];
  for (std::size_t at = 0; at < n; at += kVirtualLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::LoadU(d, values + at + v * kLanes);
      const auto code = hn::BitCast(di, hn::Abs(x));
      const auto finite = hn::Lt(code, infinity);
      hn::Store(hn::ShiftRight<23>(code), di, fields + at % kChunk + v * kLanes);
      zeros.Add(hn::Eq(code, zero));
      small.Add(hn::Lt(code, normal));
      saturated.Add(hn::Eq(code, largest));
      nan.Add(hn::Gt(code, infinity));
      most = hn::Max(most, hn::IfThenElseZero(finite, code));
      least = hn::Min(least, hn::BitCast(du, hn::Sub(code, hn::Set(di, 1))));
      const Halves halves(hn::IfThenElseZero(hn::RebindMask(d, finite), x));
      for (std::size_t h = 0; h < 2; ++h) {
        sum.AddVector(2 * v + h, halves.v[h]);
        squares.AddSquare(2 * v + h, halves.v[h]);
      }
    }
    if (const std::size_t end = at + kVirtualLanes; end % kChunk == 0 || end == n)
      exponents.Add(fields, at % kChunk + kVirtualLanes);
  }
  const std::uint64_t zero_count = zeros.Total(), nan_count = nan.Total();
  const std::uint32_t least_code = hn::GetLane(hn::MinOfLanes(du, least)) + 1;
  to.count += n;
  to.zeros += zero_count;
  to.subnormal += small.Total() - zero_count;
  to.saturated += saturated.Total();
  to.nan += nan_count;
  to.inf += exponents.At(Exponents::kInfinityField) - nan_count;
  to.absmax = std::max<double>(to.absmax, std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, most))));
  // A code of 0 comes from zeros alone.
  if (least_code - 1 < static_cast<std::uint32_t>(kInfinityCode) - 1)
    to.absmin = std::min<double>(to.absmin, std::bit_cast<float>(least_code));
  to.sum += sum.Total();
  to.squares += squares.Total();
  exponents.AddTo(to.binades);
  if (exponents.At(0) != zero_count) AddSubnormals(values, n, to.binades);
}

/// Counts the errors of n values, a multiple of 16.
void CountErrors(const float* HWY_RESTRICT before, const float* HWY_RESTRICT values, std::size_t n,
                 Scalar format, ValueCounts& to) {
  const Narrow d;
  const Codes di;
  const Wide dw;
  const WideBits db;
  const auto infinity = hn::Set(di, kInfinityCode), zero = hn::Zero(di);
  const auto largest = hn::Set(di, CodeOf(traits(format).max_finite));
  // f32 cannot hold its own bound, and a finite x does not exceed the largest value.
  const auto bound =
      hn::Set(di, CodeOf(format == Scalar::f32 ? traits(format).max_finite : overflow_bound(format)));
  const auto normal = hn::Set(dw, std::ldexp(1.0, traits(format).min_normal_exp));
  const auto exponent_mask = hn::Set(db, std::uint64_t{0x7ff} << 52);
  Exponents exponents;
  LaneCount zeros, compared, flushed, beyond;
  LaneSum<double> sum, inward, squares;
  hn::Vec<Wide> most[2] = {hn::Zero(dw), hn::Zero(dw)};
  HWY_ALIGN std::int32_t fields[kChunk];
  for (std::size_t at = 0; at < n; at += kVirtualLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::LoadU(d, before + at + v * kLanes), y = hn::LoadU(d, values + at + v * kLanes);
      const auto x_code = hn::BitCast(di, hn::Abs(x)), y_code = hn::BitCast(di, hn::Abs(y));
      hn::Store(hn::ShiftRight<23>(x_code), di, fields + at % kChunk + v * kLanes);
      const auto both = hn::Lt(hn::Max(x_code, y_code), infinity);
      zeros.Add(hn::Eq(x_code, zero));
      compared.Add(both);
      beyond.Add(hn::And(both, hn::And(hn::Eq(y_code, largest), hn::Gt(x_code, bound))));
      flushed.Add(hn::And(both, hn::And(hn::Eq(y_code, zero), hn::Gt(x_code, zero))));
      const auto kept = hn::RebindMask(d, both);
      const Halves was(hn::IfThenElseZero(kept, x)), is(hn::IfThenElseZero(kept, y));
      for (std::size_t h = 0; h < 2; ++h) {
        const auto error = hn::Sub(is.v[h], was.v[h]);
        const auto size = hn::Abs(was.v[h]);
        sum.AddVector(2 * v + h, error);
        inward.AddVector(2 * v + h, hn::Sub(size, hn::Abs(is.v[h])));
        squares.AddSquare(2 * v + h, error);
        // The reciprocal of the power of two at or below the value, by complementing the exponent field.
        const auto power = hn::Max(hn::BitCast(dw, hn::And(hn::BitCast(db, size), exponent_mask)), normal);
        const auto inverse =
            hn::BitCast(dw, hn::Sub(hn::Set(db, std::uint64_t{2046} << 52), hn::BitCast(db, power)));
        most[h] = hn::Max(most[h], hn::Mul(hn::Abs(error), inverse));
      }
    }
    if (const std::size_t end = at + kVirtualLanes; end % kChunk == 0 || end == n)
      exponents.Add(fields, at % kChunk + kVirtualLanes);
  }
  const std::uint64_t compared_count = compared.Total();
  const std::uint64_t finite = n - exponents.At(Exponents::kInfinityField);
  to.compared += compared_count;
  to.flushed += flushed.Total();
  to.overflowed += finite - compared_count + beyond.Total();
  to.error_sum += sum.Total();
  to.error_inward += inward.Total();
  to.error_squares += squares.Total();
  const double places = std::ldexp(1.0, traits(format).mantissa_bits);
  to.max_ulp = std::max(to.max_ulp, places * hn::GetLane(hn::MaxOfLanes(dw, hn::Max(most[0], most[1]))));
  exponents.AddTo(to.before);
  if (exponents.At(0) != zeros.Total()) AddSubnormals(before, n, to.before);
}

/// Counts the cancellation of n sums, a multiple of 16.
void CountSums(const float* HWY_RESTRICT values, const float* HWY_RESTRICT term, std::size_t n,
               ValueCounts& to) {
  const Narrow d;
  const Codes di;
  const Wide dw;
  const WideBits db;
  const auto infinity = hn::Set(di, kInfinityCode);
  LaneCount sums;
  auto cancelled = hn::Zero(db);
  for (std::size_t at = 0; at < n; at += kLanes) {
    const auto x = hn::LoadU(d, values + at), t = hn::LoadU(d, term + at);
    const auto both = hn::Lt(hn::Max(hn::BitCast(di, hn::Abs(x)), hn::BitCast(di, hn::Abs(t))), infinity);
    sums.Add(both);
    const auto kept = hn::RebindMask(d, both);
    const Halves sum(hn::IfThenElseZero(kept, x)), one(hn::IfThenElseZero(kept, t));
    for (std::size_t h = 0; h < 2; ++h) {
      const auto larger = hn::Max(hn::Abs(one.v[h]), hn::Abs(hn::Sub(sum.v[h], one.v[h])));
      const auto small = hn::Lt(hn::Abs(sum.v[h]), hn::Mul(larger, hn::Set(dw, ValueCounts::kCancelled)));
      cancelled = hn::Sub(cancelled, hn::VecFromMask(db, hn::RebindMask(db, small)));
    }
  }
  to.sums += sums.Total();
  to.cancelled += hn::GetLane(hn::SumOfLanes(db, cancelled));
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {
namespace {

constexpr std::size_t kRow = 16;  // values per round of the vector code

/// The last values of a row, in f64.
struct Tail {
  double values[kRow] = {};
  Tail(const float* from, std::size_t n) { std::copy_n(from, n, values); }
};

}  // namespace

HWY_EXPORT(CountValues);
HWY_EXPORT(CountErrors);
HWY_EXPORT(CountSums);

void ValueCounts::add(const float* values, std::size_t n, Scalar format, SimdTarget target) {
  const std::size_t rest = n % kRow, whole = n - rest;
  if (whole > 0) HWY_DISPATCH_TABLE(CountValues)[simd_index(target)](values, whole, format, *this);
  add(Tail(values + whole, rest).values, rest, format);
}

void ValueCounts::add_errors(const float* before_, const float* values, std::size_t n, Scalar format,
                             SimdTarget target) {
  const std::size_t rest = n % kRow, whole = n - rest;
  if (whole > 0) HWY_DISPATCH_TABLE(CountErrors)[simd_index(target)](before_, values, whole, format, *this);
  add_errors(Tail(before_ + whole, rest).values, Tail(values + whole, rest).values, rest, format);
}

void ValueCounts::add_sums(const float* values, const float* term, std::size_t n, SimdTarget target) {
  const std::size_t rest = n % kRow, whole = n - rest;
  if (whole > 0) HWY_DISPATCH_TABLE(CountSums)[simd_index(target)](values, term, whole, *this);
  add_sums(Tail(values + whole, rest).values, Tail(term + whole, rest).values, rest);
}

}  // namespace mantissa
#endif
