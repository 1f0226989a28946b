// The recurrence of a sequence that is divided into calls: forward from the first one, backward from the last
// one. Outputs, states and gradients have the bits of one call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/recurrence_problem.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/kernels/recurrence.h"

namespace mantissa::kernels::recurrence_parts_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::RecurrenceCase;
using testing::RecurrenceProblem;
using testing::Tensor;

/// A sequence of 40 tokens, and one of 9 that has no other part.
constexpr std::int64_t kTokens = 40, kOther = 9;

class RecurrenceParts : public ::testing::TestWithParam<RecurrenceCase> {
 protected:
  static RecurrenceProblem problem() {
    RecurrenceCase c = GetParam();
    c.lengths = {kTokens, kOther};
    RecurrenceProblem p(c);
    p.batch.segments = {{0, kTokens, 0, 1, 77}, {kTokens, kOther, 0, 0, 78}};
    return p;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, RecurrenceParts,
    ::testing::Values(RecurrenceCase{{2, 64, 64}}, RecurrenceCase{{3, 6, 20}},
                      RecurrenceCase{{2, 16, 16}, Scalar::f64, Scalar::f64},
                      RecurrenceCase{{1, 5, 7}, Scalar::f64, Scalar::f64},
                      RecurrenceCase{{2, 64, 64}, Scalar::bf16},
                      RecurrenceCase{{2, 32, 48}, Scalar::f16, Scalar::f32, true},
                      RecurrenceCase{{2, 32, 32}, Scalar::f32, Scalar::f32, false, Scalar::bf16},
                      RecurrenceCase{
                          .shape = {3, 8, 20}, .kept = Scalar::bf16, .rounding = {Rounding::stochastic, 5}}),
    [](const auto& info) {
      const RecurrenceCase& c = info.param;
      return fmt::format("{}x{}x{}_{}{}{}{}", c.shape.heads, c.shape.key_dim, c.shape.value_dim,
                         name(c.format), c.head_decay ? "_head_decay" : "",
                         c.kept == Scalar::f64 ? std::string() : fmt::format("_state_{}", name(c.kept)),
                         c.rounding.rounding == Rounding::stochastic ? "_stochastic" : "");
    });

TEST_P(RecurrenceParts, HaveTheBitsOfOneCall) {
  RecurrenceProblem whole = problem();
  const std::int64_t state = whole.of.shape.state();
  const Context plain = contexts().front();
  Recurrence forward = whole.call();
  forward.initial = whole.initial;
  whole.forward(plain, forward);
  RecurrenceBackward backward = whole.backward_call();
  backward.initial = whole.initial;
  backward.dinitial = whole.dinitial;
  whole.backward(plain, backward);

  for (const Context& ctx : contexts()) {
    for (const std::int64_t first : {1, 16, 23, 39}) {
      SCOPED_TRACE(fmt::format("{}, {} tokens first", describe(ctx), first));
      RecurrenceProblem parts = problem();
      // A state that is kept in fewer bits loses none in them.
      const Scalar kept = parts.of.kept == Scalar::f64 ? parts.of.arithmetic : parts.of.kept;
      Tensor between(kept, 3, state), dbetween(parts.of.arithmetic, 3, state);
      for (std::int64_t i = 0; i < state; ++i) dbetween.set(0, i, 0);  // nothing follows the other sequence
      const Tensor untouched = between;
      const Segment early{0, first, 0, 1, 77}, late{first, kTokens - first, first, 1, 77},
          other{kTokens, kOther, 0, 0, 78};
      Recurrence c = parts.call();
      c.initial = parts.initial;
      c.state = between;
      parts.batch.segments = {early};
      parts.forward(ctx, c);
      for (const std::int64_t slot : {0, 2}) {
        for (std::int64_t i = 0; i < state; ++i) ASSERT_EQ(between.get(slot, i), untouched.get(slot, i));
      }
      c.state = {};
      c.before = between;
      parts.batch.segments = {late, other};
      parts.forward(ctx, c);
      ASSERT_EQ(parts.y, whole.y);

      RecurrenceBackward b = parts.backward_call();
      b.initial = parts.initial;
      b.dinitial = parts.dinitial;
      b.before = between;
      b.dbefore = dbetween;
      parts.batch.segments = {late};
      parts.backward(ctx, b);
      b.dbefore = {};
      b.dafter = dbetween;
      parts.batch.segments = {early, other};
      parts.backward(ctx, b);
      for (std::size_t i = 0; i < whole.gradients().size(); ++i)
        ASSERT_EQ(*parts.gradients()[i], *whole.gradients()[i]) << i;
      ASSERT_EQ(parts.dinitial, whole.dinitial);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::recurrence_parts_test
