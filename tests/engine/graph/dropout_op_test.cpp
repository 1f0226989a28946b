// Dropout: the op's rows, reference and gradient, and that only steps with a backward pass drop.
#include <gtest/gtest.h>

#include "engine/graph/added_op.h"
#include "engine/graph/net.h"
#include "engine/graph/op_sizes.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/philox.h"

namespace mantissa::graph::testing::dropout_op_test {
namespace {

constexpr double kRate = 0.25;
constexpr std::int64_t kName = 77;

OpRow row(const char* id) {
  return {
      id,
      "",
      [](std::int64_t t, std::int64_t) -> std::vector<InputSpec> { return {{Shape::tokens(t, {kWidth})}}; },
      [](const Case&) { return Bound{2}; },  // the factor and the product
      {{"rate", kRate}, {"name", kName}}};
}

void drop(const ReferenceCall& c) {
  const std::int64_t width = c.inputs[0].width;
  for (const Segment& s : c.extent.segments) {
    const RandomStream stream(c.extent.seed, RandomUse::dropout, kName, s.sequence);
    for (std::int64_t t = 0; t < s.length; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>((s.begin + t) * width + i);
        const bool drops =
            c.extent.trains &&
            stream.bits(static_cast<std::uint64_t>((s.position + t) * width + i)) < kRate * 0x1p32;
        c.outputs[0].values[at] = drops ? 0 : c.inputs[0].values[at] / (c.extent.trains ? 1 - kRate : 1);
      }
    }
  }
}

const AddedOp kDropoutTests({row("dropout"), row("dropout.grad")},
                            {{"dropout", drop}, {"dropout.grad", drop}},
                            [](std::map<std::string_view, Graph>& all) {
                              Net n;
                              all["dropout"] =
                                  n.finish(n.b.dropout("drop", n.trained("x"), kRate, "dropout"));
                              Net attends;
                              Builder::AttentionOptions options{.heads = 2, .kv_heads = 1};
                              options.dropout = kRate;
                              const ValueId q = attends.trained("q"), k = attends.trained("k", kNetWidth / 2),
                                            v = attends.trained("v", kNetWidth / 2);
                              all["attention with dropout"] =
                                  attends.finish(attends.b.attention("attention", q, k, v, options));
                            });

TEST(DropoutOp, RefusesARateThatIsNone) {
  Net n;
  const ValueId x = n.trained("x");
  EXPECT_EQ(n.b.dropout("drop", x, 0, "dropout"), x);
  for (const double rate : {-0.1, 1.0, 2.0})
    EXPECT_THROW(n.b.dropout("drop", x, rate, "dropout"), ShapeError);
}

}  // namespace
}  // namespace mantissa::graph::testing::dropout_op_test
