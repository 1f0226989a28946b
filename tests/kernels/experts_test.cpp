// The router's kernels: their order of operations on every instruction set and number of threads, ties, and
// logits that are not numbers.
#include "mantissa/kernels/experts.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/row_testing.h"

namespace mantissa::kernels::experts_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::Tensor;

struct Routed {
  Tensor weights;
  std::vector<std::int32_t> choice;
};

Routed route_all(const Context& ctx, const Tensor& logits, std::int64_t chosen, bool normalized,
                 Scalar interior = Scalar::f64) {
  Routed r{Tensor(logits.type, logits.rows, chosen),
           std::vector<std::int32_t>(static_cast<std::size_t>(logits.rows * chosen))};
  route(ctx, logits.rows, {logits.columns, chosen, normalized, logits, r.weights, r.choice.data(), interior});
  return r;
}

TEST(Router, HasTheSameBitsOnEveryInstructionSetAndNumberOfThreads) {
  constexpr std::int64_t kTokens = 700, kExperts = 37, kChosen = 3, kWidth = 45;
  std::mt19937 random(testing::kSeed);
  for (const Scalar type : {Scalar::f32, Scalar::f64}) {
    Tensor logits(type, kTokens, kExperts), x(Scalar::bf16, kTokens * kChosen, kWidth),
        dy(type, kTokens, kWidth), dweights(type, kTokens, kChosen);
    for (Tensor* t : {&logits, &x, &dy, &dweights}) t->fill_normal(random);
    for (const bool normalized : {false, true}) {
      std::vector<Tensor> first;
      for (const Context& ctx : contexts()) {
        SCOPED_TRACE(describe(ctx));
        const Routed r = route_all(ctx, logits, kChosen, normalized);
        Tensor y(Scalar::bf16, kTokens, kWidth), dx(type, kTokens * kChosen, kWidth),
            dw(type, kTokens, kChosen), dlogits(type, kTokens, kExperts);
        combine(ctx, kTokens, {kChosen, kWidth, x, r.weights, y});
        combine_dx(ctx, kTokens, {kChosen, kWidth, dy, r.weights, dx});
        combine_dweights(ctx, kTokens, {kChosen, kWidth, dy, x, dw});
        route_backward(
            ctx, kTokens,
            {kExperts, kChosen, normalized, dweights, r.weights, r.choice.data(), logits, dlogits});
        std::vector<Tensor> now = {r.weights, y, dx, dw, dlogits};
        if (first.empty()) first = now;
        for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], first[i]) << i;
      }
    }
  }
}

TEST(Router, TakesTheLowerOfEqualExpertsAndWritesThemAscending) {
  Tensor logits(Scalar::f32, 1, 6);
  for (const auto& [expert, value] : {std::pair(0, 1.0), {1, 3.0}, {2, 2.0}, {3, 2.0}, {4, 3.0}, {5, 2.0}})
    logits.set(0, expert, value);
  EXPECT_EQ(route_all({}, logits, 3, true).choice, (std::vector<std::int32_t>{1, 2, 4}));
  logits.set(0, 5, 9);
  EXPECT_EQ(route_all({}, logits, 3, true).choice, (std::vector<std::int32_t>{1, 4, 5}));
}

TEST(Router, RoundsLogitsToTheFormatOfItsInterior) {
  Tensor logits(Scalar::f32, 1, 3);
  for (const auto& [expert, value] : {std::pair(0, 1.0), {1, 1.001}, {2, 0.0}}) logits.set(0, expert, value);
  EXPECT_EQ(route_all({}, logits, 1, false).choice.front(), 1);
  const Routed coarse = route_all({}, logits, 2, true, Scalar::bf16);
  EXPECT_EQ(coarse.choice, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(coarse.weights.get(0, 0), 0.5) << "1.001 is 1 in bf16";
  EXPECT_EQ(route_all({}, logits, 1, false, Scalar::bf16).choice.front(), 0);
}

TEST(Router, ChoosesDifferentExpertsAlsoForValuesThatAreNotNumbers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  for (const double odd : {kNan, kInf, -kInf}) {
    Tensor logits(Scalar::f32, 2, 4);
    for (const int e : {0, 1, 2, 3}) {
      logits.set(0, e, odd);
      logits.set(1, e, e == 2 ? odd : 0.0);
    }
    const Routed r = route_all({}, logits, 3, false);
    for (const std::size_t t : {0, 3}) {
      EXPECT_GE(r.choice[t], 0);
      EXPECT_LT(r.choice[t], r.choice[t + 1]);
      EXPECT_LT(r.choice[t + 1], r.choice[t + 2]);
      EXPECT_LT(r.choice[t + 2], 4);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::experts_test
