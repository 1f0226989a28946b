// Converts rows of any scalar format to rows of f32 or f64 and back, and rounds rows in place. It uses only
// integer and power-of-two arithmetic, so every instruction set gives the bits of core/numeric/round.h.
// Included once per instruction set (Highway's -inl.h idiom).
//
// NaN: a narrowing conversion keeps the sign and the leading payload bits and sets the quiet bit. e4m3 has
// one NaN per sign; it decodes to the quiet NaN without payload. Every conversion quiets a NaN, except the
// ones that only move bits: bf16 and tf32 to f32, and a format to itself.
#if defined(MANTISSA_NUMERIC_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_CONVERT_INL_H_
#undef MANTISSA_NUMERIC_CONVERT_INL_H_
#else
#define MANTISSA_NUMERIC_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/power_of_two.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The scalar format of a row of T.
template <class T>
inline constexpr Scalar kRowScalar = std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32;

/// True if every value of a row of T is a value of `s`.
template <class T>
inline constexpr bool IsRowScalar(Scalar s) {
  return s == Scalar::f64 || s == kRowScalar<T>;
}

/// Rounds `v` to nearest even on the grid of S, which is narrower than T. Overflow gives inf (e4m3: NaN).
template <Scalar S, class D>
HWY_INLINE hn::Vec<D> RoundToGrid(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  using TU = hn::TFromD<hn::RebindToUnsigned<D>>;
  const hn::RebindToUnsigned<D> du;
  constexpr ScalarTraits kWide = traits(kRowScalar<T>);
  constexpr ScalarTraits kNarrow = traits(S);
  constexpr int kDrop = kWide.mantissa_bits - kNarrow.mantissa_bits;
  static_assert(kDrop > 0);
  constexpr TU kOne = 1;
  constexpr TU kKeep = static_cast<TU>(~((kOne << kDrop) - 1));
  constexpr TU kInf = static_cast<TU>((kOne << kWide.exponent_bits) - 1) << kWide.mantissa_bits;
  constexpr TU kQuiet = kOne << (kWide.mantissa_bits - 1);

  const auto bits = hn::BitCast(du, v);
  if constexpr (kNarrow.min_normal_exp == kWide.min_normal_exp) {
    // The same exponents: the sum below carries into them, up to infinity, and never into the sign.
    const auto odd = hn::And(hn::ShiftRight<kDrop>(bits), hn::Set(du, kOne));
    const auto carry = hn::Add(odd, hn::Set(du, static_cast<TU>((kOne << (kDrop - 1)) - 1)));
    const auto rounded = hn::Add(bits, carry), nan = hn::Or(bits, hn::Set(du, kQuiet));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    return hn::BitCast(d, hn::And(hn::IfThenElse(is_nan, nan, rounded), hn::Set(du, kKeep)));
  }
  const auto magnitude = hn::BitCast(du, hn::Abs(v));
  const auto sign = hn::Xor(bits, magnitude);
  // Half of the last kept place minus one, plus that place's bit: the sum carries exactly when nearest-even
  // rounds up.
  const auto odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(du, kOne));
  const auto carry = hn::Add(odd, hn::Set(du, static_cast<TU>((kOne << (kDrop - 1)) - 1)));
  auto rounded = hn::And(hn::Add(magnitude, carry), hn::Set(du, kKeep));
  if constexpr (kNarrow.min_normal_exp != kWide.min_normal_exp) {
    // Below the smallest normal, adding 2^k makes the hardware's addition round at the smallest subnormal's
    // place.
    constexpr T kShift = PowerOfTwo<T>(kNarrow.min_normal_exp - kNarrow.mantissa_bits + kWide.mantissa_bits);
    const auto abs = hn::BitCast(d, magnitude);
    const auto subnormal = hn::Sub(hn::Add(abs, hn::Set(d, kShift)), hn::Set(d, kShift));
    const auto is_subnormal = hn::Lt(abs, hn::Set(d, PowerOfTwo<T>(kNarrow.min_normal_exp)));
    const auto grid = hn::IfThenElse(is_subnormal, subnormal, hn::BitCast(d, rounded));
    const auto overflow = hn::Gt(grid, hn::Set(d, static_cast<T>(kNarrow.max_finite)));
    const auto past_range =
        hn::BitCast(d, hn::Set(du, kNarrow.has_infinity ? kInf : static_cast<TU>(kInf | kQuiet)));
    rounded = hn::BitCast(du, hn::IfThenElse(overflow, past_range, grid));
  }
  const auto payload = hn::And(magnitude, hn::Set(du, kNarrow.has_infinity ? kKeep : kInf));
  const auto nan = hn::Or(payload, hn::Set(du, kQuiet));
  const auto finite = hn::BitCast(d, hn::Or(rounded, sign));
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Or(nan, sign)), finite);
}

/// Loads consecutive values of S from `p` as f32 lanes. S is not f64.
template <Scalar S, F32Lanes D>
HWY_INLINE hn::Vec<D> LoadLanes(D d, const std::uint8_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> du16;
  const hn::Rebind<std::uint8_t, D> du8;
  const hn::Rebind<hwy::float16_t, D> dh;
  if constexpr (S == Scalar::f32 || S == Scalar::tf32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(p));
  } else if constexpr (S == Scalar::bf16) {
    const auto half = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
  } else if constexpr (S == Scalar::f16) {
    return hn::PromoteTo(d, hn::BitCast(dh, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p))));
  } else if constexpr (S == Scalar::e5m2) {
    // An e5m2 code is the upper byte of an f16.
    const auto byte = hn::PromoteTo(du16, hn::LoadU(du8, p));
    return hn::PromoteTo(d, hn::BitCast(dh, hn::ShiftLeft<8>(byte)));
  } else {
    static_assert(S == Scalar::e4m3);
    // The biases are 7 and 15, so the same fields read as an f16 give a value 2^8 too small. The NaN code
    // then reads as 480.
    const auto byte = hn::PromoteTo(du16, hn::LoadU(du8, p));
    const auto sign = hn::ShiftLeft<8>(hn::And(byte, hn::Set(du16, std::uint16_t{0x80})));
    const auto magnitude = hn::ShiftLeft<7>(hn::And(byte, hn::Set(du16, std::uint16_t{0x7f})));
    const auto small = hn::PromoteTo(d, hn::BitCast(dh, hn::Or(sign, magnitude)));
    const auto value = hn::Mul(small, hn::Set(d, 256.0f));
    const auto is_nan = hn::Gt(hn::Abs(value), hn::Set(d, 448.0f));
    const auto nan = hn::CopySignToAbs(hn::BitCast(d, hn::Set(du, std::uint32_t{0x7fc00000})), value);
    return hn::IfThenElse(is_nan, nan, value);
  }
}

/// Loads consecutive values of S from `p` as f64 lanes.
template <Scalar S, F64Lanes D>
HWY_INLINE hn::Vec<D> LoadLanes(D d, const std::uint8_t* HWY_RESTRICT p) {
  if constexpr (S == Scalar::f64) {
    return hn::LoadU(d, reinterpret_cast<const double*>(p));
  } else {
    return hn::PromoteTo(d, LoadLanes<S>(hn::Rebind<float, D>(), p));
  }
}

/// Writes lanes that already lie on the grid of S (or are NaN) to `p`. S is not f64.
template <Scalar S, F32Lanes D>
HWY_INLINE void StoreGridLanes(D d, hn::Vec<D> v, std::uint8_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> du16;
  const hn::RebindToSigned<decltype(du16)> di16;
  const hn::Rebind<std::uint8_t, D> du8;
  const hn::Rebind<hwy::float16_t, D> dh;
  if constexpr (S == Scalar::f32 || S == Scalar::tf32) {
    hn::StoreU(v, d, reinterpret_cast<float*>(p));
  } else if constexpr (S == Scalar::bf16) {
    const auto high = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, v)));
    hn::StoreU(hn::DemoteTo(du16, high), du16, reinterpret_cast<std::uint16_t*>(p));
  } else if constexpr (S == Scalar::f16) {
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(dh, v)), du16, reinterpret_cast<std::uint16_t*>(p));
  } else if constexpr (S == Scalar::e5m2) {
    const auto half = hn::BitCast(du16, hn::DemoteTo(dh, v));
    hn::StoreU(hn::DemoteTo(du8, hn::BitCast(di16, hn::ShiftRight<8>(half))), du8, p);
  } else {
    static_assert(S == Scalar::e4m3);
    // In an f16 of 1/256 of the value the exponent fields agree. A NaN has a larger field, which becomes all
    // ones.
    const auto half = hn::BitCast(du16, hn::DemoteTo(dh, hn::Mul(v, hn::Set(d, 0x1p-8f))));
    const auto sign = hn::And(hn::ShiftRight<8>(half), hn::Set(du16, std::uint16_t{0x80}));
    const auto code = hn::ShiftRight<7>(hn::And(half, hn::Set(du16, std::uint16_t{0x7fff})));
    const auto byte = hn::Or(sign, hn::Min(code, hn::Set(du16, std::uint16_t{0x7f})));
    hn::StoreU(hn::DemoteTo(du8, hn::BitCast(di16, byte)), du8, p);
  }
}

/// Rounds f32 lanes to nearest even and writes them to `p` as S.
template <Scalar S, F32Lanes D>
HWY_INLINE void StoreLanes(D d, hn::Vec<D> v, std::uint8_t* HWY_RESTRICT p) {
  if constexpr (S == Scalar::f64) {
    const hn::Repartition<double, D> dd;
    const hn::Half<D> dhalf;
    double* to = reinterpret_cast<double*>(p);
    hn::StoreU(hn::PromoteTo(dd, hn::LowerHalf(dhalf, v)), dd, to);
    hn::StoreU(hn::PromoteTo(dd, hn::UpperHalf(dhalf, v)), dd, to + hn::Lanes(dd));
  } else if constexpr (S == Scalar::f32 || S == Scalar::f16) {
    StoreGridLanes<S>(d, v, p);  // the hardware's conversion to f16 rounds
  } else {
    StoreGridLanes<S>(d, RoundToGrid<S>(d, v), p);
  }
}

/// Rounds two vectors of f32 lanes to nearest even and writes them to `p` as S, one after the other.
template <Scalar S, F32Lanes D>
HWY_INLINE void StoreLanePair(D d, hn::Vec<D> first, hn::Vec<D> second, std::uint8_t* HWY_RESTRICT p) {
  if constexpr (S == Scalar::bf16) {
    const hn::Repartition<std::uint16_t, D> du16;
    const auto upper = hn::ConcatOdd(du16, hn::BitCast(du16, RoundToGrid<S>(d, second)),
                                     hn::BitCast(du16, RoundToGrid<S>(d, first)));
    hn::StoreU(upper, du16, reinterpret_cast<std::uint16_t*>(p));
  } else {
    StoreLanes<S>(d, first, p);
    StoreLanes<S>(d, second, p + hn::Lanes(d) * bytes_of(S));
  }
}

/// Rounds f64 lanes once, to nearest even, and writes them to `p` as S.
template <Scalar S, F64Lanes D>
HWY_INLINE void StoreLanes(D d, hn::Vec<D> v, std::uint8_t* HWY_RESTRICT p) {
  const hn::Rebind<float, D> df;
  if constexpr (S == Scalar::f64) {
    hn::StoreU(v, d, reinterpret_cast<double*>(p));
  } else if constexpr (S == Scalar::f32) {
    hn::StoreU(hn::DemoteTo(df, v), df, reinterpret_cast<float*>(p));
  } else {
    StoreGridLanes<S>(df, hn::DemoteTo(df, RoundToGrid<S>(d, v)), p);
  }
}

/// Rounds lanes of T to nearest even on the grid of S.
template <Scalar S, class D>
HWY_INLINE hn::Vec<D> RoundLanes(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  if constexpr (IsRowScalar<T>(S)) {
    return v;
  } else if constexpr (S == Scalar::f32) {
    return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<float, D>(), v));
  } else if constexpr (S == Scalar::f16 && std::is_same_v<T, float>) {
    return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
  } else {
    return RoundToGrid<S>(d, v);
  }
}

template <Scalar S, class T>
HWY_INLINE void LoadRowOf(const std::uint8_t* HWY_RESTRICT src, std::size_t n, T* HWY_RESTRICT dst) {
  constexpr std::size_t kBytes = traits(S).bytes;
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  if constexpr (S == Scalar::f64 && std::is_same_v<T, float>) {
    const hn::Rebind<double, hn::Half<decltype(d)>> dd;
    const hn::Rebind<float, decltype(dd)> df;
    const std::size_t half = hn::Lanes(dd);
    for (; i + half <= n; i += half)
      hn::StoreU(hn::DemoteTo(df, LoadLanes<S>(dd, src + i * kBytes)), df, dst + i);
    for (; i < n; ++i) {
      double value;
      std::memcpy(&value, src + i * kBytes, sizeof(value));
      dst[i] = static_cast<float>(value);
    }
  } else {
    for (; i + lanes <= n; i += lanes) hn::StoreU(LoadLanes<S>(d, src + i * kBytes), d, dst + i);
    if (i == n) return;
    HWY_ALIGN std::uint8_t in[HWY_MAX_BYTES] = {};
    HWY_ALIGN T out[HWY_MAX_BYTES / sizeof(T)];
    std::memcpy(in, src + i * kBytes, (n - i) * kBytes);
    hn::Store(LoadLanes<S>(d, in), d, out);
    std::memcpy(dst + i, out, (n - i) * sizeof(T));
  }
}

template <Scalar S, class T>
HWY_INLINE void StoreRowOf(const T* HWY_RESTRICT src, std::size_t n, std::uint8_t* HWY_RESTRICT dst) {
  constexpr std::size_t kBytes = traits(S).bytes;
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreLanes<S>(d, hn::LoadU(d, src + i), dst + i * kBytes);
  if (i == n) return;
  HWY_ALIGN T in[HWY_MAX_BYTES / sizeof(T)] = {};
  HWY_ALIGN std::uint8_t out[2 * HWY_MAX_BYTES];
  std::memcpy(in, src + i, (n - i) * sizeof(T));
  StoreLanes<S>(d, hn::Load(d, in), out);
  std::memcpy(dst + i * kBytes, out, (n - i) * kBytes);
}

template <Scalar S, class T>
HWY_INLINE void RoundRowOf(T* HWY_RESTRICT row, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(RoundLanes<S>(d, hn::LoadU(d, row + i)), d, row + i);
  if (i == n) return;
  HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(part, row + i, (n - i) * sizeof(T));
  hn::Store(RoundLanes<S>(d, hn::Load(d, part)), d, part);
  std::memcpy(row + i, part, (n - i) * sizeof(T));
}

/// Loads dst[0, n) from elements [offset, offset + n) of `src`, stored as `type`. Exact, except that f64
/// rounds to nearest even in a row of f32.
template <class T>
HWY_INLINE void LoadRow(const void* src, Scalar type, std::size_t offset, std::size_t n,
                        T* HWY_RESTRICT dst) {
  const std::uint8_t* from = static_cast<const std::uint8_t*>(src) + offset * bytes_of(type);
  switch (type) {
    case Scalar::f64:
      return LoadRowOf<Scalar::f64>(from, n, dst);
    case Scalar::f32:
    case Scalar::tf32:
      return LoadRowOf<Scalar::f32>(from, n, dst);
    case Scalar::bf16:
      return LoadRowOf<Scalar::bf16>(from, n, dst);
    case Scalar::f16:
      return LoadRowOf<Scalar::f16>(from, n, dst);
    case Scalar::e5m2:
      return LoadRowOf<Scalar::e5m2>(from, n, dst);
    case Scalar::e4m3:
      return LoadRowOf<Scalar::e4m3>(from, n, dst);
  }
}

/// True if elements at `src` can be read as T: they are stored as T and aligned for it.
template <class T>
HWY_INLINE bool LieAs(const void* src, Scalar type) {
  const bool same = type == kRowScalar<T> || (std::is_same_v<T, float> && type == Scalar::tf32);
  return same && reinterpret_cast<std::uintptr_t>(src) % alignof(T) == 0;
}

/// Returns a pointer to elements [offset, offset + n) of `src`: in place if they can be read as T, else
/// converted into `buffer` (n elements).
template <class T>
HWY_INLINE const T* ViewRow(const void* src, Scalar type, std::size_t offset, std::size_t n,
                            T* HWY_RESTRICT buffer) {
  if (LieAs<T>(src, type)) return static_cast<const T*>(src) + offset;
  LoadRow(src, type, offset, n, buffer);
  return buffer;
}

/// Rounds src[0, n) to nearest even and writes it to elements [offset, offset + n) of `dst`, stored as
/// `type`.
template <class T>
HWY_INLINE void StoreRow(const T* HWY_RESTRICT src, std::size_t n, void* dst, Scalar type,
                         std::size_t offset) {
  std::uint8_t* to = static_cast<std::uint8_t*>(dst) + offset * bytes_of(type);
  switch (type) {
    case Scalar::f64:
      return StoreRowOf<Scalar::f64>(src, n, to);
    case Scalar::f32:
      return StoreRowOf<Scalar::f32>(src, n, to);
    case Scalar::tf32:
      return StoreRowOf<Scalar::tf32>(src, n, to);
    case Scalar::bf16:
      return StoreRowOf<Scalar::bf16>(src, n, to);
    case Scalar::f16:
      return StoreRowOf<Scalar::f16>(src, n, to);
    case Scalar::e5m2:
      return StoreRowOf<Scalar::e5m2>(src, n, to);
    case Scalar::e4m3:
      return StoreRowOf<Scalar::e4m3>(src, n, to);
  }
}

/// Rounds row[0, n) to nearest even on the grid of `type`, in place. Does nothing if every value of T is a
/// value of `type`.
template <class T>
HWY_INLINE void RoundRow(T* HWY_RESTRICT row, std::size_t n, Scalar type) {
  if (IsRowScalar<T>(type)) return;
  switch (type) {
    case Scalar::f64:
      return;
    case Scalar::f32:
      return RoundRowOf<Scalar::f32>(row, n);
    case Scalar::tf32:
      return RoundRowOf<Scalar::tf32>(row, n);
    case Scalar::bf16:
      return RoundRowOf<Scalar::bf16>(row, n);
    case Scalar::f16:
      return RoundRowOf<Scalar::f16>(row, n);
    case Scalar::e5m2:
      return RoundRowOf<Scalar::e5m2>(row, n);
    case Scalar::e4m3:
      return RoundRowOf<Scalar::e4m3>(row, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_CONVERT_INL_H_
