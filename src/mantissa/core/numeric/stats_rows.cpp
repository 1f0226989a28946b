// The statistics of error_stats.h and value_stats.h over rows, in f64 over 8 virtual lanes for every vector
// width. The last n mod 8 values are added one by one.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/stats_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/power_of_two.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/value_stats.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kStatLanes = 8;
using StatTag = hn::CappedTag<double, kStatLanes>;
using StatVec = hn::Vec<StatTag>;
using StatMask = hn::Mask<StatTag>;
constexpr std::size_t kStatVectors = kStatLanes / hn::MaxLanes(StatTag());
constexpr double kInfinity = std::numeric_limits<double>::infinity();

HWY_INLINE StatVec LoadStat(const double* p) {
  return hn::LoadU(StatTag(), p);
}
HWY_INLINE StatVec LoadStat(const float* p) {
  return hn::PromoteTo(StatTag(), hn::LoadU(hn::Rebind<float, StatTag>(), p));
}

/// One f64 for each virtual lane.
struct Lanes {
  StatVec v[kStatVectors];
  HWY_INLINE explicit Lanes(double x) {
    for (StatVec& lane : v) lane = hn::Set(StatTag(), x);
  }
  HWY_INLINE double Join(double (*f)(double, double)) const {
    HWY_ALIGN double lane[kStatLanes];
    for (std::size_t i = 0; i < kStatVectors; ++i)
      hn::Store(v[i], StatTag(), lane + i * hn::Lanes(StatTag()));
    double all = lane[0];
    for (std::size_t i = 1; i < kStatLanes; ++i) all = f(all, lane[i]);
    return all;
  }
  HWY_INLINE double Sum() const {
    return Join([](double a, double b) { return a + b; });
  }
  HWY_INLINE double Max() const {
    return Join([](double a, double b) { return std::max(a, b); });
  }
  HWY_INLINE double Min() const {
    return Join([](double a, double b) { return std::min(a, b); });
  }
  HWY_INLINE std::uint64_t Count() const { return static_cast<std::uint64_t>(Sum()); }
};

/// 1 where the mask is set. Counts below 2^53 are exact.
HWY_INLINE StatVec OneWhere(StatMask m) {
  return hn::IfThenElseZero(m, hn::Set(StatTag(), 1.0));
}

/// Returns the smallest magnitude that nearest rounding cannot represent as a finite value of `s`.
double OverflowsFrom(Scalar s) {
  const double tie = overflow_bound(s);  // inf for f64
  // A tie goes to the even code: past an all-ones mantissa that is infinity; e4m3's 448 is even itself.
  return traits(s).has_infinity ? tie : std::nextafter(tie, kInfinity);
}

class ErrorLanes {
 public:
  HWY_INLINE explicit ErrorLanes(Scalar s)
      : overflows_from_(OverflowsFrom(s)),
        min_normal_(std::ldexp(1.0, traits(s).min_normal_exp)),
        places_(std::ldexp(1.0, traits(s).mantissa_bits)) {}

  HWY_INLINE void Add(std::size_t i, StatVec before, StatVec after) {
    const StatTag d;
    const hn::RebindToUnsigned<StatTag> du;
    const StatVec inf = hn::Set(d, kInfinity);
    const StatVec magnitude = hn::Abs(before);
    const StatMask finite = hn::Lt(magnitude, inf);
    const StatMask measured = hn::And(finite, hn::Lt(hn::Abs(after), inf));
    const StatMask nonzero = hn::Gt(magnitude, hn::Zero(d));
    const StatMask beyond = hn::Ge(magnitude, hn::Set(d, overflows_from_));
    const StatVec known = hn::IfThenElseZero(finite, magnitude);
    const StatVec error = hn::IfThenElseZero(measured, hn::Sub(after, before));
    const StatVec distance = hn::Abs(error);
    // The reciprocal of the power of two at or below the value, by complementing the exponent field. Powers
    // from 2^1022 on count as 2^1022.
    const StatVec power =
        hn::BitCast(d, hn::And(hn::BitCast(du, known), hn::Set(du, std::uint64_t{0x7ff} << 52)));
    const StatVec bounded =
        hn::Min(hn::Max(power, hn::Set(d, min_normal_)), hn::Set(d, PowerOfTwo<double>(1022)));
    const StatVec inverse =
        hn::BitCast(d, hn::Sub(hn::Set(du, std::uint64_t{2046} << 52), hn::BitCast(du, bounded)));
    const StatVec ulps = hn::Mul(hn::Mul(distance, inverse), hn::Set(d, places_));
    const StatVec relative = hn::Div(distance, hn::IfThenElse(nonzero, known, hn::Set(d, 1.0)));
    const StatVec taken = hn::IfThenElseZero(measured, before);
    measured_.v[i] = hn::Add(measured_.v[i], OneWhere(measured));
    finite_.v[i] = hn::Add(finite_.v[i], OneWhere(finite));
    overflows_.v[i] = hn::Add(overflows_.v[i], OneWhere(hn::And(finite, hn::Or(beyond, hn::Not(measured)))));
    vanished_.v[i] =
        hn::Add(vanished_.v[i], OneWhere(hn::And(hn::And(finite, nonzero), hn::Eq(after, hn::Zero(d)))));
    max_abs_.v[i] = hn::Max(max_abs_.v[i], distance);
    max_ulp_.v[i] = hn::Max(max_ulp_.v[i], ulps);
    max_relative_.v[i] = hn::Max(max_relative_.v[i], hn::IfThenElseZero(finite, relative));
    largest_.v[i] = hn::Max(largest_.v[i], known);
    sum_.v[i] = hn::Add(sum_.v[i], error);
    sum_squares_.v[i] = hn::MulAdd(error, error, sum_squares_.v[i]);
    squares_before_.v[i] = hn::MulAdd(taken, taken, squares_before_.v[i]);
  }

  /// Returns the statistics of the `n` added values.
  HWY_INLINE ErrorStats Total(std::uint64_t n) const {
    ErrorStats e;
    e.count = n;
    e.measured = measured_.Count();
    e.nonfinite = n - finite_.Count();
    e.overflows = overflows_.Count();
    e.vanished = vanished_.Count();
    e.max_abs = max_abs_.Max();
    e.max_ulp = max_ulp_.Max();
    e.max_relative = max_relative_.Max();
    e.largest = largest_.Max();
    e.sum = sum_.Sum();
    e.sum_squares = sum_squares_.Sum();
    e.squares_before = squares_before_.Sum();
    return e;
  }

 private:
  double overflows_from_, min_normal_, places_;
  Lanes measured_{0}, finite_{0}, overflows_{0}, vanished_{0};
  Lanes max_abs_{0}, max_ulp_{0}, max_relative_{0}, largest_{0};
  Lanes sum_{0}, sum_squares_{0}, squares_before_{0};
};

template <class T>
HWY_INLINE ErrorStats ErrorsOf(const T* before, const T* after, std::size_t n, Scalar s) {
  constexpr std::size_t kWidth = hn::MaxLanes(StatTag());
  ErrorLanes lanes(s);
  std::size_t at = 0;
  for (; at + kStatLanes <= n; at += kStatLanes) {
    for (std::size_t i = 0; i < kStatVectors; ++i)
      lanes.Add(i, LoadStat(before + at + i * kWidth), LoadStat(after + at + i * kWidth));
  }
  ErrorStats all = lanes.Total(at);
  for (; at < n; ++at) all.add(before[at], after[at], s);
  return all;
}

class ValueLanes {
 public:
  HWY_INLINE ValueLanes() {
  }  // NOLINT(modernize-use-equals-default): must have this target's attributes, as its members do

  HWY_INLINE void Add(std::size_t i, StatVec value) {
    const StatTag d;
    const StatVec inf = hn::Set(d, kInfinity);
    const StatVec magnitude = hn::Abs(value);
    const StatMask finite = hn::Lt(magnitude, inf);
    const StatMask zero = hn::Eq(value, hn::Zero(d));
    const StatVec taken = hn::IfThenElseZero(finite, value);
    finite_.v[i] = hn::Add(finite_.v[i], OneWhere(finite));
    zeros_.v[i] = hn::Add(zeros_.v[i], OneWhere(zero));
    min_.v[i] = hn::Min(min_.v[i], hn::IfThenElse(finite, value, inf));
    max_.v[i] = hn::Max(max_.v[i], hn::IfThenElse(finite, value, hn::Neg(inf)));
    smallest_.v[i] = hn::Min(smallest_.v[i], hn::IfThenElse(hn::And(finite, hn::Not(zero)), magnitude, inf));
    squares_.v[i] = hn::MulAdd(taken, taken, squares_.v[i]);
  }

  HWY_INLINE ValueStats Total(std::uint64_t n) const {
    ValueStats s;
    s.count = n;
    s.nonfinite = n - finite_.Count();
    s.zeros = zeros_.Count();
    s.min = min_.Min();
    s.max = max_.Max();
    s.smallest = smallest_.Min();
    s.sum_squares = squares_.Sum();
    return s;
  }

 private:
  Lanes finite_{0}, zeros_{0}, min_{kInfinity}, max_{-kInfinity}, smallest_{kInfinity}, squares_{0};
};

template <class T>
HWY_INLINE ValueStats ValuesOf(const T* values, std::size_t n) {
  constexpr std::size_t kWidth = hn::MaxLanes(StatTag());
  ValueLanes lanes;
  std::size_t at = 0;
  for (; at + kStatLanes <= n; at += kStatLanes) {
    for (std::size_t i = 0; i < kStatVectors; ++i) lanes.Add(i, LoadStat(values + at + i * kWidth));
  }
  ValueStats all = lanes.Total(at);
  for (; at < n; ++at) all.add(values[at]);
  return all;
}

ErrorStats ErrorsF32(const float* before, const float* after, std::size_t n, Scalar s) {
  return ErrorsOf(before, after, n, s);
}
ErrorStats ErrorsF64(const double* before, const double* after, std::size_t n, Scalar s) {
  return ErrorsOf(before, after, n, s);
}
ValueStats ValuesF32(const float* values, std::size_t n) {
  return ValuesOf(values, n);
}
ValueStats ValuesF64(const double* values, std::size_t n) {
  return ValuesOf(values, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(ErrorsF32);
HWY_EXPORT(ErrorsF64);
HWY_EXPORT(ValuesF32);
HWY_EXPORT(ValuesF64);

void ErrorStats::add_row(const float* before, const float* after, std::size_t n, Scalar s,
                         SimdTarget target) {
  merge(HWY_DISPATCH_TABLE(ErrorsF32)[simd_index(target)](before, after, n, s));
}

void ErrorStats::add_row(const double* before, const double* after, std::size_t n, Scalar s,
                         SimdTarget target) {
  merge(HWY_DISPATCH_TABLE(ErrorsF64)[simd_index(target)](before, after, n, s));
}

void ValueStats::add_row(const float* values, std::size_t n, SimdTarget target) {
  merge(HWY_DISPATCH_TABLE(ValuesF32)[simd_index(target)](values, n));
}

void ValueStats::add_row(const double* values, std::size_t n, SimdTarget target) {
  merge(HWY_DISPATCH_TABLE(ValuesF64)[simd_index(target)](values, n));
}

}  // namespace mantissa
#endif
