#include "mantissa/kernels/rwkv_heads.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/cpu/recurrence/prefetch_row.h"
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

/// Heads are taken in groups of up to this many channels, which are converted together: a conversion of one
/// head takes longer than its arithmetic.
constexpr std::size_t kGroup = kMostHeadChannels;

/// The channels of a group in the arithmetic.
template <class T>
struct Channels {
  alignas(64) T at[kGroup];
};

/// Elements of a group of token `t`, read in place where the format allows it.
template <class T>
class Values {
 public:
  Values(ConstMatrix m, std::size_t t, std::size_t first, std::size_t count)
      : data_(ViewRow<T>(m.data, m.type, t * static_cast<std::size_t>(m.ld) + first, count, buffer_.at)) {}
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    return hn::LoadU(d, data_ + i);
  }
  const T* data() const { return data_; }

 private:
  Channels<T> buffer_;
  const T* data_;
};

/// Elements of a group of token `t` to write.
template <class T>
class Results {
 public:
  Results(const Matrix& m, std::size_t t, std::size_t first, std::size_t count)
      : row_(m.data, m.type, t * static_cast<std::size_t>(m.ld) + first, count, buffer_.at) {}
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
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

/// Heads [first, first + heads) of one token, and the number of tokens of the thread's range from it on.
struct Group {
  std::size_t first = 0, heads = 0, tokens_left = 0;
};

/// Prefetches the rows that head `h` of the group reads and writes some tokens later. Those of all heads at
/// once would be hundreds of lines, which wait for each other.
template <class... M>
HWY_INLINE void PrefetchHead(const Group& group, std::size_t t, std::size_t h, std::size_t n,
                             const M&... rows) {
  if (group.tokens_left <= kTokensAhead) return;
  (prefetch_row(rows, t + kTokensAhead, (group.first + h) * n, n), ...);
}

/// Calls `f(d, i)` so that the vectors from i on cover the channels [begin, begin + n) of a head.
template <class T, class F>
HWY_INLINE void ForHead(std::size_t begin, std::size_t n, const F& f) {
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR { f(d, begin + i); });
}

template <class T>
void KeysOfGroup(const RwkvKeys& s, std::size_t t, Group group) {
  const auto n = static_cast<std::size_t>(s.channels), first = group.first * n, count = group.heads * n;
  const Values<T> k(s.k, t, first, count), a(s.a, t, first, count), k_k(s.k_k, 0, first, count),
      k_a(s.k_a, 0, first, count);
  const Results<T> alpha(s.alpha, t, first, count), beta(s.beta, t, first, count),
      key(s.key, t, first, count);
  for (std::size_t h = 0; h < group.heads; ++h) {
    PrefetchHead(group, t, h, n, s.k, s.a, s.alpha, s.beta, s.key);
    const std::size_t from = h * n, at = t * static_cast<std::size_t>(s.heads) + group.first + h;
    Channels<T> kappa;
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(k(d, i), k_k(d, i)), d, kappa.at + i);
    });
    LaneSum<T> squares;
    squares.AddProduct(kappa.at + from, kappa.at + from, n);
    const T inverse = 1 / std::max(std::sqrt(squares.Total()), static_cast<T>(kLeastNorm));
    NumberOf<T>(s.n, at) = inverse;
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
      const auto unit = hn::Mul(hn::LoadU(d, kappa.at + i), hn::Set(d, inverse));
      const auto rate = a(d, i), one = hn::Set(d, T{1});
      alpha.Set(hn::Neg(unit), d, i);
      beta.Set(hn::Mul(unit, rate), d, i);
      key.Set(hn::Mul(k(d, i), hn::MulAdd(hn::Sub(rate, one), k_a(d, i), one)), d, i);
    });
  }
  alpha.Store();
  beta.Store();
  key.Store();
}

template <class T>
void KeysBackwardOfGroup(const RwkvKeysBackward& s, std::size_t t, Group group) {
  const auto n = static_cast<std::size_t>(s.channels), first = group.first * n, count = group.heads * n;
  const Values<T> k(s.k, t, first, count), a(s.a, t, first, count), k_k(s.k_k, 0, first, count),
      k_a(s.k_a, 0, first, count);
  const Values<T> dalpha(s.dalpha, t, first, count), dbeta(s.dbeta, t, first, count),
      dkey(s.dkey, t, first, count);
  const Results<T> dk(s.dk, t, first, count), da(s.da, t, first, count), dk_k(s.dk_k, t, first, count),
      dk_a(s.dk_a, t, first, count);
  for (std::size_t h = 0; h < group.heads; ++h) {
    PrefetchHead(group, t, h, n, s.k, s.a, s.dalpha, s.dbeta, s.dkey, s.dk, s.da, s.dk_k, s.dk_a);
    const std::size_t from = h * n, at = t * static_cast<std::size_t>(s.heads) + group.first + h;
    const T inverse = NumberOf<T>(s.n, at);
    Channels<T> unit, cotangent;
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Mul(k(d, i), k_k(d, i)), hn::Set(d, inverse)), d, unit.at + i);
      hn::StoreU(hn::MulSub(a(d, i), dbeta(d, i), dalpha(d, i)), d, cotangent.at + i);
    });
    T pull = 0;
    if (inverse < 1 / static_cast<T>(kLeastNorm)) {
      LaneSum<T> products;
      products.AddProduct(cotangent.at + from, unit.at + from, n);
      pull = products.Total();
    }
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
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
  }
  dk.Store();
  da.Store();
  dk_k.Store();
  dk_a.Store();
}

template <class T>
void OutputOfGroup(const RwkvOutput& c, std::size_t t, Group group) {
  const auto n = static_cast<std::size_t>(c.channels), first = group.first * n, count = group.heads * n;
  const Values<T> y(c.y, t, first, count), r(c.r, t, first, count), key(c.key, t, first, count),
      v(c.v, t, first, count), g(c.g, t, first, count), r_k(c.r_k, 0, first, count),
      gain(c.gain, 0, first, count), bias(c.bias, 0, first, count);
  const Results<T> o(c.o, t, first, count);
  for (std::size_t h = 0; h < group.heads; ++h) {
    PrefetchHead(group, t, h, n, c.y, c.r, c.key, c.v, c.g, c.o);
    const std::size_t from = h * n, at = t * static_cast<std::size_t>(c.heads) + group.first + h;
    LaneSum<T> sum, squares, weights;
    sum.Add(y.data() + from, n);
    const T mean = sum.Total() / static_cast<T>(n);
    Channels<T> centred, products;
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Sub(y(d, i), hn::Set(d, mean)), d, centred.at + i);
      hn::StoreU(hn::Mul(r(d, i), key(d, i)), d, products.at + i);
    });
    squares.AddProduct(centred.at + from, centred.at + from, n);
    weights.AddProduct(products.at + from, r_k.data() + from, n);
    const hn::CappedTag<T, 1> one;
    const T variance = squares.Total() / static_cast<T>(n);
    const T rstd =
        hn::GetLane(mantissa::HWY_NAMESPACE::Rsqrt(one, hn::Set(one, variance + static_cast<T>(c.eps))));
    const T weight = weights.Total();
    NumberOf<T>(c.mean, at) = mean;
    NumberOf<T>(c.rstd, at) = rstd;
    NumberOf<T>(c.s, at) = weight;
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
      const auto normal = hn::Mul(hn::LoadU(d, centred.at + i), hn::Set(d, rstd));
      const auto mixed = hn::MulAdd(hn::Set(d, weight), v(d, i), hn::MulAdd(normal, gain(d, i), bias(d, i)));
      o.Set(hn::Mul(mixed, g(d, i)), d, i);
    });
  }
  o.Store();
}

template <class T>
void OutputBackwardOfGroup(const RwkvOutputBackward& c, std::size_t t, Group group) {
  const auto n = static_cast<std::size_t>(c.channels), first = group.first * n, count = group.heads * n;
  const Values<T> y(c.y, t, first, count), r(c.r, t, first, count), key(c.key, t, first, count),
      v(c.v, t, first, count), g(c.g, t, first, count), r_k(c.r_k, 0, first, count),
      gain(c.gain, 0, first, count), bias(c.bias, 0, first, count), dout(c.dout, t, first, count);
  const Results<T> dy(c.dy, t, first, count), dr(c.dr, t, first, count), dkey(c.dkey, t, first, count),
      dv(c.dv, t, first, count), dg(c.dg, t, first, count), dr_k(c.dr_k, t, first, count),
      dgain(c.dgain, t, first, count), dbias(c.dbias, t, first, count);
  for (std::size_t h = 0; h < group.heads; ++h) {
    PrefetchHead(group, t, h, n, c.y, c.r, c.key, c.v, c.g, c.dout, c.dy, c.dr, c.dkey, c.dv, c.dg, c.dr_k,
                 c.dgain, c.dbias);
    const std::size_t from = h * n, at = t * static_cast<std::size_t>(c.heads) + group.first + h;
    const T mean = NumberOf<T>(c.mean, at), rstd = NumberOf<T>(c.rstd, at), weight = NumberOf<T>(c.s, at);
    Channels<T> normal, e, scaled;
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
      const auto x = hn::Mul(hn::Sub(y(d, i), hn::Set(d, mean)), hn::Set(d, rstd));
      const auto seed = hn::Mul(dout(d, i), g(d, i));
      hn::StoreU(x, d, normal.at + i);
      hn::StoreU(seed, d, e.at + i);
      hn::StoreU(hn::Mul(seed, gain(d, i)), d, scaled.at + i);
    });
    LaneSum<T> gradients, products, weights;
    gradients.Add(scaled.at + from, n);
    products.AddProduct(scaled.at + from, normal.at + from, n);
    weights.AddProduct(e.at + from, v.data() + from, n);
    const T centre = gradients.Total() / static_cast<T>(n), pull = products.Total() / static_cast<T>(n);
    const T ds = weights.Total();
    ForHead<T>(from, n, [&](auto d, std::size_t i) HWY_ATTR {
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
  }
  for (const Results<T>* out : {&dy, &dr, &dkey, &dv, &dg, &dr_k, &dgain, &dbias}) out->Store();
}

/// Calls `f(t, group)` for all heads, of `channels` each, of tokens [begin, end).
template <class F>
HWY_INLINE void ForGroups(std::size_t begin, std::size_t end, std::int64_t heads, std::int64_t channels,
                          const F& f) {
  const auto all = static_cast<std::size_t>(heads);
  const std::size_t most = std::max<std::size_t>(1, kGroup / static_cast<std::size_t>(channels));
  for (std::size_t t = begin; t < end; ++t) {
    for (std::size_t first = 0; first < all; first += most)
      f(t, Group{first, std::min(most, all - first), end - t});
  }
}

void KeysOfTokens(const RwkvKeys& s, std::size_t begin, std::size_t end) {
  ForGroups(begin, end, s.heads, s.channels, [&](std::size_t t, Group group) HWY_ATTR {
    s.k.type == Scalar::f64 ? KeysOfGroup<double>(s, t, group) : KeysOfGroup<float>(s, t, group);
  });
}

void KeysBackwardOfTokens(const RwkvKeysBackward& s, std::size_t begin, std::size_t end) {
  ForGroups(begin, end, s.heads, s.channels, [&](std::size_t t, Group group) HWY_ATTR {
    s.k.type == Scalar::f64 ? KeysBackwardOfGroup<double>(s, t, group)
                            : KeysBackwardOfGroup<float>(s, t, group);
  });
}

void OutputOfTokens(const RwkvOutput& c, std::size_t begin, std::size_t end) {
  ForGroups(begin, end, c.heads, c.channels, [&](std::size_t t, Group group) HWY_ATTR {
    c.y.type == Scalar::f64 ? OutputOfGroup<double>(c, t, group) : OutputOfGroup<float>(c, t, group);
  });
}

void OutputBackwardOfTokens(const RwkvOutputBackward& c, std::size_t begin, std::size_t end) {
  ForGroups(begin, end, c.heads, c.channels, [&](std::size_t t, Group group) HWY_ATTR {
    c.y.type == Scalar::f64 ? OutputBackwardOfGroup<double>(c, t, group)
                            : OutputBackwardOfGroup<float>(c, t, group);
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
