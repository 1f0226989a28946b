// The programs of pointwise ops, and their errors.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "engine/graph/net.h"
#include "kernels/reference/expression_text.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph::testing::pointwise_ops_test {
namespace {

/// The program of `op` for operands [tokens, 4].
std::string program(std::string_view op, std::size_t inputs, const Attributes& attributes = {}) {
  Graph graph;
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < inputs; ++i)
    ids.push_back(graph.add_value({.name = "x", .shape = Shape::tokens(8, {4})}));
  return kernels::reference::text_of(find_op(op).expression({graph, ids, attributes}));
}

TEST(PointwiseOps, AreTheirFormulas) {
  EXPECT_EQ(program("add", 2), "out0 = in0 + in1");
  EXPECT_EQ(program("mul", 2), "out0 = in0 * in1");
  EXPECT_EQ(program("scale", 1, {{"factor", 1.5}}), "out0 = in0 * 1.5");
  EXPECT_EQ(program("sum", 3), "out0 = in0 + in1 + in2");
  EXPECT_EQ(program("cast", 1), "out0 = in0");
  EXPECT_EQ(program("relu_squared", 1), "t0 = relu(in0); out0 = t0 * t0");
  EXPECT_EQ(program("swiglu", 2), "out0 = in0 * sigmoid(in0) * in1");
  EXPECT_EQ(program("swiglu.grad", 3),
            "t0 = sigmoid(in0); out0 = fma(in0, 1 - t0, 1) * t0 * in1 * in2; out1 = in0 * t0 * in2");
  EXPECT_EQ(program("swiglu", 2, {{"limit", 7.0}}),
            "t0 = min(in0, 7); out0 = t0 * sigmoid(t0) * max(min(in1, 7), -7)");
  EXPECT_EQ(program("gelu_tanh", 1),
            "out0 = in0 * sigmoid(in0 * fma(in0 * in0, 0.07135481627260025, 1.5957691216057308))");
  EXPECT_EQ(program("gelu_erf", 1), "out0 = in0 * normal_cdf(in0)");
  EXPECT_EQ(program("quick_gelu", 1), "out0 = in0 * sigmoid(in0 * 1.702)");
}

/// Φ(x) has 6.5 units, of at most 2^-23, and the product half of one.
TEST(PointwiseOps, GeluByDefinitionKeepsItsRelativeAccuracyFarLeft) {
  Graph graph;
  const ValueId x = graph.add_value({.name = "x", .shape = Shape::tokens(8, {4})});
  const std::vector<ValueId> ids = {x};
  const kernels::Expression gelu = find_op("gelu_erf").expression({graph, ids, {}});
  std::vector<float> in, out(1000);
  for (int i = 0; i < 1000; ++i) in.push_back(-12.5F + 0.0125F * static_cast<float>(i));
  const kernels::PointwiseInput from{in.data(), Scalar::f32};
  const kernels::PointwiseOutput to{out.data(), Scalar::f32};
  kernels::pointwise({.simd = kernels::best_simd()}, gelu, 1, 1000, {&from, 1}, {&to, 1});
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = in[i] / 2.0 * std::erfc(-in[i] / std::numbers::sqrt2);
    EXPECT_NEAR(out[i], exact, 7 * 0x1p-23 * std::abs(exact)) << in[i];
  }
}

/// Scales of tensors and random numbers are keyed by the names of values.
TEST(Graph, GivesEveryValueAUniqueName) {
  Net n;
  const ValueId x = n.trained("x");
  const ValueId y = n.b.mul("att", n.b.mul("att", x, x), x);
  EXPECT_EQ(n.graph.value(n.graph.node(n.graph.value(y).producer).inputs[0]).name, "att.mul");
  EXPECT_EQ(n.graph.value(y).name, "att.mul#2");
  const Graph whole = n.finish(y);
  std::set<std::string> names;
  for (const Value& v : whole.values()) EXPECT_TRUE(names.insert(v.name).second) << v.name;
}

TEST(PointwiseOps, NameOperandsOfOtherShapes) {
  Net n;
  const ValueId x = n.trained("x");
  const ValueId narrow = n.weight("narrow.bias", {kNetWidth - 1});
  try {
    n.b.add("add", x, narrow);
    ADD_FAILURE() << "taken";
  } catch (const ShapeError& e) {
    EXPECT_NE(std::string(e.what()).find("\"narrow.bias\" is [7]"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("or be [8]"), std::string::npos) << e.what();
  }
  EXPECT_THROW(n.b.swiglu("act", x, n.trained("y", kNetWidth - 1)), ShapeError);
}

TEST(PointwiseOps, RefuseTheGradientOfABroadcastThatIsNotAParameter) {
  Net n;
  const ValueId gain = n.b.mul("gain", n.weight("a", {kNetWidth}), n.weight("b", {kNetWidth}));
  const ValueId y = n.b.mul("mul", n.trained("x"), gain);
  EXPECT_THROW(n.finish(y), InternalError);
}

}  // namespace
}  // namespace mantissa::graph::testing::pointwise_ops_test
