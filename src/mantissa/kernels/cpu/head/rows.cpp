#include "mantissa/kernels/cpu/head/rows.h"

#include <algorithm>

#include "mantissa/kernels/head.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/head/rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which sets the target for these headers.
#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/core/numeric/round_value-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels::head_rows {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace inl = mantissa::HWY_NAMESPACE;

template <class T>
T ExpOne(T x) {
  const hn::CappedTag<T, 1> d;
  return hn::GetLane(inl::Exp(d, hn::Set(d, x)));
}

template <class T>
T LogOne(T x) {
  const hn::CappedTag<T, 1> d;
  return hn::GetLane(inl::Log(d, hn::Set(d, x)));
}

/// Adds a chunk to the sums. `exp_of` returns its exponentials vector by vector.
template <class T, class ExpOf>
void AddChunk(const T* logits, std::size_t n, T max, const ExpOf& exp_of, bool entropy, Scalar softmax,
              Running& r) {
  const auto add = [&, rescale = inl::RoundNumber(ExpOne(static_cast<T>(r.max) - max), softmax)](double& sum,
                                                                                                 T chunk) {
    sum = inl::RoundNumber(static_cast<T>(sum) * rescale + chunk, softmax);
  };
  add(r.sum, inl::SumRow<T>(n, exp_of));
  if (entropy) {
    const auto weighted = [logits, &exp_of](auto d, std::size_t i, std::size_t count) HWY_ATTR {
      return hn::Mul(exp_of(d, i, count), hn::MaskedLoad(hn::FirstN(d, count), d, logits + i));
    };
    add(r.weighted, inl::SumRow<T>(n, weighted));
  }
  r.max = max;
}

template <class T>
void Merge(T* logits, std::size_t n, bool entropy, Scalar softmax, Running& r) {
  const bool lowered = !inl::IsRowScalar<T>(softmax);
  if (lowered) inl::RoundRow<T>(logits, n, softmax);
  const T max = std::max(static_cast<T>(r.max), inl::MaxRow(logits, n));
  const auto exp_of = [logits, max](auto d, std::size_t i, std::size_t count) HWY_ATTR {
    const auto mask = hn::FirstN(d, count);
    const auto e = inl::Exp(d, hn::Sub(hn::MaskedLoad(mask, d, logits + i), hn::Set(d, max)));
    return hn::IfThenElseZero(mask, e);
  };
  if (!lowered) return AddChunk(logits, n, max, exp_of, entropy, softmax, r);
  const auto rounded = [&exp_of, softmax](auto d, std::size_t i, std::size_t count)
                           HWY_ATTR { return inl::RoundVector(d, exp_of(d, i, count), softmax); };
  AddChunk(logits, n, max, rounded, entropy, softmax, r);
}

template <class T>
void SoftCap(T* logits, std::size_t n, T cap) {
  const hn::ScalableTag<T> d;
  const auto bound = hn::Set(d, cap);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto mask = hn::FirstN(d, n - i);
    const auto z = hn::MaskedLoad(mask, d, logits + i);
    hn::BlendedStore(hn::Mul(bound, inl::Tanh(d, hn::Div(z, bound))), mask, d, logits + i);
  }
}

/// The gradient of a logit from that of the log-probability, d · (onehot(id) − p).
template <class T>
struct OfLogProb {
  T d_log_prob;

  /// The gradient of an entry's logit, from its log-probability and its probability.
  template <class D, class V>
  HWY_INLINE V Entry(D d, V /*log_p*/, V p) const {
    return hn::Mul(hn::Set(d, -d_log_prob), p);
  }
  /// The gradient of the id's logit.
  template <class D, class V>
  HWY_INLINE V Id(D d, V /*log_p*/, V p) const {
    return hn::Mul(hn::Set(d, d_log_prob), hn::Sub(hn::Set(d, T{1}), p));
  }
};

/// The same with the gradient of −d · z · lse², which adds −d · 2 · z · lse · p.
template <class T>
struct OfLogProbAndZ {
  T d_log_prob, d_all;  // d, and d · (1 + 2 · z · lse)

  template <class D, class V>
  HWY_INLINE V Entry(D d, V /*log_p*/, V p) const {
    return hn::Mul(hn::Set(d, -d_all), p);
  }
  template <class D, class V>
  HWY_INLINE V Id(D d, V /*log_p*/, V p) const {
    return hn::NegMulAdd(hn::Set(d, d_all), p, hn::Set(d, d_log_prob));
  }
};

/// The same with the gradient of the entropy H, which adds −e · p · (log p + H).
template <class T>
struct OfLogProbAndEntropy {
  T d_log_prob, d_entropy, entropy;

  template <class D, class V>
  HWY_INLINE V Entry(D d, V log_p, V p) const {
    const auto e = hn::Set(d, d_entropy);
    return hn::Mul(hn::NegMulAdd(e, hn::Add(log_p, hn::Set(d, entropy)), hn::Set(d, -d_log_prob)), p);
  }
  template <class D, class V>
  HWY_INLINE V Id(D d, V log_p, V p) const {
    const auto weight = hn::Mul(hn::Set(d, d_entropy), hn::Add(log_p, hn::Set(d, entropy)));
    return hn::NegMulAdd(weight, p, hn::Mul(hn::Set(d, d_log_prob), hn::Sub(hn::Set(d, T{1}), p)));
  }
};

/// What the largest logit receives in addition: `factor` times itself.
template <class T>
struct Wrap {
  T factor;
  std::int64_t at;  // outside of the chunk: nothing
};

/// `upstream` gives the gradients of the logits (OfLogProb). `through_cap(d, l, g)` turns the gradient of l
/// into that of the value before the soft cap.
template <class T, class Upstream, class ThroughCap>
void GradientOf(T* logits, std::size_t n, T lse, const Upstream& upstream, const Wrap<T>& wrap,
                std::int64_t id, Scalar softmax, const ThroughCap& through_cap) {
  const bool lowered = !inl::IsRowScalar<T>(softmax);
  if (lowered) inl::RoundRow<T>(logits, n, softmax);
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, lse);
  const bool here = id >= 0 && id < static_cast<std::int64_t>(n);
  T* const at = logits + (here ? id : 0);
  T hit{0};
  if (here) {
    const T p = inl::RoundNumber(ExpOne(*at - lse), softmax);
    const auto g = upstream.Id(one, hn::Set(one, *at - lse), hn::Set(one, p));
    hit = hn::GetLane(through_cap(one, hn::Set(one, *at), g));
  }
  const bool wraps = wrap.at >= 0 && wrap.at < static_cast<std::int64_t>(n);
  T* const top = logits + (wraps ? wrap.at : 0);
  T added{0};
  if (wraps) {
    const auto l = hn::Set(one, *top);
    added = hn::GetLane(through_cap(one, l, hn::Mul(hn::Set(one, wrap.factor), l)));
  }
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto mask = hn::FirstN(d, n - i);
    const auto l = hn::MaskedLoad(mask, d, logits + i);
    const auto log_p = hn::Sub(l, shift);
    auto p = inl::Exp(d, log_p);
    if (lowered) p = inl::RoundVector(d, p, softmax);
    hn::BlendedStore(through_cap(d, l, upstream.Entry(d, log_p, p)), mask, d, logits + i);
  }
  if (here) *at = hit;
  if (wraps) *top += added;
}

template <class T, class Upstream>
void GradientThroughCap(T* logits, std::size_t n, T lse, const Upstream& upstream, const Wrap<T>& wrap,
                        std::int64_t id, Scalar softmax, T cap) {
  if (cap == 0) {
    return GradientOf(logits, n, lse, upstream, wrap, id, softmax,
                      [](auto, auto, auto g) HWY_ATTR { return g; });
  }
  GradientOf(logits, n, lse, upstream, wrap, id, softmax, [cap](auto d, auto l, auto g) HWY_ATTR {
    const auto r = hn::Div(l, hn::Set(d, cap));
    return hn::Mul(g, hn::NegMulAdd(r, r, hn::Set(d, T{1})));
  });
}

template <class T>
void Gradient(T* logits, std::size_t n, double lse, const Upstream& u, std::int64_t id, Scalar softmax,
              double cap) {
  const OfLogProb<T> of_log_prob{static_cast<T>(u.log_prob)};
  const Wrap<T> wrap{-static_cast<T>(u.log_prob) * static_cast<T>(u.l2wrap), u.l2wrap == 0 ? -1 : u.top};
  if (u.z_loss != 0) {
    const T d = static_cast<T>(u.log_prob), twice = 2 * static_cast<T>(u.z_loss) * static_cast<T>(lse);
    return GradientThroughCap(logits, n, static_cast<T>(lse), OfLogProbAndZ<T>{d, d * (1 + twice)}, wrap, id,
                              softmax, static_cast<T>(cap));
  }
  if (u.entropy == 0) {
    return GradientThroughCap(logits, n, static_cast<T>(lse), of_log_prob, wrap, id, softmax,
                              static_cast<T>(cap));
  }
  const OfLogProbAndEntropy<T> of_both{static_cast<T>(u.log_prob), static_cast<T>(u.entropy),
                                       static_cast<T>(u.entropy_value)};
  GradientThroughCap(logits, n, static_cast<T>(lse), of_both, wrap, id, softmax, static_cast<T>(cap));
}

void MergeImpl(Scalar type, void* logits, std::size_t n, bool entropy, Scalar softmax, Running& r) {
  type == Scalar::f64 ? Merge(static_cast<double*>(logits), n, entropy, softmax, r)
                      : Merge(static_cast<float*>(logits), n, entropy, softmax, r);
}

template <class T>
double LogSumExp(const Running& r, Scalar softmax) {
  return inl::RoundNumber(static_cast<T>(r.max) + LogOne(static_cast<T>(r.sum)), softmax);
}

double LogSumExpImpl(Scalar type, const Running& r, Scalar softmax) {
  return type == Scalar::f64 ? LogSumExp<double>(r, softmax) : LogSumExp<float>(r, softmax);
}

void SoftCapImpl(Scalar type, void* logits, std::size_t n, double cap) {
  type == Scalar::f64 ? SoftCap(static_cast<double*>(logits), n, cap)
                      : SoftCap(static_cast<float*>(logits), n, static_cast<float>(cap));
}

void GradientImpl(Scalar type, void* logits, std::size_t n, double lse, const Upstream& upstream,
                  std::int64_t id, Scalar softmax, double soft_cap) {
  type == Scalar::f64 ? Gradient(static_cast<double*>(logits), n, lse, upstream, id, softmax, soft_cap)
                      : Gradient(static_cast<float*>(logits), n, lse, upstream, id, softmax, soft_cap);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels::head_rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels::head_rows {

HWY_EXPORT(SoftCapImpl);
HWY_EXPORT(MergeImpl);
HWY_EXPORT(LogSumExpImpl);
HWY_EXPORT(GradientImpl);

void soft_cap(const Context& ctx, Scalar type, void* logits, std::size_t n, double cap) {
  HWY_DISPATCH_TABLE(SoftCapImpl)[ctx.target()](type, logits, n, cap);
}

void merge(const Context& ctx, Scalar type, void* logits, std::size_t n, bool entropy, Scalar softmax,
           Running& r) {
  HWY_DISPATCH_TABLE(MergeImpl)[ctx.target()](type, logits, n, entropy, softmax, r);
}

std::int64_t first_of(Scalar type, const void* logits, std::int64_t n, double value) {
  const auto place_in = [n, value](const auto* row) -> std::int64_t {
    const auto* const found = std::find(row, row + n, static_cast<std::decay_t<decltype(*row)>>(value));
    return found == row + n ? -1 : found - row;
  };
  return type == Scalar::f64 ? place_in(static_cast<const double*>(logits))
                             : place_in(static_cast<const float*>(logits));
}

double log_sum_exp(const Context& ctx, Scalar type, const Running& r, Scalar softmax) {
  return HWY_DISPATCH_TABLE(LogSumExpImpl)[ctx.target()](type, r, softmax);
}

void gradient(const Context& ctx, Scalar type, void* logits, std::size_t n, double lse,
              const Upstream& upstream, std::int64_t id, Scalar softmax, double soft_cap) {
  HWY_DISPATCH_TABLE(GradientImpl)[ctx.target()](type, logits, n, lse, upstream, id, softmax, soft_cap);
}

}  // namespace mantissa::kernels::head_rows
#endif  // HWY_ONCE
