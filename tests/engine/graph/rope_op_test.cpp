// Rotary positions: the op's rows, reference and gradient, and tables that do not fit the heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/graph/added_op.h"
#include "engine/graph/net.h"
#include "engine/graph/op_sizes.h"
#include "mantissa/core/base/error.h"
#include "mantissa/kernels/rope.h"

namespace mantissa::graph::testing::rope_op_test {
namespace {

OpRow row(const char* id, const char* label, std::int64_t rotated, bool neighbours) {
  return {id,
          label,
          [rotated](std::int64_t t, std::int64_t /*rows*/) -> std::vector<InputSpec> {
            const Shape table{kPositions, rotated / 2};
            return {{Shape::tokens(t, {kHeads * kHeadDim})},
                    {Shape::tokens(t, {kKvHeads * kHeadDim})},
                    {table, Stored::arithmetic, 0.5},
                    {table, Stored::arithmetic, 0.5}};
          },
          // Two products, each of a value and a table's entry. Values that are not rotated are copied,
          // without error.
          [](const Case& c) {
            const double table = c.largest(2) + c.largest(3);
            return Bound{3, 0, {c.largest(0) * table, c.largest(1) * table}};
          },
          {{"head_dim", kHeadDim}, {"neighbours", neighbours}},
          3};
}

/// Uses the cosines and sines of the given tables. kernels/reference/rope.h is the reference for the tables.
void rotate(const ReferenceCall& c, double sign) {
  const std::int64_t d = c.attributes.integer("head_dim"), half = c.inputs[2].width;
  const bool neighbours = c.attributes.flag("neighbours");
  for (const Segment& s : c.extent.segments) {
    for (std::int64_t t = s.begin; t < s.begin + s.length; ++t) {
      const double* cos = c.inputs[2].data() + (s.position + t - s.begin) * half;
      const double* sin = c.inputs[3].data() + (s.position + t - s.begin) * half;
      for (std::size_t i = 0; i < 2; ++i) {
        const std::int64_t width = c.inputs[i].width;
        for (std::int64_t h = t * width; h < (t + 1) * width; h += d) {
          const double* x = c.inputs[i].data() + h;
          double* y = c.outputs[i].data() + h;
          std::copy(x, x + d, y);
          for (std::int64_t e = 0; e < half; ++e) {
            const std::int64_t a = neighbours ? 2 * e : e, b = neighbours ? a + 1 : e + half;
            y[a] = x[a] * cos[e] - sign * x[b] * sin[e];
            y[b] = x[b] * cos[e] + sign * x[a] * sin[e];
          }
        }
      }
    }
  }
}

/// q and k rotated before they attend to each other: `rotated` values of heads of 4.
Graph rotated_net(std::int64_t rotated, bool neighbours) {
  Net n;
  Builder::QueryKey qk{n.trained("q"), n.trained("k", kNetWidth / 2)};
  const ValueId v = n.trained("v", kNetWidth / 2);
  const auto table = [rotated](bool cos) {
    return [cos, rotated](Matrix out, Scalar) {
      std::vector<double> other(kNetTokens * 2);
      Matrix scratch{other.data(), out.type, out.ld};
      kernels::rope_table({.positions = kNetTokens, .rotated = rotated}, cos ? out : scratch,
                          cos ? scratch : out);
    };
  };
  const ValueId cos = n.b.constant("cos", {kNetTokens, rotated / 2}, table(true));
  const ValueId sin = n.b.constant("sin", {kNetTokens, rotated / 2}, table(false));
  qk = n.b.rope("rope", qk, cos, sin, 4, neighbours);
  return n.finish(n.b.attention("attention", qk.q, qk.k, v, 2, 1));
}

const AddedOp kRopeTests({row("rope", "", kHeadDim, false), row("rope", "partial", 6, false),
                          row("rope", "neighbours", 6, true), row("rope.grad", "", kHeadDim, false),
                          row("rope.grad", "neighbours", 6, true)},
                         {{"rope", [](const ReferenceCall& c) { rotate(c, 1); }},
                          {"rope.grad", [](const ReferenceCall& c) { rotate(c, -1); }}},
                         [](std::map<std::string_view, Graph>& all) {
                           all["rope"] = rotated_net(4, false);
                           all["rope, half of a head, neighbours"] = rotated_net(2, true);
                         });

TEST(RopeOp, RefusesTablesWithMoreAnglesThanAHeadHas) {
  Graph graph;
  Builder b(graph, 4);
  const ValueId ids = b.token_input("ids");
  const ValueId x = b.gather("x", ids, b.parameter("x.weight", {3, 8}, {Init::Kind::normal, 1}));
  const auto fill = [](Matrix, Scalar) {};
  const ValueId table = b.constant("table", {4, 3}, fill);
  EXPECT_THROW(b.rope("rope", {x, x}, table, table, 4), ShapeError);
  EXPECT_NO_THROW(b.rope("rope", {x, x}, table, table, 8));
}

}  // namespace
}  // namespace mantissa::graph::testing::rope_op_test
