// Activations with stochastic rounding or rounding toward zero: every element equals encode() with the random
// bits of its position, for every batch, thread count and instruction set.
#include <gtest/gtest.h>

#include "kernels/row_testing.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/round.h"

namespace mantissa::kernels::activation_rounding_test {
namespace {

using testing::Batch;
using testing::contexts;
using testing::describe;
using testing::Tensor;

constexpr std::uint64_t kName = 0x1234567890ABCDEF;
constexpr std::int64_t kWidth = 1037;  // more than a piece, and not a whole number of vectors

/// Three sequences, the second of which continues at position 40.
struct Problem {
  Problem() : batch({5, 3, 70}), from(Scalar::f32, batch.tokens, kWidth) {
    for (std::size_t i = 0; i < 3; ++i) batch.segments[i].sequence = 17 * i + 2;
    batch.segments[1].position = 40;
    std::mt19937 random(testing::kSeed);
    from.fill_normal(random, 100);
    // Values beyond the largest 8-bit value, below the smallest, and not finite.
    for (std::int64_t t = 0; t < batch.tokens; ++t) {
      from.set(t, 3, 1e6);
      from.set(t, 4, -1e-6);
      from.set(t, 5, std::numeric_limits<double>::quiet_NaN());
      from.set(t, 6, -std::numeric_limits<double>::infinity());
      from.set(t, 7, 0.011);
    }
  }
  Tensor run(const Context& ctx, Scalar type, const ActivationRounding& how) const {
    Tensor to(type, batch.tokens, kWidth);
    Extent extent = batch.extent();
    extent.seed = 99;
    round_activations(ctx, extent, batch.tokens, kWidth, from, to, how);
    return to;
  }
  Batch batch;
  Tensor from;
};

TEST(ActivationRounding, DependsOnThePositionInTheSequence) {
  const Problem p;
  for (const Scalar type : {Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    for (const Rounding rounding : {Rounding::stochastic, Rounding::toward_zero}) {
      for (const auto& [saturate, flush] : {std::pair{false, false}, {true, false}, {false, true}}) {
        SCOPED_TRACE(::testing::Message()
                     << name(type) << ' ' << static_cast<int>(rounding) << saturate << flush);
        const Tensor got = p.run({.simd = best_simd()}, type, {rounding, kName, saturate, flush});
        for (std::size_t s = 0; s < 3; ++s) {
          const Segment& segment = p.batch.segments[s];
          const RandomStream stream(99, RandomUse::activation, kName, segment.sequence);
          for (std::int64_t t = 0; t < segment.length; ++t) {
            for (std::int64_t c = 0; c < kWidth; ++c) {
              const auto index = static_cast<std::uint64_t>((segment.position + t) * kWidth + c);
              const double want = round_to(p.from.get(segment.begin + t, c), type,
                                           {rounding, saturate, flush}, stream.bits(index));
              const double have = got.get(segment.begin + t, c);
              ASSERT_TRUE(have == want || (std::isnan(have) && std::isnan(want)))
                  << "sequence " << s << " token " << t << " feature " << c << ": " << have << " for "
                  << want;
            }
          }
        }
        for (const Context& ctx : contexts())
          EXPECT_EQ(p.run(ctx, type, {rounding, kName, saturate, flush}), got) << describe(ctx);
      }
    }
  }
}

TEST(ActivationRounding, OfLastTokensDependsOnTheirPositions) {
  const Problem p;
  const ActivationRounding how{Rounding::stochastic, kName};
  const Tensor all = p.run({.simd = best_simd()}, Scalar::e4m3, how);
  Tensor last(Scalar::f32, 3, kWidth), got(Scalar::e4m3, 3, kWidth);
  const auto token = [&](std::int64_t r) {
    const Row& row = p.batch.rows[static_cast<std::size_t>(r)];
    return row.begin + row.length - 1;
  };
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) last.set(r, c, p.from.get(token(r), c));
  }
  Extent extent = p.batch.extent();
  extent.seed = 99;
  round_activations({.simd = best_simd()}, extent, 3, kWidth, last, got, how);
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const double have = got.get(r, c), want = all.get(token(r), c);
      EXPECT_TRUE(have == want || (std::isnan(have) && std::isnan(want)));
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::activation_rounding_test
