// The matrix product near the double reference in every format, with bounds derived from the formats and the
// length of the sums, and its edge cases. gemm_bits_test.cpp tests the order of summation.
#include <fmt/format.h>

#include <limits>

#include "kernels/gemm_case.h"
#include "kernels/reference/gemm.h"
#include "mantissa/core/base/error.h"

namespace mantissa::kernels::gemm_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests
using testing::rounding_error;

/// The error bound of gemm. The fused multiply-adds of a chain, the sums over blocks and leaves, bias and
/// addend are at most `roundings` consecutive roundings: γ · Σ|…| with γ = n·u / (1 − n·u). Then both results
/// round to `rounded` and to C's format.
double bound(const Gemm& g, Scalar arithmetic, double value, double magnitude) {
  const std::int64_t blocks = g.k / kSumBlock + 1, epilogue = 2;
  const auto roundings = static_cast<double>(std::min(kSumBlock, g.k) + blocks + epilogue);
  const double nu = roundings * unit_roundoff(arithmetic);
  const double sum = nu / (1 - nu) * magnitude;
  const double inner =
      arithmetic == Scalar::f64 || g.rounded == Scalar::f32 ? 0 : 2 * rounding_error(g.rounded, magnitude);
  return sum + inner + 2 * rounding_error(g.c.type, std::abs(value) + sum + inner);
}

void expect_near_reference(const Case& x, Scalar arithmetic) {
  const reference::GemmResult expected = reference::gemm(x.g);
  const std::vector<double> c = x.result().values();
  for (std::size_t i = 0; i < c.size(); ++i) {
    ASSERT_NEAR(c[i], expected.c[i], bound(x.g, arithmetic, expected.c[i], expected.magnitude[i]))
        << "element " << i << " of " << x.g.m << " × " << x.g.n << " × " << x.g.k << ", seed " << kSeed;
  }
}

using FormatCase = std::tuple<Formats, int>;
class GemmFormats : public ::testing::TestWithParam<FormatCase> {};

TEST_P(GemmFormats, AreNearTheReferenceWithAndWithoutEpilogue) {
  const auto& [formats, transposes] = GetParam();
  for (const Size& size : {Size{5, 7, 3}, Size{33, 50, 300}}) {
    Case x(size, formats, transposes);
    expect_near_reference(x, formats.arithmetic());
    x.add_bias();
    x.g.rounded = Scalar::bf16;
    x.add_addend();
    expect_near_reference(x, formats.arithmetic());
  }
}

std::string format_name(const ::testing::TestParamInfo<FormatCase>& info) {
  const auto& [f, transposes] = info.param;
  return fmt::format("{}_{}_as_{}_into_{}_{}{}", name(f.a), name(f.b), name(f.operand), name(f.c),
                     a_transposed(transposes) ? "t" : "n", b_transposed(transposes) ? "t" : "n");
}

INSTANTIATE_TEST_SUITE_P(
    Every, GemmFormats,
    ::testing::Combine(::testing::Values(kF32, kF64, all_of(Scalar::tf32), kBf16, all_of(Scalar::f16),
                                         Formats{Scalar::f64, Scalar::f64, Scalar::f32, Scalar::f32},
                                         Formats{Scalar::f64, Scalar::f32, Scalar::bf16, Scalar::f64},
                                         Formats{Scalar::e5m2, Scalar::e4m3, Scalar::f32, Scalar::bf16},
                                         Formats{Scalar::e4m3, Scalar::e5m2, Scalar::e4m3, Scalar::f32},
                                         Formats{Scalar::f32, Scalar::f32, Scalar::bf16, Scalar::f32},
                                         Formats{Scalar::f32, Scalar::bf16, Scalar::f16, Scalar::f16},
                                         Formats{Scalar::bf16, Scalar::f32, Scalar::tf32, Scalar::f32},
                                         Formats{Scalar::f32, Scalar::f16, Scalar::e5m2, Scalar::e5m2}),
                       ::testing::Range(0, 4)),
    format_name);

TEST(GemmOperands, AreRoundedOnceFromF64) {
  // Just above the midpoint of two bf16 values. Rounding through f32 would give the midpoint and then the
  // even value, 1.
  const double x = 1 + 0x1p-8 + 0x1p-40, one = 1;
  for (const bool transposed : {false, true}) {
    float c = 0;
    Gemm g;
    g.m = g.n = g.k = 1;
    g.a = {{&x, Scalar::f64, 1}, Scalar::bf16, transposed};
    g.b = {{&one, Scalar::f64, 1}, Scalar::bf16, transposed};
    g.c = {&c, Scalar::f32, 1};
    run(g);
    EXPECT_EQ(c, 1 + 0x1p-7F);
  }
}

TEST(GemmOfNothing, NoRowsOrColumnsWriteNothing) {
  for (const Size& size : {Size{0, 5, 7}, Size{5, 0, 7}}) {
    Case x({6, 6, 7}, kF32);
    x.g.m = size.m;
    x.g.n = size.n;
    EXPECT_TRUE(x.result() == x.c);
  }
}

TEST(GemmOfNothing, NoTermsGiveZeroThroughTheEpilogue) {
  for (const Formats& formats : {kF32, kF64, kBf16}) {
    Case x({9, 150, 0}, formats);
    EXPECT_TRUE(x.result() == as_stated(x, formats.arithmetic()));
    x.add_bias();
    x.add_addend();
    EXPECT_TRUE(x.result() == as_stated(x, formats.arithmetic()));
  }
  Case x({9, 150, 0}, kF32);
  x.g.accumulate = true;
  EXPECT_TRUE(x.result() == x.c) << "an empty sum keeps C";
}

TEST(GemmNonFinite, StaysInItsRow) {
  Case x({20, 40, 60}, kF32);
  x.a.set(3, 7, std::numeric_limits<double>::infinity());
  x.a.set(17, 59, std::numeric_limits<double>::quiet_NaN());
  const Tensor c = x.result();
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t j = 0; j < 40; ++j)
      EXPECT_EQ(std::isfinite(c.get(i, j)), i != 3 && i != 17) << i << ", " << j;
  }
}

TEST(GemmWorkspace, NeverShrinksAsTheProductGrows) {
  const Context ctx = with_threads(3);
  const std::vector<std::int64_t> sizes = {0,   1,    13,   14,   41,   42,   100,  255,
                                           256, 1000, 1008, 1024, 1025, 4097, 70000};
  for (const Scalar type : {Scalar::f32, Scalar::f64}) {
    for (const std::int64_t m : sizes) {
      for (const std::int64_t k : sizes) {
        const std::size_t here = gemm_workspace(ctx, m, 100, k, type);
        EXPECT_LE(here, gemm_workspace(ctx, m + 1, 100, k, type)) << m << ", " << k;
        EXPECT_LE(here, gemm_workspace(ctx, m, 101, k, type)) << m << ", " << k;
        EXPECT_LE(here, gemm_workspace(ctx, m, 100, k + 1, type)) << m << ", " << k;
      }
    }
  }
}

TEST(GemmErrors, HaveTheTypeOfTheMistake) {
  Case x({8, 8, 8}, kF32);
  EXPECT_THROW(gemm(best(), x.g), ResourceError) << "no workspace";
  x.g.accumulate = true;
  x.g.rounded = Scalar::bf16;
  EXPECT_THROW(run(x.g), DtypeError) << "accumulated with an epilogue";
  Case narrow({8, 8, 8}, kBf16);
  narrow.g.accumulate = true;
  EXPECT_THROW(run(narrow.g), DtypeError) << "accumulated into bf16";
  Case chained({8, 8, 8}, kF32);
  chained.g.continue_blocks = true;
  EXPECT_THROW(run(chained.g), ShapeError) << "nothing to continue";
}

}  // namespace
}  // namespace mantissa::kernels::gemm_test
