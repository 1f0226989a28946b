// The recipes of formats with scales in a plan: which copies share scales, round stochastically or are
// transformed.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/plan/planned.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/rounding_points.h"

namespace mantissa::plan::recipe_test {
namespace {

Program plan_of(const char* line) {
  return plan_for(precision::Policy::parse(line));
}

/// The inputs of products with weights, with the op's id and the operand's name.
template <class See>
void each_factor(const Program& p, const See& see) {
  for (const Step& s : p.steps) {
    if (s.op->op != "matmul") continue;
    for (std::size_t i = 0; i < 2; ++i) see(s, s.op->operands[i], p.buffer(s.inputs[i].buffer));
  }
}

TEST(Recipe, SquareScalesAreThoseOfWeightsAndLongOnesThoseOfActivations) {
  const Program p =
      plan_of("bf16-mixed compute=mxfp8 weight_block=128x128 activation_block=1x128 scale_rounding=rceil");
  each_factor(p, [](const Step& s, std::string_view, const Buffer& b) {
    EXPECT_EQ(b.scaled->scaling, (BlockScaling{ScaleRounding::rceil, 128, b.home == Home::copy})) << s.op->id;
  });
  each_factor(plan_of("bf16-mixed compute=nvfp4 weight_block=16x16 scale_rounding=rceil"), [](const Step& s,
                                                                                              std::
                                                                                                  string_view,
                                                                                              const Buffer&
                                                                                                  b) {
    const bool weight = b.home == Home::copy;
    EXPECT_EQ(b.scaled->scaling, (BlockScaling{ScaleRounding::floor, weight ? 16 : 0, weight})) << s.op->id;
  });
}

/// Elements times scales in f32 are f32 values, whose products are summed in chain order. Both products with
/// a weight read one copy, since its squares have one scale in both directions.
TEST(Recipe, ScalesInF32AreThoseOfValuesInF32) {
  const Program p =
      plan_of("bf16-mixed compute=mxfp8 weight_block=128x128 activation_block=1x128 scale_rounding=none");
  std::set<std::string> copies;
  each_factor(p, [&](const Step& s, std::string_view, const Buffer& b) {
    EXPECT_EQ(b.scaled->scaling, (BlockScaling{ScaleRounding::none, 128, b.home == Home::copy})) << s.op->id;
    EXPECT_EQ(b.layout(), Layout{Scalar::f32}) << s.op->id;
    EXPECT_EQ(s.accumulator.order, SumOrder::chain) << s.op->id;
    if (b.home == Home::copy && b.name.find("layers.0.mlp.down_proj") != std::string::npos)
      copies.insert(b.name);
  });
  EXPECT_EQ(copies.size(), 1U);
  EXPECT_EQ(find_row(plan_rows(p), "model.layers.0.mlp.down_proj", "quantize").kernel,
            "quantize, scales in f32, 128 elements a scale");
  const std::vector<RoundingPoint> points = rounding_points(p);
  const auto weights = std::ranges::count(points, RoundingKind::weight, &RoundingPoint::kind);
  EXPECT_GE(weights, 7) << "a point for each linear layer";
}

TEST(Recipe, ScalesOfRowsAreThoseOfAllElementsOfASum) {
  const Program p =
      plan_of("bf16-mixed compute=mxfp8 weight_block=row activation_block=row scale_rounding=rceil");
  each_factor(p, [](const Step& s, std::string_view, const Buffer& b) {
    EXPECT_EQ(b.scaled->scaling, (BlockScaling{ScaleRounding::rceil, kWholeSum, false})) << s.op->id;
  });
  EXPECT_EQ(find_row(plan_rows(p), "model.layers.0.mlp.down_proj", "quantize").kernel,
            "quantize, scales by rceil, a scale for each sum");
}

TEST(Recipe, GradientsAloneRoundStochastically) {
  for (const char* line :
       {"bf16-mixed compute=nvfp4 gradient_rounding=stochastic", "fp8-hybrid gradient_rounding=stochastic"}) {
    const Program p = plan_of(line);
    each_factor(p, [](const Step& s, std::string_view operand, const Buffer& b) {
      EXPECT_EQ(b.scaled->stochastic, operand == "gradient") << s.op->id << " " << operand;
    });
    std::set<std::uint64_t> names;
    std::size_t stochastic = 0;
    for (const Step& s : p.steps) {
      if (s.op->id != "quantize") continue;
      EXPECT_EQ(s.rounding == Rounding::stochastic, p.buffer(s.outputs[0]).scaled->stochastic);
      if (s.rounding != Rounding::stochastic) continue;
      names.insert(s.random_name);
      ++stochastic;
    }
    EXPECT_GT(stochastic, 0U);
    EXPECT_EQ(names.size(), stochastic) << "each copy has random bits of its own";
  }
}

TEST(Recipe, HadamardTransformsBothFactorsOfWeightGradients) {
  const Program p = plan_of("bf16-mixed compute=nvfp4 hadamard=16; *.down_proj: hadamard=none");
  each_factor(p, [](const Step& s, std::string_view operand, const Buffer& b) {
    EXPECT_EQ(b.scaled->hadamard, s.op->id == "matmul.dw" && !s.scope.ends_with("down_proj"))
        << s.scope << " " << s.op->id << " " << operand;
  });
  std::set<std::string> kernels;
  for (const PlanRow& row : plan_rows(p)) {
    if (row.op == "quantize") kernels.insert(row.kernel);
  }
  EXPECT_EQ(kernels, (std::set<std::string>{"quantize", "quantize, Hadamard over 16 tokens"}));
}

std::string error_of(const char* line) {
  try {
    plan_of(line);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

TEST(Recipe, OfOneTransformedFactorIsAnError) {
  EXPECT_NE(
      error_of("bf16-mixed compute=nvfp4 hadamard=16; *.up_proj: operand=gradient compute=bf16")
          .find("up_proj: hadamard=16 transforms both factors of a weight gradient: expected blocks in both, "
                "got none in the gradient. Fix: a rule"),
      std::string::npos);
  EXPECT_EQ(error_of("bf16-mixed compute=nvfp4 hadamard=16; *.up_proj: compute=bf16"), "")
      << "without blocks nothing is transformed";
}

TEST(Recipe, OfSquaresSmallerThanABlockIsAnError) {
  EXPECT_NE(
      error_of("bf16-mixed compute=mxfp8 weight_block=16x16")
          .find("weight_block=16x16: expected a format with blocks of 16 elements, got mxfp8 with 32. Fix: "
                "weight_block=32x32, or compute=nvfp4"),
      std::string::npos);
}

TEST(Recipe, IsShownWhereCopiesAreWritten) {
  const std::vector<PlanRow> rows =
      plan_rows(plan_of("bf16-mixed compute=mxfp8 scale_rounding=rceil activation_block=1x128"));
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.down_proj", "quantize").kernel,
            "quantize, scales by rceil, 128 elements a scale");
}

}  // namespace
}  // namespace mantissa::plan::recipe_test
