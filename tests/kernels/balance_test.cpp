// The kernels of the load-balancing loss: the same bits on every instruction set and number of threads, and
// in any split into rows' micro-batches.
#include "mantissa/kernels/balance.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/row_testing.h"

namespace mantissa::kernels::balance_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::Tensor;

constexpr std::int64_t kTokens = 700, kExperts = 37, kChosen = 3;
const Row kRows[] = {{0, 300}, {300, 1}, {301, 399}};

struct Inputs {
  std::vector<std::int32_t> choice;
  Tensor logits, other, seeds;

  explicit Inputs(Scalar type)
      : logits(type, kTokens, kExperts), other(type, kTokens, kExperts), seeds(type, kTokens, 1) {
    std::mt19937 random(testing::kSeed);
    for (Tensor* t : {&logits, &other, &seeds}) t->fill_normal(random);
    std::uniform_int_distribution<std::int32_t> expert(0, kExperts - 1);
    for (std::int64_t i = 0; i < kTokens * kChosen; ++i) choice.push_back(expert(random));
  }
};

TEST(Balance, HasTheSameBitsOnEveryInstructionSetAndNumberOfThreads) {
  for (const Scalar type : {Scalar::f32, Scalar::f64}) {
    const Inputs in(type);
    const std::int32_t* const choices[] = {in.choice.data(), in.choice.data()};
    const ConstMatrix logits[] = {in.logits, in.other};
    std::vector<Tensor> first;
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(describe(ctx));
      Tensor share(type, kTokens, kExperts), of_tokens(type, kTokens, 1), dlogits(type, kTokens, kExperts);
      expert_shares(ctx, {kTokens, kRows, {}}, {kExperts, kChosen, choices, share});
      balance(ctx, kTokens, {kExperts, logits, share, of_tokens});
      balance_backward(ctx, kTokens, {kExperts, 0.3, in.seeds, share, in.logits, dlogits});
      const std::vector<Tensor> now = {share, of_tokens, dlogits};
      if (first.empty()) first = now;
      for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], first[i]) << i;
    }
  }
}

TEST(Balance, IsTheNumberOfChosenExpertsIfAllAreChosenEquallyOften) {
  const std::int32_t choice[] = {0, 1, 2, 3};  // two of four experts for each of two tokens
  const std::int32_t* const choices[] = {choice};
  Tensor logits(Scalar::f64, 2, 4), share(Scalar::f64, 2, 4), of_tokens(Scalar::f64, 2, 1);
  logits.set(1, 2, 3.0);
  const Row row[] = {{0, 2}};
  expert_shares({}, {2, row, {}}, {4, 2, choices, share});
  for (const std::int64_t e : {0, 1, 2, 3}) EXPECT_EQ(share.get(1, e), 0.5);
  const ConstMatrix layers[] = {logits};
  balance({}, 2, {4, layers, share, of_tokens});
  EXPECT_NEAR(of_tokens.get(0, 0), 2, 1e-15);
  EXPECT_NEAR(of_tokens.get(1, 0), 2, 1e-15) << "whatever the probabilities are";
}

}  // namespace
}  // namespace mantissa::kernels::balance_test
