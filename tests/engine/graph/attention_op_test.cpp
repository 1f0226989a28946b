// The attention op's settings: those that the builder writes, invalid ones, and the products that count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/builder.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph::attention_op_test {
namespace {

constexpr std::int64_t kTokens = 48, kHeadDim = 6;

/// A graph with one attention op.
struct OneAttention {
  Graph graph;
  ValueId out = kNone;

  explicit OneAttention(const Builder::AttentionOptions& options) {
    Builder b(graph, kTokens);
    const auto value = [&](std::int64_t heads) {
      Value v;
      v.shape = Shape::tokens(kTokens, {heads * kHeadDim});
      return graph.add_value(std::move(v));
    };
    const ValueId q = value(options.heads), k = value(options.kv_heads), v = value(options.kv_heads);
    out = b.attention("attention", q, k, v, options);
  }
  const Node& node() const { return graph.nodes().back(); }
};

TEST(AttentionOp, ScaleIsThatOfTheHeadSizeUnlessItIsSet) {
  EXPECT_EQ(OneAttention({4, 2}).node().attributes.number("scale"), 1 / std::sqrt(6.0));
  EXPECT_EQ(OneAttention({4, 2, 0, 0, 0.25}).node().attributes.number("scale"), 0.25);
}

TEST(AttentionOp, InvalidSettingsAreErrors) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(OneAttention({4, 2, -1}), ShapeError);
  EXPECT_THROW(OneAttention({4, 2, 0, -1}), ShapeError);
  EXPECT_THROW(OneAttention({4, 2, 0, nan}), ShapeError);
  EXPECT_THROW(OneAttention({4, 2, 0, 0, nan}), ShapeError);
}

TEST(AttentionOp, OnlyVisiblePairsCountAsWork) {
  const std::int64_t length = 24;  // two sequences
  for (const std::int64_t window : {0, 1, 7, 23, 24, 100}) {
    SCOPED_TRACE(window);
    double pairs = 0;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const std::int64_t position = t % length + 1;
      pairs += static_cast<double>(window == 0 ? position : std::min(position, window));
    }
    const OneAttention one({4, 2, window});
    const Node& node = one.node();
    const NodeView view{one.graph, node.inputs, node.attributes};
    const Sizes sizes{.tokens = kTokens, .longest_row = length};
    const double product = 2 * pairs * 4 * kHeadDim;  // of all heads
    EXPECT_DOUBLE_EQ(node.op->cost(view, sizes).flops, 2 * product);
    EXPECT_DOUBLE_EQ(find_op("attention.grad").cost(view, sizes).flops, 4 * product);
  }
}

}  // namespace
}  // namespace mantissa::graph::attention_op_test
