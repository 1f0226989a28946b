#include "mantissa/kernels/rwkv_heads.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/recurrence/rwkv_heads.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LaneSum;

constexpr double kLeastNorm = 1e-12;

/// The channels of a head in the arithmetic.
template <class T>
struct Channels {
  alignas(64) T at[kMostHeadChannels];
};

/// Elements of one head of token `t`, read in place where the format allows it.
template <class T>
class Head {
 public:
  Head(ConstMatrix m, std::size_t t, std::size_t first, std::size_t count)
      : data_(ViewRow<T>(m.data, m.type, t * static_cast<std::size_t>(m.ld) + first, count, buffer_.at)) {}
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    return hn::LoadU(d, data_ + i);
  }
  const T* data() const { return data_; }

 private:
  Channels<T> buffer_;
  const T* data_;
};

/// Elements of one head of token `t` to write.
template <class T>
class OutHead {
 public:
  OutHead(const Matrix& m, std::size_t t, std::size_t first, std::size_t count)
      : row_(m.data, m.type, t * static_cast<std::size_t>(m.ld) + first, count, buffer_.at) {}
  OutHead(const OutHead&) = delete;
  OutHead& operator=(const OutHead&) = delete;
  template <class D>
  HWY_INLINE void Set(hn::Vec<D> v, D d, std::size_t i) const {
    hn::StoreU(v, d, row_.data() + i);
  }
  void Store() const { row_.Store(); }

 private:
  Channels<T> buffer_;
  OutRow<T> row_;
};

template <class T>
T& NumberOf(const Matrix& m, std::size_t i) {
  return static_cast<T*>(m.data)[i];
}
template <class T>
T NumberOf(const ConstMatrix& m, std::size_t i) {
  return static_cast<const T*>(m.data)[i];
}

template <class T>
void KeysOfHead(const RwkvKeys& s, std::size_t t, std::size_t head) {
  const auto n = static_cast<std::size_t>(s.channels), first = head * n;
  const Head<T> k(s.k, t, first, n), a(s.a, t, first, n), k_k(s.k_k, 0, first, n), k_a(s.k_a, 0, first, n);
  Channels<T> kappa;
  ForEachVector<T>(
      n, [&](auto d, std::size_t i) HWY_ATTR { hn::StoreU(hn::Mul(k(d, i), k_k(d, i)), d, kappa.at + i); });
  LaneSum<T> squares;
  squares.AddProduct(kappa.at, kappa.at, n);
  const T inverse = 1 / std::max(std::sqrt(squares.Total()), static_cast<T>(kLeastNorm));
  NumberOf<T>(s.n, t * static_cast<std::size_t>(s.heads) + head) = inverse;
  const OutHead<T> alpha(s.alpha, t, first, n), beta(s.beta, t, first, n), key(s.key, t, first, n);
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto unit = hn::Mul(hn::LoadU(d, kappa.at + i), hn::Set(d, inverse));
    const auto rate = a(d, i), one = hn::Set(d, T{1});
    alpha.Set(hn::Neg(unit), d, i);
    beta.Set(hn::Mul(unit, rate), d, i);
    key.Set(hn::Mul(k(d, i), hn::MulAdd(hn::Sub(rate, one), k_a(d, i), one)), d, i);
  });
  alpha.Store();
  beta.Store();
  key.Store();
}

template <class T>
void KeysBackwardOfHead(const RwkvKeysBackward& s, std::size_t t, std::size_t head) {
  const auto n = static_cast<std::size_t>(s.channels), first = head * n;
  const Head<T> k(s.k, t, first, n), a(s.a, t, first, n), k_k(s.k_k, 0, first, n), k_a(s.k_a, 0, first, n);
  const Head<T> dalpha(s.dalpha, t, first, n), dbeta(s.dbeta, t, first, n), dkey(s.dkey, t, first, n);
  const T inverse = NumberOf<T>(s.n, t * static_cast<std::size_t>(s.heads) + head);
  Channels<T> unit, cotangent;
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Mul(k(d, i), k_k(d, i)), hn::Set(d, inverse)), d, unit.at + i);
    hn::StoreU(hn::MulSub(a(d, i), dbeta(d, i), dalpha(d, i)), d, cotangent.at + i);
  });
  T pull = 0;
  if (inverse < 1 / static_cast<T>(kLeastNorm)) {
    LaneSum<T> products;
    products.AddProduct(cotangent.at, unit.at, n);
    pull = products.Total();
  }
  const OutHead<T> dk(s.dk, t, first, n), da(s.da, t, first, n), dk_k(s.dk_k, t, first, n),
      dk_a(s.dk_a, t, first, n);
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto u = hn::LoadU(d, unit.at + i), one = hn::Set(d, T{1}), value = k(d, i), g = dkey(d, i);
    const auto kappa =
        hn::Mul(hn::NegMulAdd(u, hn::Set(d, pull), hn::LoadU(d, cotangent.at + i)), hn::Set(d, inverse));
    const auto less = hn::Sub(a(d, i), one);
    const auto scaled = hn::Mul(g, value);
    dk.Set(hn::MulAdd(kappa, k_k(d, i), hn::Mul(g, hn::MulAdd(less, k_a(d, i), one))), d, i);
    da.Set(hn::MulAdd(u, dbeta(d, i), hn::Mul(scaled, k_a(d, i))), d, i);
    dk_k.Set(hn::Mul(kappa, value), d, i);
    dk_a.Set(hn::Mul(scaled, less), d, i);
  });
  dk.Store();
  da.Store();
  dk_k.Store();
  dk_a.Store();
}

template <class T>
void OutputOfHead(const RwkvOutput& c, std::size_t t, std::size_t head) {
  const auto n = static_cast<std::size_t>(c.channels), first = head * n,
             at = t * static_cast<std::size_t>(c.heads) + head;
  const Head<T> y(c.y, t, first, n), r(c.r, t, first, n), key(c.key, t, first, n), v(c.v, t, first, n),
      g(c.g, t, first, n), r_k(c.r_k, 0, first, n), gain(c.gain, 0, first, n), bias(c.bias, 0, first, n);
  LaneSum<T> sum, squares, weights;
  sum.Add(y.data(), n);
  const T mean = sum.Total() / static_cast<T>(n);
  Channels<T> centred, products;
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(y(d, i), hn::Set(d, mean)), d, centred.at + i);
    hn::StoreU(hn::Mul(r(d, i), key(d, i)), d, products.at + i);
  });
  squares.AddProduct(centred.at, centred.at, n);
  weights.AddProduct(products.at, r_k.data(), n);
  const hn::CappedTag<T, 1> one;
  const T variance = squares.Total() / static_cast<T>(n);
  const T rstd =
      hn::GetLane(mantissa::HWY_NAMESPACE::Rsqrt(one, hn::Set(one, variance + static_cast<T>(c.eps))));
  const T weight = weights.Total();
  NumberOf<T>(c.mean, at) = mean;
  NumberOf<T>(c.rstd, at) = rstd;
  NumberOf<T>(c.s, at) = weight;
  const OutHead<T> o(c.o, t, first, n);
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto normal = hn::Mul(hn::LoadU(d, centred.at + i), hn::Set(d, rstd));
    const auto mixed = hn::MulAdd(hn::Set(d, weight), v(d, i), hn::MulAdd(normal, gain(d, i), bias(d, i)));
    o.Set(hn::Mul(mixed, g(d, i)), d, i);
  });
  o.Store();
}

template <class T>
void OutputBackwardOfHead(const RwkvOutputBackward& c, std::size_t t, std::size_t head) {
  const auto n = static_cast<std::size_t>(c.channels), first = head * n,
             at = t * static_cast<std::size_t>(c.heads) + head;
  const Head<T> y(c.y, t, first, n), r(c.r, t, first, n), key(c.key, t, first, n), v(c.v, t, first, n),
      g(c.g, t, first, n), r_k(c.r_k, 0, first, n), gain(c.gain, 0, first, n), bias(c.bias, 0, first, n),
      dout(c.dout, t, first, n);
  const T mean = NumberOf<T>(c.mean, at), rstd = NumberOf<T>(c.rstd, at), weight = NumberOf<T>(c.s, at);
  Channels<T> normal, e, scaled;
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto x = hn::Mul(hn::Sub(y(d, i), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto seed = hn::Mul(dout(d, i), g(d, i));
    hn::StoreU(x, d, normal.at + i);
    hn::StoreU(seed, d, e.at + i);
    hn::StoreU(hn::Mul(seed, gain(d, i)), d, scaled.at + i);
  });
  LaneSum<T> gradients, products, weights;
  gradients.Add(scaled.at, n);
  products.AddProduct(scaled.at, normal.at, n);
  weights.AddProduct(e.at, v.data(), n);
  const T centre = gradients.Total() / static_cast<T>(n), pull = products.Total() / static_cast<T>(n);
  const T ds = weights.Total();
  const OutHead<T> dy(c.dy, t, first, n), dr(c.dr, t, first, n), dkey(c.dkey, t, first, n),
      dv(c.dv, t, first, n), dg(c.dg, t, first, n), dr_k(c.dr_k, t, first, n), dgain(c.dgain, t, first, n),
      dbias(c.dbias, t, first, n);
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, normal.at + i), seed = hn::LoadU(d, e.at + i);
    const auto s = hn::Set(d, weight), slope = hn::Set(d, ds);
    const auto rest =
        hn::NegMulAdd(x, hn::Set(d, pull), hn::Sub(hn::LoadU(d, scaled.at + i), hn::Set(d, centre)));
    const auto mixed = hn::MulAdd(s, v(d, i), hn::MulAdd(x, gain(d, i), bias(d, i)));
    const auto receptance = r(d, i), k = key(d, i), bonus = hn::Mul(slope, r_k(d, i));
    dy.Set(hn::Mul(hn::Set(d, rstd), rest), d, i);
    dr.Set(hn::Mul(bonus, k), d, i);
    dkey.Set(hn::Mul(bonus, receptance), d, i);
    dv.Set(hn::Mul(seed, s), d, i);
    dg.Set(hn::Mul(dout(d, i), mixed), d, i);
    dr_k.Set(hn::Mul(slope, hn::Mul(receptance, k)), d, i);
    dgain.Set(hn::Mul(seed, x), d, i);
    dbias.Set(seed, d, i);
  });
  for (const OutHead<T>* out : {&dy, &dr, &dkey, &dv, &dg, &dr_k, &dgain, &dbias}) out->Store();
}

/// Calls `f(t, head)` for all heads of tokens [begin, end).
template <class F>
HWY_INLINE void ForHeads(std::size_t begin, std::size_t end, std::int64_t heads, const F& f) {
  for (std::size_t t = begin; t < end; ++t) {
    for (std::size_t head = 0; head < static_cast<std::size_t>(heads); ++head) f(t, head);
  }
}

void KeysOfTokens(const RwkvKeys& s, std::size_t begin, std::size_t end) {
  ForHeads(begin, end, s.heads, [&](std::size_t t, std::size_t head) HWY_ATTR {
    s.k.type == Scalar::f64 ? KeysOfHead<double>(s, t, head) : KeysOfHead<float>(s, t, head);
  });
}

void KeysBackwardOfTokens(const RwkvKeysBackward& s, std::size_t begin, std::size_t end) {
  ForHeads(begin, end, s.heads, [&](std::size_t t, std::size_t head) HWY_ATTR {
    s.k.type == Scalar::f64 ? KeysBackwardOfHead<double>(s, t, head) : KeysBackwardOfHead<float>(s, t, head);
  });
}

void OutputOfTokens(const RwkvOutput& c, std::size_t begin, std::size_t end) {
  ForHeads(begin, end, c.heads, [&](std::size_t t, std::size_t head) HWY_ATTR {
    c.y.type == Scalar::f64 ? OutputOfHead<double>(c, t, head) : OutputOfHead<float>(c, t, head);
  });
}

void OutputBackwardOfTokens(const RwkvOutputBackward& c, std::size_t begin, std::size_t end) {
  ForHeads(begin, end, c.heads, [&](std::size_t t, std::size_t head) HWY_ATTR {
    c.y.type == Scalar::f64 ? OutputBackwardOfHead<double>(c, t, head)
                            : OutputBackwardOfHead<float>(c, t, head);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(KeysOfTokens);
HWY_EXPORT(KeysBackwardOfTokens);
HWY_EXPORT(OutputOfTokens);
HWY_EXPORT(OutputBackwardOfTokens);

namespace {

/// Runs `tokens_of(s, begin, end)` for ranges of tokens, each of which moves `rows` rows.
template <class S, class F>
void run_tokens(const Context& ctx, std::int64_t tokens, const S& s, std::int64_t rows, const F& tokens_of) {
  if (s.channels > kMostHeadChannels)
    throw InternalError("a head of {} channels is larger than {}", s.channels, kMostHeadChannels);
  for_row_ranges(ctx, tokens, rows * s.heads * s.channels,
                 [&](std::size_t begin, std::size_t end) { tokens_of(s, begin, end); });
}

}  // namespace

void rwkv_keys(const Context& ctx, std::int64_t tokens, const RwkvKeys& s) {
  run_tokens(ctx, tokens, s, 5, HWY_DISPATCH_TABLE(KeysOfTokens)[ctx.target()]);
}

void rwkv_keys_backward(const Context& ctx, std::int64_t tokens, const RwkvKeysBackward& s) {
  run_tokens(ctx, tokens, s, 9, HWY_DISPATCH_TABLE(KeysBackwardOfTokens)[ctx.target()]);
}

void rwkv_output(const Context& ctx, std::int64_t tokens, const RwkvOutput& c) {
  run_tokens(ctx, tokens, c, 6, HWY_DISPATCH_TABLE(OutputOfTokens)[ctx.target()]);
}

void rwkv_output_backward(const Context& ctx, std::int64_t tokens, const RwkvOutputBackward& c) {
  run_tokens(ctx, tokens, c, 14, HWY_DISPATCH_TABLE(OutputBackwardOfTokens)[ctx.target()]);
}

}  // namespace mantissa::kernels
#endif
