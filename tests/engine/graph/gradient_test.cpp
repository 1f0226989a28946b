// Gradient rules compared with central differences, in f64, with one graph for each differentiable op.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/graph/added_op.h"
#include "engine/graph/differences.h"
#include "engine/graph/net.h"
#include "engine/graph/pointwise_nets.h"
#include "engine/graph/recurrent_nets.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/autodiff.h"
#include "mantissa/engine/graph/builder.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph::gradient_test {
namespace {

using mantissa::graph::testing::add_pointwise_nets;
using mantissa::graph::testing::add_recurrent_nets;
using mantissa::graph::testing::batch;
using mantissa::graph::testing::check_gradients;
using mantissa::graph::testing::kNetTokens;
using mantissa::graph::testing::kNetVocabulary;
using mantissa::graph::testing::kNetWidth;
using mantissa::graph::testing::Net;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;

/// By the id of the op under test; variants of an op have other names.
std::map<std::string_view, Graph> nets() {
  std::map<std::string_view, Graph> all;
  {
    Net n;
    all["gather"] = n.finish(n.trained("x"));
  }
  {
    Net n;
    const ValueId table = n.weight("position.weight", {4, kNetWidth});
    all["gather, learned positions"] =
        n.finish(n.b.add("add", n.trained("x"), n.b.learned_positions("position", n.ids, table)));
  }
  for (const bool gap : {false, true}) {
    Net n;
    const std::vector<ValueId> parts =
        n.b.split("qkv", n.trained("x", 3 * kNetWidth), {kNetWidth, kNetWidth, kNetWidth});
    const ValueId sum = n.b.add("add", parts[0], n.b.mul("mul", parts[2], n.trained("y")));
    all[gap ? "split, a part unused" : "split"] = n.finish(gap ? sum : n.b.add("more", sum, parts[1]));
  }
  {
    Net n;
    const ValueId wide = n.b.concat("join", {n.trained("x", 3), n.trained("y", 4), n.trained("z", 1)});
    all["concat"] = n.finish(n.b.gelu_tanh("act", wide));
  }
  {
    Net n;
    all["log_prob"] = n.finish(n.trained("x"));
  }
  {
    Net n;
    all["log_prob, soft-capped"] = n.finish(n.trained("x"), 1.5);
  }
  for (const double soft_cap : {0.0, 1.5}) {
    Net n;
    const ValueId head = n.weight("head.weight", {kNetVocabulary, kNetWidth});
    const ValueId log_prob = n.b.log_prob("head", n.trained("x"), head, n.targets, soft_cap, true);
    const ValueId sum = n.b.add("sum", log_prob, n.b.mul("square", n.b.entropy_of(log_prob), log_prob));
    n.graph.mark_output("log_prob", sum);
    differentiate(n.graph, std::array{Seed{sum, n.seed}});
    all[soft_cap == 0 ? "log_prob, entropy" : "log_prob, entropy, soft-capped"] = std::move(n.graph);
  }
  {
    Net n;
    all["matmul"] = n.finish(n.b.matmul("up", n.trained("x"), n.weight("up.weight", {5, kNetWidth})));
  }
  for (const bool transposed : {false, true}) {
    Net n;
    const ValueId w = n.weight("up.weight", transposed ? Shape{kNetWidth, 5} : Shape{5, kNetWidth});
    all[transposed ? "matmul, transposed, bias" : "matmul, bias"] =
        n.finish(n.b.matmul("up", n.trained("x"), w, n.weight("up.bias", {5}),
                            transposed ? Builder::WeightLayout::in_out : Builder::WeightLayout::out_in));
  }
  {
    Net n;
    all["rmsnorm"] = n.finish(n.b.rmsnorm("norm", n.trained("x"), n.weight("gain", {kNetWidth}), 1e-5));
  }
  {
    Net n;
    const ValueId gain = n.weight("gain", {kNetWidth / 2});
    all["rmsnorm of heads, gain 1 + g"] = n.finish(n.b.rmsnorm("norm", n.trained("x"), gain, 1e-5, 1));
  }
  for (const bool with_bias : {true, false}) {
    Net n;
    const ValueId gain = n.weight("gain", {kNetWidth}),
                  bias = with_bias ? n.weight("bias", {kNetWidth}) : kNone;
    all[with_bias ? "layernorm" : "layernorm without bias"] =
        n.finish(n.b.layernorm("norm", n.trained("x"), gain, bias, 1e-5));
  }
  add_pointwise_nets(all);
  add_recurrent_nets(all);
  {
    Net n;
    const ValueId order = n.b.token_input("order");  // selected rows of x, some of them twice
    all["select"] = n.finish(n.b.select("pick", n.trained("x"), order));
  }
  {
    Net n;
    const ValueId q = n.trained("q"), k = n.trained("k", kNetWidth / 2), v = n.trained("v", kNetWidth / 2);
    all["attention"] = n.finish(n.b.attention("attention", q, k, v, 2, 1));
  }
  for (const auto add : mantissa::graph::testing::added_nets()) add(all);
  return all;
}

TEST(Gradients, OfEveryDifferentiableOpAreTheDerivatives) {
  for (const auto& [name, net] : nets()) {
    SCOPED_TRACE(name);
    check_gradients(net, kNetVocabulary, batch(), 64);
  }
}

TEST(Gradients, EveryDifferentiableOpHasANet) {
  const std::map<std::string_view, Graph> all = nets();
  for (const OpDef* op : all_ops()) {
    if (op->gradient == nullptr) continue;
    SCOPED_TRACE(op->id);
    const auto net = all.find(op->id);
    ASSERT_NE(net, all.end()) << "no net of this test holds the op";
    const auto& nodes = net->second.nodes();
    ASSERT_TRUE(std::any_of(nodes.begin(), nodes.end(), [&](const Node& n) { return n.op == op; }));
  }
}

/// A score per sequence from its last token, as in a reward model.
TEST(Gradients, OfAHeadOnSelectedRowsReachTheTrunk) {
  const Segments& rows = batch();
  Net n;
  const ValueId last = n.b.row_input("rows", 2);
  const ValueId up = n.b.matmul("trunk", n.trained("x"), n.weight("trunk.weight", {kNetWidth, kNetWidth}));
  const ValueId score = n.b.matmul("score", n.b.select("last", up, last),
                                   n.weight("score.weight", {1, kNetWidth}), n.weight("score.bias", {1}));
  const ValueId seed = n.graph.add_value({.name = "dscore",
                                          .kind = ValueKind::input,
                                          .role = Role::arithmetic,
                                          .shape = n.graph.value(score).shape});
  n.graph.mark_output("score", score);
  differentiate(n.graph, std::array{Seed{score, seed}});
  Compiled c(n.graph, precision::Policy::parse("64-true"), options_for(rows));
  const Data data(rows.tokens, kNetVocabulary, 3);
  data.feed(c, 0, data.ids.size());
  for (std::size_t r = 0; r < 2; ++r)
    c.integers("rows")[r] = static_cast<std::int32_t>(rows.rows[r].begin + rows.rows[r].length - 1);
  const std::vector<double> d = {0.75, -1.25};
  for (std::size_t r = 0; r < 2; ++r) c.set(c.program.find("dscore"), r, d[r]);
  check_gradients(c, "score", d, rows, 64);
}

TEST(Gradients, OfFrozenParametersAreNotComputed) {
  const auto build = [](bool frozen) {
    Net n;
    const ValueId w = n.weight("up.weight", {kNetWidth, kNetWidth});
    n.graph.value(w).trainable = !frozen;
    return n.finish(n.b.matmul("up", n.trained("x"), w));
  };
  const auto count = [](const Graph& g, std::string_view op) {
    return std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.op->id == op; });
  };
  EXPECT_EQ(count(build(false), "matmul.dw"), 1);
  EXPECT_EQ(count(build(true), "matmul.dw"), 0);
  EXPECT_EQ(count(build(true), "matmul.dx"), 1);
  check_gradients(build(false), kNetVocabulary, batch(), 64);
}

/// A head whose weight is frozen trains the trunk, and a head alone is trained over a frozen trunk.
TEST(Gradients, OfAHeadExistOnlyForTrainedInputs) {
  for (const bool frozen_head : {true, false}) {
    SCOPED_TRACE(frozen_head ? "frozen head" : "frozen trunk");
    Net n;
    const ValueId x = n.trained("x");
    if (!frozen_head) n.graph.value(n.graph.find("x.weight")).trainable = false;
    const ValueId head = n.weight("head.weight", {kNetVocabulary, kNetWidth});
    n.graph.value(head).trainable = !frozen_head;
    const ValueId log_prob = n.b.log_prob("head", x, head, n.targets);
    n.graph.mark_output("log_prob", log_prob);
    differentiate(n.graph, std::array{Seed{log_prob, n.seed}});
    const auto head_gradient = std::find_if(n.graph.nodes().begin(), n.graph.nodes().end(),
                                            [](const Node& node) { return node.op->id == "log_prob.grad"; });
    ASSERT_NE(head_gradient, n.graph.nodes().end());
    EXPECT_EQ(head_gradient->outputs.size(), 1U);
    check_gradients(n.graph, kNetVocabulary, batch(), 64);
  }
}

/// Returns the error of differentiating a graph.
template <class Build>
std::string refusal(const Build& build) {
  try {
    build();
  } catch (const InternalError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Differentiate, NamesOpAndScopeWhereARuleIsMissing) {
  const std::string said = refusal([] {
    Net n;
    const ValueId x = n.trained("x");
    n.finish(n.graph.node(n.graph.add_node("cast", "blocks.1.up", {x})).outputs.front());
  });
  EXPECT_NE(said.find("blocks.1.up cast: has no gradient rule"), std::string::npos) << said;
}

TEST(Differentiate, NamesTheOutputWhoseGradientARuleIgnores) {
  const std::string said = refusal([] {
    Net n;
    const ValueId q = n.trained("q"), k = n.trained("k", kNetWidth / 2), v = n.trained("v", kNetWidth / 2);
    const ValueId out = n.b.attention("blocks.0.attn", q, k, v, 2, 1);
    const ValueId lse = n.graph.node(n.graph.value(out).producer).outputs[1];
    const ValueId seed = n.graph.add_value({.name = "dlse",
                                            .kind = ValueKind::input,
                                            .role = Role::arithmetic,
                                            .shape = n.graph.value(lse).shape});
    const ValueId dout = n.graph.add_value({.name = "dout",
                                            .kind = ValueKind::input,
                                            .role = Role::arithmetic,
                                            .shape = n.graph.value(out).shape});
    const Seed seeds[] = {{out, dout}, {lse, seed}};
    differentiate(n.graph, seeds);
  });
  EXPECT_NE(said.find("blocks.0.attn attention: the gradient of output 1"), std::string::npos) << said;
}

TEST(Differentiate, RefusesATrainableParameterWithoutAGradient) {
  const std::string said = refusal([] {
    Net n;
    n.weight("unused.weight", {3, kNetWidth});
    n.finish(n.trained("x"));
  });
  EXPECT_NE(said.find("\"unused.weight\" gets no gradient"), std::string::npos) << said;
}

TEST(Differentiate, TakesSeedsOfSeveralOutputs) {
  Net n;
  const ValueId x = n.trained("x");
  const ValueId other = n.b.matmul("value", x, n.weight("value.weight", {1, kNetWidth}));
  const ValueId log_prob =
      n.b.log_prob("head", x, n.weight("head.weight", {kNetVocabulary, kNetWidth}), n.targets);
  const ValueId seed = n.graph.add_value({.name = "dvalue",
                                          .kind = ValueKind::input,
                                          .role = Role::arithmetic,
                                          .shape = n.graph.value(other).shape});
  const Seed seeds[] = {{log_prob, n.seed}, {other, seed}};
  differentiate(n.graph, seeds);
  for (const std::string_view name : {"x.weight", "value.weight", "head.weight"}) {
    const ValueId parameter = n.graph.find(name);
    EXPECT_TRUE(std::any_of(n.graph.values().begin(), n.graph.values().end(), [&](const Value& v) {
      return v.kind == ValueKind::weight_gradient && v.of == parameter;
    })) << name;
  }
}

TEST(Gradients, OfAttentionOverAWindowWithASoftCapAreTheDerivatives) {
  for (const Builder::AttentionOptions& options :
       {Builder::AttentionOptions{2, 1, 2}, {2, 1, 0, 0.7}, {2, 1, 3, 0.7, 1.5}}) {
    SCOPED_TRACE(fmt::format("window {} soft_cap {}", options.window, options.soft_cap));
    Net n;
    const ValueId q = n.trained("q"), k = n.trained("k", kNetWidth / 2), v = n.trained("v", kNetWidth / 2);
    check_gradients(n.finish(n.b.attention("attention", q, k, v, options)), kNetVocabulary, batch(), 64);
  }
}

}  // namespace
}  // namespace mantissa::graph::gradient_test
