// Sums and maxima of rows over 16 virtual lanes. Element i belongs to lane i mod 16, and lanes are joined by
// the fixed tree 8, 4, 2, 1, so the bits do not depend on the vector width. Included once per instruction set
// (Highway's -inl.h idiom).
#if defined(MANTISSA_NUMERIC_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_LANES_INL_H_
#undef MANTISSA_NUMERIC_LANES_INL_H_
#else
#define MANTISSA_NUMERIC_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Tags of f32 and of f64 lanes.
template <class D>
concept F32Lanes = std::is_same_v < hn::TFromD<D>,
float > ;
template <class D>
concept F64Lanes = std::is_same_v < hn::TFromD<D>,
double > ;

inline constexpr std::size_t kVirtualLanes = 16;

/// A tag of at most 16 lanes, so that 16 virtual lanes fill a whole number of vectors.
template <class T>
using LaneTag = hn::CappedTag<T, kVirtualLanes>;

/// Loads the first `count` elements at `p` (count >= Lanes(d) loads a full vector) and zeroes the other
/// lanes. Never reads past the elements.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadCount(D d, const T* HWY_RESTRICT p, std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  if (HWY_LIKELY(count >= lanes)) return hn::LoadU(d, p);
  HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(part, p, count * sizeof(T));
  return hn::Load(d, part);
}

/// Writes the first `count` lanes of `v` to `p` (count >= Lanes(d) writes all of them), and nothing past
/// them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreCount(hn::Vec<D> v, D d, T* HWY_RESTRICT p, std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  if (HWY_LIKELY(count >= lanes)) {
    hn::StoreU(v, d, p);
    return;
  }
  HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, d, part);
  std::memcpy(p, part, count * sizeof(T));
}

/// Joins 16 virtual lanes: adds lane i + 8 to lane i, then i + 4, i + 2 and i + 1. Overwrites the operands.
template <class T>
HWY_INLINE T JoinLanes(T* HWY_RESTRICT lanes) {
  for (std::size_t width = kVirtualLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// A running sum over 16 virtual lanes, initially zero. Element i of each call goes to lane i mod 16.
template <class T>
class LaneSum {
 public:
  HWY_INLINE LaneSum() { Clear(); }

  HWY_INLINE void Clear() {
    for (std::size_t v = 0; v < kVectors; ++v) lanes_[v] = hn::Zero(D());
  }

  /// Adds the `n` elements at `p`.
  HWY_INLINE void Add(const T* HWY_RESTRICT p, std::size_t n) {
    const D d;
    std::size_t i = 0;
    for (; i + kVirtualLanes <= n; i += kVirtualLanes) {
      for (std::size_t v = 0; v < kVectors; ++v)
        lanes_[v] = hn::Add(lanes_[v], hn::LoadU(d, p + i + v * kLanes));
    }
    for (std::size_t v = 0; v < kVectors && i < n; ++v, i += kLanes) {
      lanes_[v] = hn::Add(lanes_[v], LoadCount(d, p + i, n - i));
    }
  }

  /// Adds the `n` products a[i] × b[i], each with one rounding (fused multiply-add).
  HWY_INLINE void AddProduct(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::size_t n) {
    const D d;
    std::size_t i = 0;
    for (; i + kVirtualLanes <= n; i += kVirtualLanes) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        const std::size_t at = i + v * kLanes;
        lanes_[v] = hn::MulAdd(hn::LoadU(d, a + at), hn::LoadU(d, b + at), lanes_[v]);
      }
    }
    for (std::size_t v = 0; v < kVectors && i < n; ++v, i += kLanes) {
      lanes_[v] = hn::MulAdd(LoadCount(d, a + i, n - i), LoadCount(d, b + i, n - i), lanes_[v]);
    }
  }

  /// Adds a vector to vector `v` of the lanes: the elements with index v × Lanes … modulo 16.
  HWY_INLINE void AddVector(std::size_t v, hn::Vec<LaneTag<T>> x) { lanes_[v] = hn::Add(lanes_[v], x); }

  /// Adds x² to vector `v` of the lanes, with one rounding.
  HWY_INLINE void AddSquare(std::size_t v, hn::Vec<LaneTag<T>> x) { lanes_[v] = hn::MulAdd(x, x, lanes_[v]); }

  /// Returns the sum of the lanes by the fixed tree.
  HWY_INLINE T Total() const {
    HWY_ALIGN T joined[kVirtualLanes];
    for (std::size_t v = 0; v < kVectors; ++v) hn::Store(lanes_[v], D(), joined + v * kLanes);
    return JoinLanes(joined);
  }

 private:
  using D = LaneTag<T>;
  static constexpr std::size_t kLanes = hn::MaxLanes(D());
  static constexpr std::size_t kVectors = kVirtualLanes / kLanes;
  hn::Vec<D> lanes_[kVectors];
};

/// Sums f(d, i, count) over i < n in steps of Lanes(d). `f` returns the vector of elements [i, i + Lanes(d))
/// with lanes >= count zero, where count = min(Lanes(d), n - i) and d is LaneTag<T>. `f` must be HWY_ATTR.
template <class T, class F>
HWY_INLINE T SumRow(std::size_t n, F f) {
  const LaneTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  LaneSum<T> sum;
  std::size_t i = 0;
  for (; i + kVirtualLanes <= n; i += kVirtualLanes) {
    for (std::size_t v = 0; v < kVirtualLanes / lanes; ++v) sum.AddVector(v, f(d, i + v * lanes, lanes));
  }
  for (std::size_t v = 0; i < n; ++v, i += lanes) sum.AddVector(v, f(d, i, n - i < lanes ? n - i : lanes));
  return sum.Total();
}

/// Returns the largest of `n` elements; -inf if n = 0; the positive quiet NaN if any element is NaN. Among
/// zeros of both signs, the first in lane order wins.
template <class T>
HWY_INLINE T MaxRow(const T* HWY_RESTRICT p, std::size_t n) {
  const LaneTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(LaneTag<T>());
  constexpr std::size_t kVectors = kVirtualLanes / kLanes;
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  hn::Vec<decltype(d)> best[kVectors];
  auto nan = hn::Zero(d);  // kept as bits: a sum of x - x would also turn inf into NaN
  for (std::size_t v = 0; v < kVectors; ++v) best[v] = hn::Set(d, kLowest);
  std::size_t i = 0;
  for (; i + kVirtualLanes <= n; i += kVirtualLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::LoadU(d, p + i + v * kLanes);
      nan = hn::Or(nan, hn::VecFromMask(d, hn::IsNaN(x)));
      best[v] = hn::IfThenElse(hn::Gt(x, best[v]), x, best[v]);
    }
  }
  HWY_ALIGN T lanes[kVirtualLanes];
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(best[v], d, lanes + v * kLanes);
  bool any_nan = !hn::AllFalse(d, hn::IsNaN(nan));
  for (std::size_t lane = 0; i < n; ++lane, ++i) {
    any_nan = any_nan || p[i] != p[i];
    if (p[i] > lanes[lane]) lanes[lane] = p[i];
  }
  if (any_nan) return std::numeric_limits<T>::quiet_NaN();
  for (std::size_t width = kVirtualLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      if (lanes[lane + width] > lanes[lane]) lanes[lane] = lanes[lane + width];
    }
  }
  return lanes[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_LANES_INL_H_
