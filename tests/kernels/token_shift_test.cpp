// Token shift of a sequence that is divided into calls: mixtures and gradients have the bits of one call.
#include "mantissa/kernels/token_shift.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/row_testing.h"

namespace mantissa::kernels::token_shift_test {
namespace {

using testing::Batch;
using testing::contexts;
using testing::describe;
using testing::Tensor;

/// Two mixtures of a sequence of 40 tokens, and of one of 9 that has no other part.
struct Problem {
  Problem(Scalar format, Scalar arithmetic, std::int64_t width)
      : channels(width),
        f64(arithmetic == Scalar::f64),
        x(format, 49, width, 2),
        mix(2, Tensor(arithmetic, 1, width)),
        dy(2, x),
        mixed(2, x),
        dx(arithmetic, 49, width) {
    std::mt19937 random(testing::kSeed);
    x.fill_normal(random);
    for (Tensor& t : mix) t.fill_normal(random);
    for (Tensor& t : dy) t.fill_normal(random);
  }

  TokenShift forward() {
    mix_in = {mix[0], mix[1]};
    mixed_out = {mixed[0], mixed[1]};
    return {channels, x, mix_in, mixed_out};
  }
  TokenShiftBackward backward() {
    mix_in = {mix[0], mix[1]};
    dy_in = {dy[0], dy[1]};
    return {channels, mix_in, dy_in, dx, f64};
  }

  std::int64_t channels;
  bool f64;
  Tensor x;
  std::vector<Tensor> mix, dy, mixed;
  Tensor dx;
  std::vector<ConstMatrix> mix_in, dy_in;
  std::vector<Matrix> mixed_out;
};

struct Formats {
  Scalar format, arithmetic;
};

class TokenShiftParts : public ::testing::TestWithParam<Formats> {};

INSTANTIATE_TEST_SUITE_P(Formats, TokenShiftParts,
                         ::testing::Values(Formats{Scalar::f32, Scalar::f32},
                                           Formats{Scalar::bf16, Scalar::f32},
                                           Formats{Scalar::f64, Scalar::f64}),
                         [](const auto& info) { return std::string(name(info.param.format)); });

TEST_P(TokenShiftParts, HaveTheBitsOfOneCall) {
  constexpr std::int64_t kTokens = 40, kOther = 9;
  const auto [format, arithmetic] = GetParam();
  for (const std::int64_t channels : {7, 1100}) {
    Problem whole(format, arithmetic, channels);
    const std::vector<Segment> segments = {{0, kTokens}, {kTokens, kOther}};
    const Extent extent{kTokens + kOther, {}, segments};
    token_shift(contexts().front(), extent, whole.forward());
    token_shift_backward(contexts().front(), extent, whole.backward());
    for (const Context& ctx : contexts()) {
      for (const std::int64_t first : {1, 16, 39}) {
        SCOPED_TRACE(fmt::format("{}, {} channels, {} tokens first", describe(ctx), channels, first));
        Problem parts(format, arithmetic, channels);
        Tensor before(format, 2, channels), after(arithmetic, 2, channels);
        for (std::int64_t c = 0; c < channels; ++c) before.set(1, c, parts.x.get(first - 1, c));
        const Tensor untouched = after;
        TokenShift forward = parts.forward();
        forward.before = before;
        const std::vector<Segment> divided = {
            {0, first, 0, 1}, {first, kTokens - first, first, 1}, {kTokens, kOther, 0, 0}};
        const Extent late{kTokens + kOther, {}, std::span(divided).subspan(1)},
            early{kTokens + kOther, {}, std::span(divided).first(1)};
        token_shift(ctx, late, forward);
        forward.before = {};
        token_shift(ctx, early, forward);
        TokenShiftBackward backward = parts.backward();
        token_shift_backward(ctx, late, backward);
        token_shift_first(ctx, backward, first, after, 1);
        for (std::int64_t c = 0; c < channels; ++c) ASSERT_EQ(after.get(0, c), untouched.get(0, c));
        const std::vector<std::int64_t> after_rows = {1};
        backward.after = after;
        backward.after_rows = after_rows;
        token_shift_backward(ctx, early, backward);
        for (const int j : {0, 1}) ASSERT_EQ(parts.mixed[j], whole.mixed[j]) << j;
        ASSERT_EQ(parts.dx, whole.dx);
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::token_shift_test
