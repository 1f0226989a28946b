// The softmax of forward attention, over one key block after the other: probabilities relative to the largest
// score so far, their sums, and the factor that rescales the results of earlier blocks.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/attention/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

using mantissa::HWY_NAMESPACE::Log;

/// The softmax of a task's tiles. A tile has the `width` queries from row `row` on.
template <class T>
class RunningSoftmax {
 public:
  RunningSoftmax(const Attention& a, const ForwardScratch<T>& scratch) : a_(a), s_(scratch) {}

  void Start(std::size_t row, std::size_t width) const {
    std::fill(s_.maximum + row, s_.maximum + row + width, -std::numeric_limits<T>::infinity());
    std::fill(s_.denominator + row * kLanes, s_.denominator + (row + width) * kLanes, T{0});
  }

  /// Turns the products q·k of the tile and `keys` of a key block, in `scores`, into probabilities, and sets
  /// `rescale`. see(i) returns the keys of the block that query i of the tile attends to.
  template <class See>
  void AddKeys(std::size_t row, std::size_t width, const Visible& keys, const See& see) const {
    if (a_.shape.soft_cap > 0)
      CapScores(a_.shape, s_.scores + keys.begin * width, (keys.end - keys.begin) * width);
    for (std::size_t i = 0; i < width; ++i) {
      const Visible own = see(i);
      s_.limit[i] = static_cast<T>(own.end);
      if (a_.shape.window > 0) s_.lowest[i] = static_cast<T>(own.begin);
    }
    for (std::size_t i = 0; i < width; i += hn::Lanes(D())) {
      Lowers<T>(a_.softmax) ? AddVector<true>(row, i, width, keys) : AddVector<false>(row, i, width, keys);
    }
  }

  /// Joins the lanes of the tile's denominators by the fixed tree and writes its log-sum-exps to `log_sum`.
  /// Returns the denominators.
  const T* Finish(std::size_t row, std::size_t width) const {
    const D d;
    T* lanes = s_.denominator + row * kLanes;
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half * width; i += hn::Lanes(d)) {
        hn::StoreU(hn::Add(hn::LoadU(d, lanes + i), hn::LoadU(d, lanes + half * width + i)), d, lanes + i);
      }
    }
    if (Lowers<T>(a_.softmax)) RoundRow<T>(lanes, width, a_.softmax);
    for (std::size_t i = 0; i < width; i += hn::Lanes(d)) {
      const V log_sum = hn::Add(hn::LoadU(d, s_.maximum + row + i), Log(d, hn::LoadU(d, lanes + i)));
      hn::StoreU(log_sum, d, s_.log_sum + i);
    }
    return lanes;
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  /// A mask of the vector's queries that attend to key j of the block.
  template <Mask kMask>
  static auto Sees(std::size_t j, V lowest, V limit) {
    const D d;
    const V key = hn::Set(d, static_cast<T>(j));
    const auto before_end = hn::Lt(key, limit);
    if constexpr (kMask == Mask::window) return hn::And(before_end, hn::Ge(key, lowest));
    return before_end;
  }

  /// Turns one vector of queries' scores of a key block into probabilities, and updates maximum and
  /// denominator.
  template <bool kLowered>
  void AddVector(std::size_t row, std::size_t at, std::size_t width, const Visible& keys) const {
    const D d;
    // Capped scores are already scaled.
    const V scale = hn::Set(d, a_.shape.soft_cap > 0 ? T{1} : static_cast<T>(a_.shape.scale));
    const V limit = hn::LoadU(d, s_.limit + at), nothing = hn::Set(d, -std::numeric_limits<T>::infinity());
    const V lowest = a_.shape.window > 0 ? hn::LoadU(d, s_.lowest + at) : hn::Zero(d);
    const SoftmaxRounding<kLowered, T> rounded(a_.softmax);
    T* scores = s_.scores + at;
    V most = nothing;
    ForEachRun(keys, [&]<Mask kMask>(std::size_t begin, std::size_t end) HWY_ATTR {
      V largest = most;
      for (std::size_t j = begin; j < end; ++j) {
        V s = rounded(hn::Mul(hn::LoadU(d, scores + j * width), scale));
        if constexpr (kMask != Mask::none) s = hn::IfThenElse(Sees<kMask>(j, lowest, limit), s, nothing);
        largest = hn::Max(largest, s);
      }
      most = largest;
    });
    const V before = hn::LoadU(d, s_.maximum + row + at), now = hn::Max(before, most);
    // If all scores are −inf, exp(s − now) must be 0 and not exp(−inf + inf).
    const V origin = hn::IfThenElse(hn::Eq(now, nothing), hn::Zero(d), now);
    const V rescale = hn::IfThenElse(hn::Eq(now, before), hn::Set(d, T{1}), Exp(d, hn::Sub(before, origin)));
    hn::StoreU(now, d, s_.maximum + row + at);
    hn::StoreU(rescale, d, s_.rescale + at);

    T* lanes = s_.denominator + row * kLanes + at;
    for (std::size_t i = 0; i < kLanes; ++i) {
      hn::StoreU(hn::Mul(hn::LoadU(d, lanes + i * width), rescale), d, lanes + i * width);
    }
    ForEachRun(keys, [&]<Mask kMask>(std::size_t begin, std::size_t end) HWY_ATTR {
      const V factor = scale, maximum = origin;
      for (std::size_t j = begin; j < end; ++j) {
        T* lane = lanes + j % kLanes * width;
        const V s = rounded(hn::Mul(hn::LoadU(d, scores + j * width), factor));
        V p = rounded(Exp(d, hn::Sub(s, maximum)));
        if constexpr (kMask != Mask::none) p = hn::IfThenElseZero(Sees<kMask>(j, lowest, limit), p);
        hn::StoreU(hn::Add(hn::LoadU(d, lane), p), d, lane);
        hn::StoreU(p, d, scores + j * width);
      }
    });
  }

  const Attention& a_;
  const ForwardScratch<T>& s_;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
