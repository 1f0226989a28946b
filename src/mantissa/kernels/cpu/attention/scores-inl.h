// Turns products q·k into scores, for the forward and the backward attention kernel: soft cap, rounding of a
// lowered softmax, and the runs of keys that need masks.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/core/numeric/round_value-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {
namespace hn = hwy::HWY_NAMESPACE;

using mantissa::HWY_NAMESPACE::Exp;

/// Rounds scores and values computed from them to the softmax' format if that is below the arithmetic.
template <bool kLowered, class T>
class SoftmaxRounding {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  explicit SoftmaxRounding(Scalar format) : format_(format) {}
  V operator()(V value) const {
    if constexpr (!kLowered) return value;
    return mantissa::HWY_NAMESPACE::RoundVector(D(), value, format_);
  }

 private:
  Scalar format_;
};

template <class T>
bool Lowers(Scalar softmax) {
  return !mantissa::HWY_NAMESPACE::IsRowScalar<T>(softmax);
}

/// The soft cap of scores: Score(Tanh(score)).
template <class T>
class SoftCap {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  explicit SoftCap(double cap) : cap_(hn::Set(D(), static_cast<T>(cap))) {}
  /// tanh(score / cap).
  HWY_INLINE V Tanh(V score) const { return mantissa::HWY_NAMESPACE::Tanh(D(), hn::Div(score, cap_)); }
  HWY_INLINE V Score(V tanh) const { return hn::Mul(cap_, tanh); }

 private:
  V cap_;
};

/// Replaces n products q·k by scaled and capped scores; n is a multiple of the vector's lanes.
template <class T>
void CapScores(const AttentionShape& shape, T* products, std::size_t n) {
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, static_cast<T>(shape.scale));
  const SoftCap<T> cap(shape.soft_cap);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto scaled = hn::Mul(hn::LoadU(d, products + i), scale);
    hn::StoreU(cap.Score(cap.Tanh(scaled)), d, products + i);
  }
}

/// The comparisons that decide whether a query of a vector attends to a key: none if all do, the end of the
/// visible keys, or both ends of the window.
enum class Mask { none, end, window };

/// Calls run.operator()<Mask>(begin, end) for rows [begin, end) of a key block, in ascending order.
template <class F>
HWY_INLINE void ForEachRun(const attention_layout::Visible& keys, const F& run) {
  const std::size_t middle = std::min(keys.all_begin, keys.end), after = std::max(middle, keys.all_end);
  const bool windowed = keys.all_begin > keys.begin;
  if (windowed) run.template operator()<Mask::window>(keys.begin, middle);
  run.template operator()<Mask::none>(middle, after);
  if (windowed) {
    run.template operator()<Mask::window>(after, keys.end);
  } else {
    run.template operator()<Mask::end>(after, keys.end);
  }
}

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif
