// Number formats: the scalar element types (docs/numerics.md, "Formats"). Formats with scales are in
// core/numeric/scaled.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mantissa {

/// An element type. tf32 is f32 storage whose values lie on the 10-bit-mantissa grid.
enum class Scalar : std::uint8_t { f64, f32, tf32, bf16, f16, e5m2, e4m3 };

inline constexpr Scalar kScalars[] = {Scalar::f64, Scalar::f32,  Scalar::tf32, Scalar::bf16,
                                      Scalar::f16, Scalar::e5m2, Scalar::e4m3};

/// The parameters of a binary floating-point format: value = 1.m × 2^e, by IEEE 754 rules unless
/// `has_infinity` is false.
struct ScalarTraits {
  std::string_view name;
  int exponent_bits;
  int mantissa_bits;  // without the hidden bit
  std::size_t bytes;  // of one stored element
  double max_finite;
  int min_normal_exp;  // smallest normal is 2^min_normal_exp
  bool has_infinity;   // false for e4m3, where overflow gives NaN
};

/// Traits of every scalar, in the order of `Scalar`.
inline constexpr ScalarTraits kScalarTraits[] = {
    {"f64", 11, 52, 8, 0x1.fffffffffffffp1023, -1022, true},
    {"f32", 8, 23, 4, 0x1.fffffep127, -126, true},
    {"tf32", 8, 10, 4, 0x1.ffcp127, -126, true},
    {"bf16", 8, 7, 2, 0x1.fep127, -126, true},
    {"f16", 5, 10, 2, 65504.0, -14, true},
    {"e5m2", 5, 2, 1, 57344.0, -14, true},
    {"e4m3", 4, 3, 1, 448.0, -6, false},
};

/// Traits of `s`. Sources: IEEE 754, and the OCP 8-bit floating point specification for e5m2 and e4m3.
constexpr const ScalarTraits& traits(Scalar s) {
  return kScalarTraits[static_cast<std::size_t>(s)];
}

/// Bytes of one stored element.
constexpr std::size_t bytes_of(Scalar s) {
  return traits(s).bytes;
}

/// True if every value of `narrow` is a value of `wide`.
constexpr bool holds(Scalar wide, Scalar narrow) {
  const ScalarTraits &w = traits(wide), &n = traits(narrow);
  return n.mantissa_bits <= w.mantissa_bits && n.max_finite <= w.max_finite &&
         n.min_normal_exp - n.mantissa_bits >= w.min_normal_exp - w.mantissa_bits;
}

/// The name, "f32", "bf16" and so on; a policy line uses the same names.
constexpr std::string_view name(Scalar s) {
  return traits(s).name;
}

/// Returns the scalar with the name `text` ("bf16") or one of its foreign spellings ("bfloat16",
/// "torch.bfloat16", "BF16", "half", "fp32" …), in any letter case. Returns null for "float8_e4m3": elsewhere
/// that names a type with an infinity; this e4m3 is "float8_e4m3fn".
std::optional<Scalar> parse_scalar(std::string_view text);

/// The unit roundoff: half the distance between 1 and the next value, 2^-(mantissa_bits + 1).
double unit_roundoff(Scalar s);

enum class Rounding : std::uint8_t { nearest, toward_zero, stochastic };

/// How a value is rounded to a narrower format.
struct RoundingMode {
  Rounding rounding = Rounding::nearest;
  bool saturate = false;          // overflow gives the largest finite value instead of inf (e4m3: NaN)
  bool flush_subnormals = false;  // results below the smallest normal become zero of the same sign
  friend bool operator==(const RoundingMode&, const RoundingMode&) = default;
};

}  // namespace mantissa
