// The recurrence: the bits of the header's order of operations on every instruction set, thread count and
// division into calls, errors within the bound of that arithmetic, and gradients that equal the derivative.
#include "mantissa/kernels/recurrence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/recurrence_problem.h"
#include "kernels/reference/recurrence.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::recurrence_test {
namespace {

using testing::contexts;
using testing::describe;
using Case = testing::RecurrenceCase;
using Problem = testing::RecurrenceProblem;
using testing::Tensor;

/// The inputs and reference results of a problem in double.
struct Expected {
  explicit Expected(const Problem& p, bool with_initial = false)
      : r(p.r.values()),
        decay(p.decay.values()),
        k(p.k.values()),
        v(p.v.values()),
        alpha(p.alpha.values()),
        beta(p.beta.values()),
        dy(p.dy.values()),
        initial(p.initial.values()),
        y(v.size()),
        dr(r.size()),
        ddecay(decay.size()),
        dk(r.size()),
        dv(v.size()),
        dalpha(r.size()),
        dbeta(r.size()),
        dinitial(initial.size()) {
    const reference::Recurrence c{p.of.shape,   p.of.head_decay, r.data(),
                                  decay.data(), k.data(),        v.data(),
                                  alpha.data(), beta.data(),     with_initial ? initial.data() : nullptr};
    reference::recurrence(p.batch.extent(), c, y.data());
    reference::recurrence_backward(p.batch.extent(), c, dy.data(),
                                   {dr.data(), ddecay.data(), dk.data(), dv.data(), dalpha.data(),
                                    dbeta.data(), with_initial ? dinitial.data() : nullptr});
  }
  std::vector<double> r, decay, k, v, alpha, beta, dy, initial, y, dr, ddecay, dk, dv, dalpha, dbeta,
      dinitial;
};

/// The root mean square of the errors as a share of that of the values.
double error_of(const Tensor& got, const std::vector<double>& expected) {
  const std::vector<double> values = got.values();
  double error = 0, square = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    square += expected[i] * expected[i];
  }
  return std::sqrt(error / square);
}

class Recurrences : public ::testing::TestWithParam<Case> {};

std::string case_name(const ::testing::TestParamInfo<Case>& i) {
  const Case& c = i.param;
  return fmt::format("{}x{}x{}_{}{}{}", c.shape.heads, c.shape.key_dim, c.shape.value_dim, name(c.format),
                     c.head_decay ? "_head_decay" : "",
                     c.kept == Scalar::f64 ? std::string() : fmt::format("_state_{}", name(c.kept)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Recurrences,
                         ::testing::Values(Case{{2, 64, 64}}, Case{{3, 8, 8}}, Case{{1, 6, 20}},
                                           Case{{2, 128, 40}}, Case{{2, 16, 16}, Scalar::f64, Scalar::f64},
                                           Case{{1, 5, 7}, Scalar::f64, Scalar::f64},
                                           Case{{2, 64, 64}, Scalar::bf16},
                                           Case{{2, 32, 48}, Scalar::f16, Scalar::f32, true},
                                           Case{{2, 32, 32}, Scalar::f32, Scalar::f32, false, Scalar::bf16}),
                         case_name);

TEST_P(Recurrences, AreThoseOfTheFormulas) {
  Problem p(GetParam());
  const Context ctx = contexts().front();
  p.forward(ctx);
  p.backward(ctx);
  const Expected e(p);
  // A value is a chain over keys of products with the state, which sums the errors of the tokens before it
  // (they decay, and the correction does not enlarge them), and it is stored once. A gradient sums as many
  // chains. Errors are independent, so those of n roundings grow as √n.
  const RecurrenceShape& s = p.of.shape;
  const double unit = p.of.arithmetic == Scalar::f64 ? 0x1p-53 : 0x1p-24;
  const double stored = p.of.format == Scalar::bf16 ? 0x1p-9 : p.of.format == Scalar::f16 ? 0x1p-12 : 0;
  const double kept = p.of.kept == Scalar::bf16 ? 0x1p-9 : 0;
  const double tokens = 40, terms = static_cast<double>(std::max(s.key_dim, s.value_dim));
  const double bound = std::sqrt(tokens) * (std::sqrt(terms) * 4 * unit + kept) + stored;
  EXPECT_LT(error_of(p.y, e.y), bound) << "y";
  const std::vector<const std::vector<double>*> expected = {&e.dr, &e.ddecay, &e.dk,
                                                            &e.dv, &e.dalpha, &e.dbeta};
  const char* const names[] = {"dr", "ddecay", "dk", "dv", "dalpha", "dbeta"};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(error_of(*p.gradients()[i], *expected[i]), 2 * bound) << names[i];
}

TEST_P(Recurrences, HaveTheSameBitsForThreadsAndInstructionSets) {
  Problem expected(GetParam());
  expected.forward(contexts().front());
  expected.backward(contexts().front());
  for (const Context& ctx : contexts()) {
    Problem p(GetParam());
    p.forward(ctx);
    p.backward(ctx);
    EXPECT_EQ(p.y, expected.y) << describe(ctx);
    for (std::size_t i = 0; i < p.gradients().size(); ++i)
      EXPECT_EQ(*p.gradients()[i], *expected.gradients()[i]) << describe(ctx) << ", gradient " << i;
  }
}

TEST_P(Recurrences, HaveTheSameBitsTokenByToken) {
  Problem whole(GetParam()), parts(GetParam());
  const RecurrenceShape& shape = whole.of.shape;
  const Context ctx = contexts().back();
  whole.forward(ctx);
  Tensor state(whole.of.arithmetic, 3, shape.state());
  // Pieces of 1, 2, 3, … tokens of each segment in turn, all in slot 2.
  const std::vector<Segment> segments = parts.batch.segments;
  for (const Segment& s : segments) {
    std::int64_t size = 1;
    for (std::int64_t done = 0; done < s.length; ++size) {
      const std::int64_t length = std::min(size, s.length - done);
      parts.batch.segments = {{s.begin + done, length, done, 2}};
      Recurrence c = parts.call();
      c.state = state;
      parts.forward(ctx, c);
      done += length;
    }
  }
  EXPECT_EQ(parts.y, whole.y);
}

TEST_P(Recurrences, BeginWithAnInitialStateThatHasAGradient) {
  if (GetParam().kept != Scalar::f64) GTEST_SKIP() << "the reference does not round the state";
  Problem p(GetParam());
  const Context ctx = contexts().back();
  Recurrence c = p.call();
  c.initial = p.initial;
  p.forward(ctx, c);
  p.backward(ctx, true);
  const Expected e(p, true);
  const double unit = p.of.arithmetic == Scalar::f64 ? 0x1p-53 : 0x1p-24;
  const double stored = p.of.format == Scalar::bf16 ? 0x1p-9 : p.of.format == Scalar::f16 ? 0x1p-12 : 0;
  const double terms = static_cast<double>(std::max(p.of.shape.key_dim, p.of.shape.value_dim));
  const double bound = std::sqrt(40.0) * std::sqrt(terms) * 4 * unit;
  EXPECT_LT(error_of(p.y, e.y), bound + stored);
  EXPECT_LT(error_of(p.dinitial, e.dinitial), 2 * bound);
  Problem again(GetParam());
  const Context other = contexts().front();
  again.forward(other, c);
  again.backward(other, true);
  EXPECT_EQ(again.dinitial, p.dinitial) << "on any instruction set and number of threads";
}

TEST_P(Recurrences, GoOnFromTheStatesOfRowsBeforeAsInOneRow) {
  const std::int64_t first = 17, length = 40;
  Case in_one_row = GetParam();
  in_one_row.lengths = {length};
  Problem whole(in_one_row), parts(in_one_row);
  const Context ctx = contexts().back();
  whole.forward(ctx);
  Tensor before(whole.of.arithmetic, 3, whole.of.shape.state()), after(before);
  for (const Segment& s : {Segment{0, first, 0, 1}, Segment{first, length - first, first, 1}}) {
    parts.batch.segments = {s};
    Recurrence c = parts.call();
    c.before = before;
    c.state = after;
    parts.forward(ctx, c);
    if (s.position == 0) before = after;
  }
  EXPECT_EQ(parts.y, whole.y);
  EXPECT_NE(before, after) << "only the states after a row are replaced";
}

/// The gradient of a row does not depend on whether its first state is an initial one or that of another row.
TEST_P(Recurrences, HaveTheGradientsOfAnInitialStateAfterOtherRows) {
  Problem begins(GetParam()), goes_on(GetParam());
  const Context ctx = contexts().back();
  begins.backward(ctx, true);
  for (Segment& s : goes_on.batch.segments) s.position = 5;
  const Tensor dinitial = goes_on.dinitial;
  goes_on.backward(ctx, true, true);
  for (std::size_t i = 0; i < begins.gradients().size(); ++i)
    EXPECT_EQ(*goes_on.gradients()[i], *begins.gradients()[i]) << i;
  EXPECT_EQ(goes_on.dinitial, dinitial) << "no gradient passes between rows";
}

TEST(Recurrences, RoundAsTheirHeaderSays) {
  const RecurrenceShape shape{1, 5, 20};
  for (const Scalar kept : {Scalar::f64, Scalar::bf16}) {
    Problem p({.shape = shape, .kept = kept, .lengths = {19}});
    p.forward(contexts().back());
    const auto at = [](const Tensor& t, std::int64_t row, std::int64_t i) {
      return static_cast<float>(t.get(row, i));
    };
    float state[5][20] = {};
    for (std::int64_t t = 0; t < 19; ++t) {
      for (std::int64_t i = 0; i < 20; ++i) {
        float s = 0, y = 0;
        for (std::int64_t j = 0; j < 5; ++j) s = std::fma(at(p.alpha, t, j), state[j][i], s);
        for (std::int64_t j = 0; j < 5; ++j) {
          // exp by the C library may differ in the last place; the test takes one where it does not.
          const float w = std::exp(at(p.decay, t, j));
          const float added = std::fma(at(p.beta, t, j), s, at(p.k, t, j) * at(p.v, t, i));
          state[j][i] = static_cast<float>(round_to(std::fma(w, state[j][i], added), kept));
          y = std::fma(at(p.r, t, j), state[j][i], y);
        }
        EXPECT_NEAR(at(p.y, t, i), y, kept == Scalar::f64 ? 19 * 0x1p-23 : 0x1p-6) << t << ", " << i;
      }
    }
  }
}

TEST(Recurrences, ReferenceGradientsAreDerivatives) {
  for (const bool head_decay : {false, true}) {
    Problem p({.shape = {2, 3, 4},
               .format = Scalar::f64,
               .arithmetic = Scalar::f64,
               .head_decay = head_decay,
               .lengths = {3, 7}});
    Expected e(p, true);
    const auto loss = [&] {
      std::vector<double> y(e.y.size());
      reference::recurrence(p.batch.extent(),
                            {p.of.shape, head_decay, e.r.data(), e.decay.data(), e.k.data(), e.v.data(),
                             e.alpha.data(), e.beta.data(), e.initial.data()},
                            y.data());
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * e.dy[i];
      return sum;
    };
    const std::vector<std::pair<std::vector<double>*, std::vector<double>*>> all = {
        {&e.r, &e.dr},       {&e.decay, &e.ddecay},    {&e.k, &e.dk}, {&e.v, &e.dv}, {&e.alpha, &e.dalpha},
        {&e.beta, &e.dbeta}, {&e.initial, &e.dinitial}};
    for (std::size_t which = 0; which < all.size(); ++which) {
      std::vector<double>& values = *all[which].first;
      for (std::size_t i = 0; i < values.size(); i += 5) {
        constexpr double kStep = 1e-5;
        const double x = values[i];
        values[i] = x + kStep;
        const double above = loss();
        values[i] = x - kStep;
        const double below = loss();
        values[i] = x;
        EXPECT_NEAR((above - below) / (2 * kStep), (*all[which].second)[i], 1e-7) << which << ", " << i;
      }
    }
  }
}

TEST(Recurrences, ThatContinueNeedAState) {
  Problem p({.shape = {1, 4, 4}, .lengths = {3}});
  p.batch.segments.front().position = 2;
  EXPECT_THROW(p.forward(contexts().front()), ShapeError);
}

}  // namespace
}  // namespace mantissa::kernels::recurrence_test
