// Compares every registered op with its reference in double. An op without a row in op_rows.h fails here.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "engine/graph/op_rows.h"

namespace mantissa::graph::testing::op_test {
namespace {

using kernels::testing::contexts;
using kernels::testing::describe;

const std::vector<OpRow>& rows() {
  static const std::vector<OpRow> all = op_rows();
  return all;
}

/// Uniform and mixed formats: factors rounded while loading, factors wider than storage.
constexpr Formats kFormats[] = {
    {Scalar::f64, Scalar::f64, Scalar::f64},   {Scalar::f32, Scalar::f32, Scalar::f32},
    {Scalar::f32, Scalar::bf16, Scalar::bf16}, {Scalar::f32, Scalar::f16, Scalar::f16},
    {Scalar::f32, Scalar::f32, Scalar::tf32},  {Scalar::f32, Scalar::f32, Scalar::bf16},
    {Scalar::f32, Scalar::bf16, Scalar::f32},
};

/// One token; rows of unequal length with two in a leaf; more tokens than a block of sums, in two leaves.
const Rows kRows[] = {{{1}, 1}, {{3, 1, 5, 2}, 2}, {{300, 270}, 1}};

std::string label(const OpRow& row, const Formats& f, const Rows& r) {
  return fmt::format("{} {} arithmetic {} storage {} compute {} rows {}", row.id, row.label,
                     name(f.arithmetic), name(f.storage), name(f.compute), r.lengths.size());
}

/// Both sums, the kernel's and the reference's own in f64, are chains of the same length; then one rounding
/// as the result is stored. Results below the smallest normal number are off by half of the smallest one.
void expect_near(const Case& c, const Operands& want, const Operands& size, const Bound& bound,
                 const std::vector<Tensor>& got, double times) {
  const double interior = bound.chain * (unit_roundoff(c.formats().arithmetic) + unit_roundoff(Scalar::f64)) +
                          bound.factors * unit_roundoff(c.formats().compute);
  for (std::size_t o = 0; o < want.size(); ++o) {
    if (times != 1 && !c.is_weight_gradient(o)) continue;
    const std::vector<double> values = got[o].values();
    for (std::size_t e = 0; e < values.size(); ++e) {
      const double magnitude = bound.magnitude.empty() ? std::abs(size[o].values[e]) : bound.magnitude[o];
      const double expected = times * want[o].values[e];
      const double again =
          times > 1 ? unit_roundoff(c.formats().arithmetic) : 0;  // of adding to what is there
      const double error = times * (interior + again) * magnitude;
      const double tolerance =
          error + kernels::testing::rounding_error(got[o].type, std::abs(expected) + error);
      ASSERT_NEAR(values[e], expected, tolerance) << "output " << o << " element " << e;
    }
  }
}

class Op : public ::testing::TestWithParam<std::size_t> {
 protected:
  const OpRow& row() const { return rows()[GetParam()]; }
};

TEST_P(Op, AgreesWithItsReference) {
  for (const Formats& f : kFormats) {
    for (const Rows& r : kRows) {
      SCOPED_TRACE(label(row(), f, r));
      const Case c(row(), f, r, kernels::testing::kSeed);
      ASSERT_NE(reference_of(c.op()), nullptr);
      const kernels::Context ctx{.simd = kernels::best_simd()};
      const Bound bound = row().bound(c);
      const Operands want = c.reference(c.inputs());
      const Operands size = bound.magnitude.empty() ? c.reference(c.absolute_inputs()) : Operands{};
      ASSERT_NO_FATAL_FAILURE(expect_near(c, want, size, bound, c.run(ctx), 1));
      // Weight gradients added to existing ones: twice the sum.
      if (c.op().alias == kNone) {
        ASSERT_NO_FATAL_FAILURE(expect_near(c, want, size, bound, c.run(ctx, true), 2));
      }
    }
  }
}

TEST_P(Op, GivesTheSameBytesOnEveryInstructionSetAndThreadCount) {
  for (const Formats& f : {kFormats[0], kFormats[1], kFormats[2]}) {
    for (const Rows& r : kRows) {
      SCOPED_TRACE(label(row(), f, r));
      const Case c(row(), f, r, kernels::testing::kSeed + 1);
      const std::vector<Tensor> first = c.run({.simd = kernels::best_simd()});
      for (kernels::Context ctx : contexts()) {
        if (ctx.threads == 5) ctx.threads = 3;
        ASSERT_TRUE(c.run(ctx) == first) << describe(ctx);
      }
    }
  }
}

TEST_P(Op, GivesTheSameBytesFromAndToRowsWithGaps) {
  for (const Formats& f : kFormats) {
    for (const Rows& r : kRows) {
      SCOPED_TRACE(label(row(), f, r));
      const Case c(row(), f, r, kernels::testing::kSeed + 2);
      if (c.op().strided.inputs == 0 && c.op().strided.outputs == 0) return;
      for (const kernels::Context& ctx : contexts()) {
        if (ctx.threads != 2) continue;
        const std::vector<Tensor> dense = c.run(ctx);
        ASSERT_TRUE(c.run(ctx, false, 7) == dense) << describe(ctx);
        ASSERT_TRUE(c.run(ctx, false, 64) == dense) << describe(ctx);
      }
    }
  }
}

/// Ranks that share rows run such ops together, and all others apart.
TEST_P(Op, SaysIfItsResultsDependOnOtherTokens) {
  constexpr std::int64_t kTokens = 19, kToken = 7;
  const Case c(row(), kFormats[0], {{4, 1, 6, 8}, 2}, kernels::testing::kSeed + 3);
  const std::vector<InputSpec> specs = row().inputs(kTokens, 4);
  Operands changed = c.inputs();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].shape.has_tokens() || specs[i].stored == Stored::ids) continue;
    const std::size_t width = changed[i].values.size() / kTokens;
    for (std::size_t e = kToken * width; e < (kToken + 1) * width; ++e) changed[i].values[e] *= 1.5;
  }
  const Operands before = c.reference(c.inputs()), after = c.reference(changed);
  bool of_tokens = false, couples = false;
  for (std::size_t o = 0; o < before.size(); ++o) {
    if (before[o].rows % kTokens != 0) continue;
    of_tokens = true;
    const std::size_t width = before[o].values.size() / kTokens;
    for (std::size_t e = 0; e < before[o].values.size(); ++e) {
      const bool other = e / width != kToken;
      couples = couples || (other && before[o].values[e] != after[o].values[e]);
    }
  }
  const bool cached = row().attributes.integer("slots", 0) > 0;  // other tokens are in a cache
  if (of_tokens && !cached) {
    EXPECT_EQ(couples, c.op().passed != Passed::nothing);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Op, ::testing::Range(std::size_t{0}, rows().size()), [](const auto& info) {
  std::string text = rows()[info.param].id + rows()[info.param].label;
  std::replace(text.begin(), text.end(), '.', '_');
  return text;
});

TEST(Registry, OpsOfGradientsAreKnownByTheirIds) {
  for (const char* id : {"matmul.dx", "matmul.dw", "attention.grad", "rmsnorm.dgain", "combine.dweights"})
    EXPECT_TRUE(is_of_gradients(id)) << id;
  for (const char* id : {"", "matmul", "decay", "matmul.product", "recurrence.decode", "token_shift.carry"})
    EXPECT_FALSE(is_of_gradients(id)) << id;
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(op->gradient == nullptr || !is_of_gradients(op->id)) << op->id;
  }
}

TEST(Registry, EveryOpHasARowAndAReference) {
  for (const OpDef* op : all_ops()) {
    const bool found =
        std::any_of(rows().begin(), rows().end(), [&](const OpRow& r) { return r.id == op->id; });
    EXPECT_TRUE(found) << op->id << " is not tested: give it a row in op_rows.h";
    EXPECT_NE(reference_of(*op), nullptr) << op->id << ": give it one in references/";
    EXPECT_FALSE(op->doc.empty()) << op->id;
    EXPECT_EQ(&find_op(op->id), op) << op->id << " is there twice";
  }
}

}  // namespace
}  // namespace mantissa::graph::testing::op_test
