// The instructions of expression programs, one row of values at a time, for programs over activations
// (pointwise.cpp) and over parameters (sweep.cpp).
#if defined(MANTISSA_KERNELS_CPU_INSTRUCTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_INSTRUCTION_INL_H_
#undef MANTISSA_KERNELS_CPU_INSTRUCTION_INL_H_
#else
#define MANTISSA_KERNELS_CPU_INSTRUCTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/pointwise.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Rows are padded to a multiple of this, so loops have no tail.
constexpr std::size_t kPadding = 16;

/// A row of values, or, with `step` 0, one number for the whole row; `data` then holds it kPadding times.
template <class T>
struct Spread {
  const T* data = nullptr;
  std::size_t step = 1;
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadAt(D d, const T* row, std::size_t i) {
  return hn::LoadU(d, row + i);
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadAt(D d, Spread<T> row, std::size_t i) {
  return hn::LoadU(d, row.data + i * row.step);
}

template <class T, class A, class F>
HWY_INLINE void Map(std::size_t n, A a, T* dst, const F& f) {
  const hn::ScalableTag<T> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(f(d, LoadAt(d, a, i)), d, dst + i);
}

template <class T, class A, class F>
HWY_INLINE void Map(std::size_t n, A a, A b, T* dst, const F& f) {
  const hn::ScalableTag<T> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(f(LoadAt(d, a, i), LoadAt(d, b, i)), d, dst + i);
  }
}

template <class T, class A, class F>
HWY_INLINE void Map(std::size_t n, A a, A b, A c, T* dst, const F& f) {
  const hn::ScalableTag<T> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(f(LoadAt(d, a, i), LoadAt(d, b, i), LoadAt(d, c, i)), d, dst + i);
  }
}

template <class T>
HWY_INLINE void CopyRow(std::size_t n, const T* from, T* to) {
  if (from != to) std::memcpy(to, from, n * sizeof(T));
}
template <class T>
HWY_INLINE void CopyRow(std::size_t n, Spread<T> from, T* to) {
  from.step == 0 ? static_cast<void>(std::fill_n(to, n, *from.data)) : CopyRow(n, from.data, to);
}

/// Executes the arithmetic instructions: dst[0, n) from registers a, b, c, each a row (const T*) or a Spread.
/// `n` is a multiple of kPadding.
template <class T, class A>
void Compute(const Instruction& in, std::size_t n, A a, A b, A c, T* dst) {
  namespace m = mantissa::HWY_NAMESPACE;
  switch (in.op) {
    case Opcode::add:
      return Map(n, a, b, dst, [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
    case Opcode::sub:
      return Map(n, a, b, dst, [](auto x, auto y) HWY_ATTR { return hn::Sub(x, y); });
    case Opcode::mul:
      return Map(n, a, b, dst, [](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); });
    case Opcode::div:
      return Map(n, a, b, dst, [](auto x, auto y) HWY_ATTR { return hn::Div(x, y); });
    case Opcode::fma:
      return Map(n, a, b, c, dst, [](auto x, auto y, auto z) HWY_ATTR { return hn::MulAdd(x, y, z); });
    case Opcode::neg:
      return Map(n, a, dst, [](auto, auto x) HWY_ATTR { return hn::Neg(x); });
    case Opcode::exp:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR { return m::Exp(d, x); });
    case Opcode::log:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR { return m::Log(d, x); });
    case Opcode::tanh:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR { return m::Tanh(d, x); });
    case Opcode::normal_cdf:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR { return m::NormalCdf(d, x); });
    case Opcode::sigmoid:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR { return m::Sigmoid(d, x); });
    case Opcode::rsqrt:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR { return hn::Div(hn::Set(d, T{1}), hn::Sqrt(x)); });
    case Opcode::relu:
      return Map(n, a, dst,
                 [](auto d, auto x) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x); });
    case Opcode::sqrt:
      return Map(n, a, dst, [](auto, auto x) HWY_ATTR { return hn::Sqrt(x); });
    case Opcode::abs:
      return Map(n, a, dst, [](auto, auto x) HWY_ATTR { return hn::Abs(x); });
    case Opcode::sign:
      return Map(n, a, dst, [](auto d, auto x) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, T{1}), x), x);
      });
    case Opcode::max:
      return Map(n, a, b, dst, [](auto x, auto y) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, y), y, x); });
    case Opcode::min:
      return Map(n, a, b, dst, [](auto x, auto y) HWY_ATTR { return hn::IfThenElse(hn::Lt(y, x), y, x); });
    case Opcode::lost:
      return Map(n, a, b, c, dst, [](auto x, auto y, auto z) HWY_ATTR { return hn::Sub(z, hn::Sub(x, y)); });
    case Opcode::round:
      CopyRow(n, a, dst);
      return RoundRow(dst, n, in.format);
    case Opcode::constant:
      std::fill_n(dst, n, static_cast<T>(in.value));
      return;
    case Opcode::load:
    case Opcode::store:
    case Opcode::move:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_INSTRUCTION_INL_H_
