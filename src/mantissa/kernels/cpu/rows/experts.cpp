#include "mantissa/kernels/experts.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/experts.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows/router-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Writes the ids of the largest logits, ascending. Valid ids also if some are NaN.
template <class T>
void Choose(const std::vector<T>& logits, std::size_t chosen, std::int32_t* choice) {
  for (std::size_t j = 0; j < chosen; ++j) {
    std::int32_t best = -1;
    for (std::size_t e = 0; e < logits.size(); ++e) {
      const auto id = static_cast<std::int32_t>(e);
      if (best >= 0 && !(logits[e] > logits[static_cast<std::size_t>(best)])) continue;
      if (std::find(choice, choice + j, id) == choice + j) best = id;
    }
    choice[j] = best;
  }
  std::sort(choice, choice + chosen);
}

template <class T>
void RouteIn(const Route& r, std::size_t begin, std::size_t end) {
  const auto experts = static_cast<std::size_t>(r.experts), chosen = static_cast<std::size_t>(r.chosen);
  std::vector<T> l(experts), e(experts), w(chosen);
  for (std::size_t t = begin; t < end; ++t) {
    T sum = Exponentials(r.logits, r.interior, t, l, e);
    std::int32_t* const choice = r.choice + t * chosen;
    Choose(l, chosen, choice);
    for (std::size_t j = 0; j < chosen; ++j) w[j] = e[static_cast<std::size_t>(choice[j])];
    if (r.normalized) {
      sum = 0;
      for (const T x : w) sum += x;
    }
    for (T& x : w) x /= sum;
    StoreRow(w.data(), chosen, r.weights.data, r.weights.type, At(r.weights, t));
  }
}

void RouteRange(const Route& r, std::size_t begin, std::size_t end) {
  r.weights.type == Scalar::f64 ? RouteIn<double>(r, begin, end) : RouteIn<float>(r, begin, end);
}

template <class T>
void RouteBackwardIn(const RouteBackward& r, std::size_t begin, std::size_t end) {
  const auto experts = static_cast<std::size_t>(r.experts), chosen = static_cast<std::size_t>(r.chosen);
  std::vector<T> l(experts), e(experts), w(chosen), dw(chosen), dl(experts);
  for (std::size_t t = begin; t < end; ++t) {
    const std::int32_t* const choice = r.choice + t * chosen;
    LoadRow(r.weights.data, r.weights.type, At(r.weights, t), chosen, w.data());
    LoadRow(r.dweights.data, r.dweights.type, At(r.dweights, t), chosen, dw.data());
    T s = 0;
    for (std::size_t j = 0; j < chosen; ++j) s = std::fma(w[j], dw[j], s);
    std::fill(dl.begin(), dl.end(), T{0});
    if (!r.normalized) {
      const T sum = Exponentials(r.logits, r.interior, t, l, e);
      for (std::size_t i = 0; i < experts; ++i) dl[i] = e[i] / sum * -s;
    }
    for (std::size_t j = 0; j < chosen; ++j) dl[static_cast<std::size_t>(choice[j])] = w[j] * (dw[j] - s);
    StoreRow(dl.data(), experts, r.dlogits.data, r.dlogits.type, At(r.dlogits, t));
  }
}

void RouteBackwardRange(const RouteBackward& r, std::size_t begin, std::size_t end) {
  r.dlogits.type == Scalar::f64 ? RouteBackwardIn<double>(r, begin, end)
                                : RouteBackwardIn<float>(r, begin, end);
}

template <class T>
void CombineIn(const Combine& c, std::size_t begin, std::size_t end) {
  const auto width = static_cast<std::size_t>(c.width), chosen = static_cast<std::size_t>(c.chosen);
  std::vector<T> sum(width), buffer(width), w(chosen);
  for (std::size_t t = begin; t < end; ++t) {
    LoadRow(c.weights.data, c.weights.type, At(c.weights, t), chosen, w.data());
    std::fill(sum.begin(), sum.end(), T{0});
    for (std::size_t j = 0; j < chosen; ++j) {
      const T* x = ViewRow<T>(c.x.data, c.x.type, At(c.x, t * chosen + j), width, buffer.data());
      ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
        hn::StoreU(hn::MulAdd(hn::Set(d, w[j]), hn::LoadU(d, x + i), hn::LoadU(d, sum.data() + i)), d,
                   sum.data() + i);
      });
    }
    StoreRow(sum.data(), width, c.y.data, c.y.type, At(c.y, t));
  }
}

void CombineRange(const Combine& c, std::size_t begin, std::size_t end) {
  c.weights.type == Scalar::f64 ? CombineIn<double>(c, begin, end) : CombineIn<float>(c, begin, end);
}

template <class T>
void CombineDxIn(const CombineDx& c, std::size_t begin, std::size_t end) {
  const auto width = static_cast<std::size_t>(c.width), chosen = static_cast<std::size_t>(c.chosen);
  std::vector<T> buffer(width), product(width), w(chosen);
  for (std::size_t t = begin; t < end; ++t) {
    LoadRow(c.weights.data, c.weights.type, At(c.weights, t), chosen, w.data());
    const T* dy = ViewRow<T>(c.dy.data, c.dy.type, At(c.dy, t), width, buffer.data());
    for (std::size_t j = 0; j < chosen; ++j) {
      ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
        hn::StoreU(hn::Mul(hn::Set(d, w[j]), hn::LoadU(d, dy + i)), d, product.data() + i);
      });
      StoreRow(product.data(), width, c.dx.data, c.dx.type, At(c.dx, t * chosen + j));
    }
  }
}

void CombineDxRange(const CombineDx& c, std::size_t begin, std::size_t end) {
  c.weights.type == Scalar::f64 ? CombineDxIn<double>(c, begin, end) : CombineDxIn<float>(c, begin, end);
}

template <class T>
void CombineDweightsIn(const CombineDweights& c, std::size_t begin, std::size_t end) {
  const auto width = static_cast<std::size_t>(c.width), chosen = static_cast<std::size_t>(c.chosen);
  std::vector<T> of_dy(width), of_x(width), dw(chosen);
  for (std::size_t t = begin; t < end; ++t) {
    const T* dy = ViewRow<T>(c.dy.data, c.dy.type, At(c.dy, t), width, of_dy.data());
    for (std::size_t j = 0; j < chosen; ++j) {
      const T* x = ViewRow<T>(c.x.data, c.x.type, At(c.x, t * chosen + j), width, of_x.data());
      LaneSum<T> sum;
      sum.AddProduct(dy, x, width);
      dw[j] = sum.Total();
    }
    StoreRow(dw.data(), chosen, c.dweights.data, c.dweights.type, At(c.dweights, t));
  }
}

void CombineDweightsRange(const CombineDweights& c, std::size_t begin, std::size_t end) {
  c.dweights.type == Scalar::f64 ? CombineDweightsIn<double>(c, begin, end)
                                 : CombineDweightsIn<float>(c, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(RouteRange);
HWY_EXPORT(RouteBackwardRange);
HWY_EXPORT(CombineRange);
HWY_EXPORT(CombineDxRange);
HWY_EXPORT(CombineDweightsRange);

void route(const Context& ctx, std::int64_t tokens, const Route& r) {
  const auto run = HWY_DISPATCH_TABLE(RouteRange)[ctx.target()];
  for_row_ranges(ctx, tokens, r.experts * (r.chosen + 8),
                 [&](std::size_t begin, std::size_t end) { run(r, begin, end); });
}

void route_backward(const Context& ctx, std::int64_t tokens, const RouteBackward& r) {
  const auto run = HWY_DISPATCH_TABLE(RouteBackwardRange)[ctx.target()];
  for_row_ranges(ctx, tokens, r.experts * 8, [&](std::size_t begin, std::size_t end) { run(r, begin, end); });
}

void combine(const Context& ctx, std::int64_t tokens, const Combine& c) {
  const auto run = HWY_DISPATCH_TABLE(CombineRange)[ctx.target()];
  for_row_ranges(ctx, tokens, c.chosen * c.width,
                 [&](std::size_t begin, std::size_t end) { run(c, begin, end); });
}

void combine_dx(const Context& ctx, std::int64_t tokens, const CombineDx& c) {
  const auto run = HWY_DISPATCH_TABLE(CombineDxRange)[ctx.target()];
  for_row_ranges(ctx, tokens, c.chosen * c.width,
                 [&](std::size_t begin, std::size_t end) { run(c, begin, end); });
}

void combine_dweights(const Context& ctx, std::int64_t tokens, const CombineDweights& c) {
  const auto run = HWY_DISPATCH_TABLE(CombineDweightsRange)[ctx.target()];
  for_row_ranges(ctx, tokens, c.chosen * c.width,
                 [&](std::size_t begin, std::size_t end) { run(c, begin, end); });
}

}  // namespace mantissa::kernels
#endif
