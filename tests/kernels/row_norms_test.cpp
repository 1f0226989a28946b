// The norms of an adapted weight's rows: against the reference, and the same bits on every machine.
#include "mantissa/kernels/row_norms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference/row_norms.h"
#include "kernels/row_testing.h"
#include "mantissa/kernels/quantize_matrix.h"

namespace mantissa::kernels {
namespace {

struct Layer {
  std::int64_t out, in, rank;
  bool transposed;
};

class RowNormsOf : public ::testing::TestWithParam<Layer> {
 protected:
  RowNormsOf() {
    const Layer& l = GetParam();
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    for (auto [values, count] : {std::pair{&w, l.out * l.in}, {&a, l.rank * l.in}, {&b, l.out * l.rank}}) {
      for (std::int64_t i = 0; i < count; ++i) values->push_back(normal(generator));
    }
  }
  std::vector<float> norms(const Context& ctx) {
    const Layer& l = GetParam();
    std::vector<float> out(static_cast<std::size_t>(l.out));
    row_norms(ctx, {.out = l.out,
                    .in = l.in,
                    .rank = l.rank,
                    .scale = 0.75,
                    .transposed = l.transposed,
                    .weight = {w.data(), Scalar::f32, l.transposed ? l.out : l.in},
                    .a = {a.data(), Scalar::f32, l.in},
                    .b = {b.data(), Scalar::f32, l.rank},
                    .norms = {out.data(), Scalar::f32, l.out}});
    return out;
  }
  std::vector<float> w, a, b;
};

INSTANTIATE_TEST_SUITE_P(Shapes, RowNormsOf,
                         ::testing::Values(Layer{5, 33, 3, false}, Layer{300, 2100, 8, false},
                                           Layer{33, 5, 3, true}, Layer{1100, 700, 8, true}),
                         [](const auto& i) {
                           const Layer& l = i.param;
                           return fmt::format("{}x{}_rank_{}{}", l.out, l.in, l.rank,
                                              l.transposed ? "_transposed" : "");
                         });

TEST_P(RowNormsOf, AreThoseOfTheFormula) {
  const Layer& l = GetParam();
  const std::vector<double> wd(w.begin(), w.end()), ad(a.begin(), a.end()), bd(b.begin(), b.end());
  std::vector<double> expected(static_cast<std::size_t>(l.out));
  reference::row_norms(l.out, l.in, l.rank, 0.75, l.transposed, wd.data(), ad.data(), bd.data(),
                       expected.data());
  const std::vector<float> got = norms({});
  // Each element has rank + 1 roundings of terms that may cancel, which the sum of squares averages; the sum
  // is a chain of at most 256 terms, or of in / 16, and blocks.
  const double chain = static_cast<double>(l.rank + 1) + 256 + static_cast<double>(l.in) / 256;
  for (std::size_t o = 0; o < got.size(); ++o)
    EXPECT_NEAR(got[o], expected[o], chain * 0x1p-24 * expected[o]) << o;
}

TEST_P(RowNormsOf, HaveTheSameBitsForThreadsAndInstructionSets) {
  const std::vector<float> expected = norms({});
  for (const Context& ctx : testing::contexts()) EXPECT_EQ(norms(ctx), expected) << testing::describe(ctx);
}

TEST_P(RowNormsOf, HaveTheBitsOfTheDequantizedWeight) {
  Layer l = GetParam();
  l.in = l.in / 64 * 64;
  if (l.in == 0) return;
  const auto out = static_cast<std::size_t>(l.out), in = static_cast<std::size_t>(l.in);
  for (const QuantFormat format : {QuantFormat::int8, QuantFormat::nf4, QuantFormat::nf4_double}) {
    std::vector<std::uint8_t> blocks(quant_bytes(format, out, in));
    quantize_matrix({}, {format, out, in, blocks.data()}, std::span(w).first(out * in), l.transposed);
    const QuantRows rows = quant_rows(format, blocks.data(), out, in);
    std::vector<float> values(out * in), output(in);
    for (std::size_t o = 0; o < out; ++o) {
      dequantize(rows, o, 0, in, output.data());
      for (std::size_t i = 0; i < in; ++i) values[l.transposed ? i * out + o : o * in + i] = output[i];
    }
    RowNorms n{.out = l.out,
               .in = l.in,
               .rank = l.rank,
               .scale = 0.75,
               .transposed = l.transposed,
               .weight = {values.data(), Scalar::f32, l.transposed ? l.out : l.in},
               .a = {a.data(), Scalar::f32, l.in},
               .b = {b.data(), Scalar::f32, l.rank},
               .norms = {}};
    std::vector<float> expected(out), got(out);
    n.norms = {expected.data(), Scalar::f32, l.out};
    row_norms({}, n);
    n.weight.data = blocks.data();
    n.quants = QuantizedMatrix{format, l.transposed};
    n.norms.data = got.data();
    for (const Context& ctx : testing::contexts()) {
      row_norms(ctx, n);
      EXPECT_EQ(got, expected) << traits(format).name << testing::describe(ctx);
    }
  }
}

TEST(RowNorms, ARowOfZerosHasAQuotient) {
  const float zeros[4] = {};
  float norm = 0;
  row_norms({}, {.out = 1,
                 .in = 4,
                 .rank = 1,
                 .weight = {zeros, Scalar::f32, 4},
                 .a = {zeros, Scalar::f32, 4},
                 .b = {zeros, Scalar::f32, 1},
                 .norms = {&norm, Scalar::f32, 1}});
  EXPECT_EQ(norm, std::numeric_limits<float>::min());
}

}  // namespace
}  // namespace mantissa::kernels
