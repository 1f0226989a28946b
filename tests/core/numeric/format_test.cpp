#include "mantissa/core/numeric/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace mantissa::format_test {
namespace {

TEST(Traits, FollowFromTheBitWidths) {
  for (const Scalar s : kScalars) {
    const ScalarTraits& t = traits(s);
    SCOPED_TRACE(std::string(name(s)));
    EXPECT_EQ(t.min_normal_exp, 2 - (1 << (t.exponent_bits - 1)));
    const std::size_t used = static_cast<std::size_t>(1 + t.exponent_bits + t.mantissa_bits);
    EXPECT_EQ(8 * t.bytes, s == Scalar::tf32 ? 32 : used);
    // IEEE 754 reserves the top binade for inf and NaN; e4m3 reserves only its last code.
    const int top = (1 << (t.exponent_bits - 1)) - (t.has_infinity ? 1 : 0);
    const double last =
        t.has_infinity ? 2 - std::ldexp(1.0, -t.mantissa_bits) : 2 - std::ldexp(2.0, -t.mantissa_bits);
    EXPECT_EQ(t.max_finite, std::ldexp(last, top));
    EXPECT_EQ(unit_roundoff(s), std::ldexp(0.5, -t.mantissa_bits));
  }
}

TEST(Traits, HaveTheDocumentedValues) {
  EXPECT_EQ(traits(Scalar::f16).max_finite, 65504);
  EXPECT_EQ(traits(Scalar::e5m2).max_finite, 57344);
  EXPECT_EQ(traits(Scalar::e4m3).max_finite, 448);
  EXPECT_EQ(traits(Scalar::e4m3).min_normal_exp, -6);
  EXPECT_FALSE(traits(Scalar::e4m3).has_infinity);
  EXPECT_EQ(unit_roundoff(Scalar::bf16), 0x1p-8);
}

TEST(ParseScalar, ReadsItsOwnNames) {
  for (const Scalar s : kScalars) EXPECT_EQ(parse_scalar(name(s)), s) << name(s);
}

TEST(ParseScalar, ReadsForeignSpellings) {
  for (const char* text :
       {"bfloat16", "torch.bfloat16", "BF16", "jnp.bfloat16", "BFloat16", "ml_dtypes.bfloat16"}) {
    EXPECT_EQ(parse_scalar(text), Scalar::bf16) << text;
  }
  for (const char* text : {"half", "fp16", "float16", "torch.half", "np.float16", "F16"}) {
    EXPECT_EQ(parse_scalar(text), Scalar::f16) << text;
  }
  for (const char* text : {"fp32", "float32", "float", "torch.float", "F32"})
    EXPECT_EQ(parse_scalar(text), Scalar::f32) << text;
  for (const char* text : {"fp64", "float64", "double", "torch.float64"})
    EXPECT_EQ(parse_scalar(text), Scalar::f64) << text;
  for (const char* text : {"torch.float8_e5m2", "F8_E5M2", "fp8_e5m2"})
    EXPECT_EQ(parse_scalar(text), Scalar::e5m2) << text;
  for (const char* text : {"torch.float8_e4m3fn", "F8_E4M3", "e4m3fn"})
    EXPECT_EQ(parse_scalar(text), Scalar::e4m3) << text;
}

TEST(ParseScalar, RejectsUnknownNames) {
  for (const char* text :
       {"", "int8", "bf", "torch.", "torch", "bf16 ", "float8_e4m3", "float8_e4m3fnuz", "torch.torch.half"}) {
    EXPECT_EQ(parse_scalar(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace mantissa::format_test
