// Attention with a softmax in a lower format, and with operands that are rounded or split into parts.
#include "mantissa/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention_bounds.h"
#include "kernels/attention_case.h"
#include "kernels/reference/attention.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::attention_test::attention_formats_test {
namespace {

// ---- With a softmax in a lower format ----

struct LoweredSoftmax : ::testing::TestWithParam<Scalar> {};

/// Scaled scores are exact quarters of integers, so the reference rounds the same numbers. With this seed
/// none of them, capped or not, is near a tie. The remaining errors are those of f32.
void expect_the_headers_roundings(const Sizes& sizes, Scalar softmax) {
  Case c(sizes, all_of(Scalar::f32));
  c.softmax = softmax;
  std::mt19937 random(kSeed);
  for (Tensor* t : {&c.q, &c.k}) {
    for (std::size_t i = 0; i < t->count(); ++i) t->set(i, static_cast<double>(random() % 3) - 1);
  }
  for (Tensor* t : {&c.v, &c.dout}) t->fill_normal(random);
  c.forward();
  c.backward();
  const Bounds values(c);
  const Extent extent = extent_of(c.segments);
  const auto round = [s = c.softmax](double x) { return round_to(x, s); };
  std::vector<double> out(c.out.count()), lse(c.lse.count());
  reference::attention(extent, sizes.shape(), values.q.data(), values.k.data(), values.v.data(), out.data(),
                       lse.data(), {}, {}, round);
  std::vector<double> dq(c.dq.count()), dk(c.dk.count()), dv(c.dv.count());
  reference::attention_backward(extent, sizes.shape(), values.q.data(), values.k.data(), values.v.data(),
                                values.out.data(), values.lse.data(), values.dout.data(), dq.data(),
                                dk.data(), dv.data(), {}, round);
  const double u = unit_roundoff(Scalar::f32);
  // Rows of at most 16 keys, 16 queries of 2 heads, values below 4, and sums of 16 products below 64.
  const double forward_bound = 4 * 64 * u, backward_bound = 2 * 16 * 64 * u;
  const auto near = [](const char* what, const Tensor& t, const std::vector<double>& want, double bound) {
    expect_within(what, t, want, std::vector<double>(want.size(), bound));
  };
  near("out", c.out, out, forward_bound);
  near("lse", c.lse, lse, forward_bound);
  near("dq", c.dq, dq, backward_bound);
  near("dk", c.dk, dk, backward_bound);
  near("dv", c.dv, dv, backward_bound);
  // The result must differ from that of the f32 softmax.
  const std::vector<double> lowered = c.out.values();
  c.softmax = Scalar::f64;
  c.forward();
  EXPECT_NE(c.out.values(), lowered);
}

TEST_P(LoweredSoftmax, RoundsAsTheHeaderStates) {
  expect_the_headers_roundings({4, 2, 16, {5, 16}}, GetParam());
}

TEST_P(LoweredSoftmax, RoundsScoresAfterTheSoftCap) {
  expect_the_headers_roundings({4, 2, 16, {5, 16}, 0, 3}, GetParam());
  expect_the_headers_roundings({4, 2, 16, {5, 16}, 7, 2}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Attention, LoweredSoftmax,
                         ::testing::Values(Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LoweredSoftmaxBits, DependNeitherOnThreadsNorOnTheInstructionSetNorOnTheTile) {
  for (const Sizes& sizes :
       {Sizes{4, 2, 16, {5, 16}}, Sizes{2, 1, 24, {530, 20}}, Sizes{2, 1, 24, {530, 20}, 13, 3}}) {
    Case first = Case::random(sizes, all_of(Scalar::bf16)), second = Case::random(sizes, first.formats);
    first.softmax = second.softmax = Scalar::bf16;
    first.forward({Simd::avx2, 1});
    first.backward({Simd::avx2, 1});
    second.forward({best_simd(), 2});
    second.backward({best_simd(), 2});
    for (const auto member : {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv})
      EXPECT_TRUE(same_bits(first.*member, second.*member));
  }
}

// ---- Operands ----

TEST(AttentionFactors, AreRoundedIfTheirStorageIsWider) {
  for (const Scalar operand : {Scalar::bf16, Scalar::tf32}) {
    for (const Sizes& sizes : {Sizes{4, 2, 34, {140, 7}}, Sizes{4, 2, 34, {140, 7}, 20, 3}}) {
      Formats formats = all_of(Scalar::f32);
      Case rounds = Case::random(sizes, formats);  // values outside the operand's format
      rounds.factor = operand;
      formats.operand = operand;
      Case rounded = Case::random(sizes, formats);
      rounds.forward();
      rounded.forward();
      EXPECT_TRUE(same_bits(rounds.out, rounded.out)) << name(operand);
      EXPECT_TRUE(same_bits(rounds.lse, rounded.lse)) << name(operand);
    }
  }
}

void expect_nearer_in_more_parts(const Sizes& sizes, SumOrder order) {
  Formats of_f32_values = all_of(Scalar::f64);
  of_f32_values.operand = Scalar::f32;
  Case exact = Case::random(sizes, of_f32_values);
  exact.factor = Scalar::f64;
  exact.forward();
  exact.backward();
  std::vector<double> before;
  for (const int parts : {1, 2, 3}) {
    Case c = Case::random(sizes, all_of(Scalar::f32, order));
    c.factor = Factor(Scalar::bf16, parts);
    c.forward();
    c.backward();
    std::vector<double> errors;
    for (const auto& [result, reference] :
         {std::pair{&c.out, &exact.out}, {&c.dq, &exact.dq}, {&c.dk, &exact.dk}, {&c.dv, &exact.dv}}) {
      const std::vector<double> want = reference->values(), have = result->values();
      double error = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        error += (have[i] - want[i]) * (have[i] - want[i]);
        size += want[i] * want[i];
      }
      errors.push_back(std::sqrt(error / size));
    }
    for (std::size_t i = 0; i < errors.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << parts << " parts, result " << i);
      // Each part adds 8 bits, so 256 times less is lost. An eighth of that remains for the roundings in f32.
      if (parts == 2) {
        EXPECT_LT(errors[i], before[i] / 32);
      }
      if (parts == 3) {
        EXPECT_LT(errors[i], 16 * unit_roundoff(Scalar::f32));
      }
    }
    before = errors;
  }
}

TEST(AttentionFactors, WithMorePartsAreCloserToTheExactProducts) {
  for (const SumOrder order : {SumOrder::chain, SumOrder::tile}) {
    expect_nearer_in_more_parts({4, 2, 64, {300}}, order);
    expect_nearer_in_more_parts({4, 2, 64, {300}, 50, 3}, order);
  }
}

struct AttentionPartsOrder : ::testing::TestWithParam<SumOrder> {};

TEST_P(AttentionPartsOrder, GivesTheSameBitsOnEveryThreadCountInstructionSetAndTile) {
  for (const Sizes& sizes :
       {Sizes{4, 2, 34, {140, 7}}, Sizes{2, 1, 24, {530, 20}, 13, 3}, Sizes{2, 1, 24, {530, 20}}}) {
    const Formats formats = all_of(Scalar::f32, GetParam());
    Case first = Case::random(sizes, formats);
    first.factor = Factor(Scalar::bf16, 3);
    first.forward({Simd::avx2, 1});
    first.backward({Simd::avx2, 1});
    for (const int threads : mantissa::testing::thread_counts()) {
      Case second = Case::random(sizes, formats);
      second.factor = first.factor;
      second.forward({best_simd(), threads});
      second.backward({best_simd(), threads});
      for (const auto member : {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv})
        EXPECT_TRUE(same_bits(first.*member, second.*member)) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, AttentionPartsOrder, ::testing::Values(SumOrder::chain, SumOrder::tile),
                         name_of_order);

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_formats_test
