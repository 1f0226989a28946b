// One token of the recurrence: its rows, and the state's update.
#if defined(MANTISSA_KERNELS_CPU_RECURRENCE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_RECURRENCE_STEP_INL_H_
#undef MANTISSA_KERNELS_CPU_RECURRENCE_STEP_INL_H_
#else
#define MANTISSA_KERNELS_CPU_RECURRENCE_STEP_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/core/numeric/stochastic-inl.h"
#include "mantissa/kernels/cpu/recurrence/layout.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LaneTag;

/// The rows of one token and head. `v` has zeros after its last component.
template <class T>
struct TokenRows {
  T *r, *w, *k, *alpha, *beta;  // [key_dim]
  T *v, *s;                     // [padded values]
};

template <class T>
TokenRows<T> TakeRows(const TokenScratch& size, Scratch<T>& scratch) {
  T* const keys = scratch.take(TokenScratch::kKeyRows * size.keys);
  T* const values = scratch.take(2 * size.values);
  std::fill_n(values, 2 * size.values, T{0});
  return {keys,   keys + size.keys,    keys + 2 * size.keys, keys + 3 * size.keys, keys + 4 * size.keys,
          values, values + size.values};
}

template <class T>
HWY_INLINE void LoadHead(ConstMatrix m, std::size_t token, std::size_t head, std::size_t width, T* to) {
  LoadRow(m.data, m.type, token * static_cast<std::size_t>(m.ld) + head * width, width, to);
}

/// Loads the decays of a token and head as factors.
template <class T>
HWY_INLINE void LoadDecays(ConstMatrix m, bool of_head, std::size_t token, std::size_t head, std::size_t keys,
                           T* w) {
  if (of_head) {
    LoadHead(m, token, head, 1, w);
    std::fill_n(w, keys, w[0]);
  } else {
    LoadHead(m, token, head, keys, w);
  }
  ForEachVector<T>(keys, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(mantissa::HWY_NAMESPACE::Exp(d, hn::LoadU(d, w + i)), d, w + i);
  });
}

/// Vectors of a row that are in registers together: as many accumulators as these hold.
inline constexpr std::size_t kWideRow = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

/// Combine() for V vectors from column `c` on.
template <std::size_t V, class T>
HWY_INLINE void CombineColumns(const T* factors, const T* state, std::size_t keys, std::size_t values,
                               std::size_t c, T* to) {
  const LaneTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[V];
  for (std::size_t i = 0; i < V; ++i) sums[i] = hn::Zero(d);
  for (std::size_t j = 0; j < keys; ++j) {
    const auto factor = hn::Set(d, factors[j]);
    for (std::size_t i = 0; i < V; ++i)
      sums[i] = hn::MulAdd(factor, hn::Load(d, state + j * values + c + i * lanes), sums[i]);
  }
  for (std::size_t i = 0; i < V; ++i) hn::Store(sums[i], d, to + c + i * lanes);
}

/// to = Σ_j factors[j] · state[j], an FMA chain over j.
template <class T>
HWY_INLINE void Combine(const T* factors, const T* state, std::size_t keys, std::size_t values, T* to) {
  const std::size_t lanes = hn::Lanes(LaneTag<T>());
  std::size_t c = 0;
  for (; c + kWideRow * lanes <= values; c += kWideRow * lanes)
    CombineColumns<kWideRow>(factors, state, keys, values, c, to);
  for (; c < values; c += lanes) CombineColumns<1>(factors, state, keys, values, c, to);
}

/// Updates V vectors of every row of the state from column `c` on, writes the new rows to `after`, which may
/// be `before`, and computes y and the next token's s from them. With `kStateOnly` y is not computed.
template <std::size_t V, bool kStateOnly, class T>
HWY_INLINE void UpdateColumns(const TokenRows<T>& t, const T* next_alpha, const T* before, std::size_t keys,
                              std::size_t values, std::size_t c, T* after, T* y, T* next_s) {
  const LaneTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> s[V], v[V], out[V], next[V];
  for (std::size_t i = 0; i < V; ++i) {
    s[i] = hn::Load(d, t.s + c + i * lanes);
    v[i] = hn::Load(d, t.v + c + i * lanes);
    out[i] = next[i] = hn::Zero(d);
  }
  // In variables of their own, which no store can change.
  const T *HWY_RESTRICT all_r = t.r, *HWY_RESTRICT all_w = t.w, *HWY_RESTRICT all_k = t.k,
                        *HWY_RESTRICT all_beta = t.beta;
  for (std::size_t j = 0; j < keys; ++j) {
    const auto r = hn::Set(d, all_r[j]), w = hn::Set(d, all_w[j]), k = hn::Set(d, all_k[j]),
               beta = hn::Set(d, all_beta[j]), alpha = hn::Set(d, next_alpha[j]);
    for (std::size_t i = 0; i < V; ++i) {
      const std::size_t at = j * values + c + i * lanes;
      const auto added = hn::MulAdd(beta, s[i], hn::Mul(k, v[i]));
      const auto row = hn::MulAdd(w, hn::Load(d, before + at), added);
      hn::Store(row, d, after + at);
      if constexpr (!kStateOnly) out[i] = hn::MulAdd(r, row, out[i]);
      next[i] = hn::MulAdd(alpha, row, next[i]);
    }
  }
  for (std::size_t i = 0; i < V; ++i) {
    if constexpr (!kStateOnly) hn::Store(out[i], d, y + c + i * lanes);
    hn::Store(next[i], d, next_s + c + i * lanes);
  }
}

/// The rounding of the states of one head in one segment.
class KeptStates {
 public:
  KeptStates(const RecurrenceShape& shape, Scalar kept, const StateRounding& how, std::uint64_t seed,
             std::size_t head, const Segment& segment)
      : shape_(shape),
        kept_(kept),
        rounding_(how.rounding),
        stream_(seed, RandomUse::activation, how.name, segment.sequence),
        head_(static_cast<std::uint64_t>(head) * static_cast<std::uint64_t>(shape.key_dim * shape.value_dim)),
        segment_(segment) {}

  template <class T>
  bool rounds() const {
    return !holds(kept_, std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32);
  }
  /// Rounds the state after token `t`.
  template <class T>
  void Round(std::size_t t, T* state) const {
    const auto keys = static_cast<std::size_t>(shape_.key_dim),
               width = static_cast<std::size_t>(shape_.value_dim);
    const std::size_t values = padded_values(shape_.value_dim);
    for (std::size_t j = 0; j < keys; ++j) RoundOne(t, state + j * values, j * width, width);
  }

 private:
  void RoundOne(std::size_t, double* row, std::size_t, std::size_t width) const {
    RoundRow(row, width, kept_);
  }
  void RoundOne(std::size_t t, float* row, std::size_t first, std::size_t width) const {
    if (rounding_ == Rounding::nearest) return RoundRow(row, width, kept_);
    constexpr std::size_t kPiece = 256;
    alignas(64) std::byte stored[kPiece * sizeof(float)];
    const std::uint64_t position = static_cast<std::uint64_t>(segment_.position - segment_.begin) + t;
    const std::uint64_t index = position * static_cast<std::uint64_t>(shape_.state()) + head_ + first;
    for (std::size_t i = 0; i < width; i += kPiece) {
      const std::size_t n = std::min(kPiece, width - i);
      mantissa::HWY_NAMESPACE::StoreRowRounded(row + i, n, stored, kept_, 0, rounding_, stream_, index + i);
      LoadRow(static_cast<const void*>(stored), kept_, 0, n, row + i);
    }
  }

  const RecurrenceShape& shape_;
  Scalar kept_;
  Rounding rounding_;
  RandomStream stream_;
  std::uint64_t head_;
  const Segment& segment_;
};

/// One token: the state `after` it, its y, and the s of the next token, whose alpha is given. With `kept`
/// below the arithmetic the state rounds to it. `y` may be null with `kStateOnly`.
template <bool kStateOnly, class T>
HWY_INLINE void Step(const TokenRows<T>& t, const T* next_alpha, const T* before, std::size_t keys,
                     std::size_t values, const KeptStates& kept, std::size_t token, T* after, T* y,
                     T* next_s) {
  const std::size_t lanes = hn::Lanes(LaneTag<T>());
  std::size_t c = 0;
  for (; c + kWideRow * lanes <= values; c += kWideRow * lanes)
    UpdateColumns<kWideRow, kStateOnly>(t, next_alpha, before, keys, values, c, after, y, next_s);
  for (; c < values; c += lanes)
    UpdateColumns<1, kStateOnly>(t, next_alpha, before, keys, values, c, after, y, next_s);
  if (!kept.rounds<T>()) return;
  kept.Round(token, after);
  if constexpr (!kStateOnly) Combine(t.r, after, keys, values, y);
  Combine(next_alpha, after, keys, values, next_s);
}

/// Loads a state of `head` [key_dim, value_dim] into padded rows.
template <class T>
void LoadState(ConstMatrix m, std::size_t row, std::size_t head, const RecurrenceShape& shape, T* state) {
  const auto keys = static_cast<std::size_t>(shape.key_dim),
             width = static_cast<std::size_t>(shape.value_dim);
  const std::size_t values = padded_values(shape.value_dim);
  const std::size_t begin = row * static_cast<std::size_t>(m.ld) + head * keys * width;
  for (std::size_t j = 0; j < keys; ++j)
    LoadRow(m.data, m.type, begin + j * width, width, state + j * values);
}

/// Returns the state of `head` in row `row` if the recurrence can work on it where it is, else null.
template <class T>
T* StateInPlace(Matrix m, std::size_t row, std::size_t head, const RecurrenceShape& shape) {
  const auto keys = static_cast<std::size_t>(shape.key_dim),
             width = static_cast<std::size_t>(shape.value_dim);
  if (m.type != (std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32)) return nullptr;
  T* const state = static_cast<T*>(m.data) + row * static_cast<std::size_t>(m.ld) + head * keys * width;
  const bool aligned = reinterpret_cast<std::uintptr_t>(state) % HWY_MAX_BYTES == 0;
  return aligned && width == padded_values(shape.value_dim) ? state : nullptr;
}

template <class T>
void StoreState(const T* state, Matrix m, std::size_t row, std::size_t head, const RecurrenceShape& shape) {
  const auto keys = static_cast<std::size_t>(shape.key_dim),
             width = static_cast<std::size_t>(shape.value_dim);
  const std::size_t values = padded_values(shape.value_dim);
  const std::size_t begin = row * static_cast<std::size_t>(m.ld) + head * keys * width;
  for (std::size_t j = 0; j < keys; ++j)
    StoreRow(state + j * values, width, m.data, m.type, begin + j * width);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_RECURRENCE_STEP_INL_H_
