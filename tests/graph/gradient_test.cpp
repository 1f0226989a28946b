// Gradient rules against central differences, in f64: each differentiable op in a graph of its own, and whole
// models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "mantissa/graph/autodiff.h"
#include "mantissa/graph/builder.h"
#include "mantissa/graph/op.h"
#include "mantissa/kernels/rope.h"
#include "runtime/program.h"

namespace mantissa::graph {
namespace {

using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;
using mantissa::testing::train_step;

constexpr std::int64_t kTokens = 7, kWidth = 8, kVocabulary = 11;

const Segments& batch() {
  static const Segments rows({4, 3});
  return rows;
}

/// Ends in the log-probability of the targets, which makes a number of any [tokens, kWidth].
class Net {
 public:
  Net() : b(graph, kTokens) {
    ids = b.token_input("ids");
    targets = b.token_input("targets");
    seed = b.token_numbers("dlog_prob");
  }
  ValueId weight(const std::string& name, Shape shape) {
    return b.parameter(name, std::move(shape), {Init::Kind::normal, 0.5});
  }
  /// An input that gradients flow into: rows of a trained table.
  ValueId trained(const std::string& name, std::int64_t width = kWidth) {
    return b.gather(name, ids, weight(fmt::format("{}.weight", name), {kVocabulary, width}));
  }
  Graph finish(ValueId x) {
    const ValueId head = weight("head.weight", {kVocabulary, graph.value(x).shape.last()});
    const ValueId log_prob = b.log_prob("head", x, head, targets);
    graph.mark_output("log_prob", log_prob);
    differentiate(graph, log_prob, seed);
    return std::move(graph);
  }

  Graph graph;
  Builder b;
  ValueId ids = kNone, targets = kNone, seed = kNone;
};

/// Σ d·log_prob, and the sum of the terms' sizes.
std::pair<double, double> loss(const Compiled& c, const Data& data, const Segments& rows) {
  c.executor->run(Phase::forward, rows.extent());
  const std::vector<double> log_prob = c.values("log_prob", data.ids.size());
  double sum = 0, size = 0;
  for (std::size_t t = 0; t < log_prob.size(); ++t) {
    sum += data.d[t] * log_prob[t];
    size += std::abs(data.d[t] * log_prob[t]);
  }
  return {sum, size};
}

/// Derivatives by steps of h and 2h: D(h) = g + c·h² + …, so (4·D(h) − D(2h))/3 = g + O(h⁴), and the change
/// that this makes to D(h) bounds what is left. The function's own rounding errors, at most `chain` u of its
/// size, are divided by the step.
void check_gradients(const Graph& graph, std::int64_t vocabulary, const Segments& rows, double chain) {
  Compiled c(graph, precision::Policy::parse("64-true"), options_for(rows));
  const Data data(rows.tokens, vocabulary, 3);
  data.feed(c, 0, data.ids.size());
  train_step(c, rows.extent());
  std::vector<std::vector<double>> gradients;
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    ASSERT_NE(c.program.slots[s].gradient, plan::kNoBuffer) << c.program.slots[s].name;
    gradients.push_back(c.values(c.program.slots[s].gradient, c.count(s)));
  }
  const double h = 0x1p-11;
  for (std::size_t s = 0; s < gradients.size(); ++s) {
    const plan::BufferId master = c.program.slots[s].master_buffer;
    bool moves = false;
    for (std::size_t e = 0; e < gradients[s].size();
         e += std::max<std::size_t>(1, gradients[s].size() / 24)) {
      const double at = c.values(master, 1, e).front();
      const auto difference = [&](double step) {
        c.set(master, e, at + step);
        const auto [up, size] = loss(c, data, rows);
        c.set(master, e, at - step);
        const auto [down, size_down] = loss(c, data, rows);
        c.set(master, e, at);
        return std::pair{(up - down) / (2 * step), std::max(size, size_down)};
      };
      const auto [near, size] = difference(h);
      const auto [far, size_far] = difference(2 * h);
      const double want = (4 * near - far) / 3;
      const double tolerance =
          std::abs(near - far) * h + 3 * chain * unit_roundoff(Scalar::f64) * (size + 1) / h;
      ASSERT_NEAR(gradients[s][e], want, tolerance) << c.program.slots[s].name << " element " << e;
      moves = moves || std::abs(want) > 100 * tolerance;
    }
    EXPECT_TRUE(moves) << "no element of " << c.program.slots[s].name << " has a gradient to speak of";
  }
}

/// By the id of the op that a net is for; variants of an op have other names.
std::map<std::string_view, Graph> nets() {
  std::map<std::string_view, Graph> all;
  {
    Net n;
    all["gather"] = n.finish(n.trained("x"));
  }
  {
    Net n;
    all["log_prob"] = n.finish(n.trained("x"));
  }
  {
    Net n;
    all["matmul"] = n.finish(n.b.matmul("up", n.trained("x"), n.weight("up.weight", {5, kWidth})));
  }
  {
    Net n;
    all["rmsnorm"] = n.finish(n.b.rmsnorm("norm", n.trained("x"), n.weight("gain", {kWidth}), 1e-5));
  }
  {
    Net n;
    const ValueId gain = n.weight("gain", {kWidth / 2});
    all["rmsnorm of heads, gain 1 + g"] = n.finish(n.b.rmsnorm("norm", n.trained("x"), gain, 1e-5, 1));
  }
  for (const bool with_bias : {true, false}) {
    Net n;
    const ValueId gain = n.weight("gain", {kWidth}), bias = with_bias ? n.weight("bias", {kWidth}) : kNone;
    all[with_bias ? "layernorm" : "layernorm without bias"] =
        n.finish(n.b.layernorm("norm", n.trained("x"), gain, bias, 1e-5));
  }
  {
    Net n;
    all["add"] = n.finish(n.b.add("add", n.trained("x"), n.trained("y")));
  }
  {
    Net n;
    const ValueId x = n.trained("x");  // twice: its gradient is a sum
    all["swiglu"] = n.finish(n.b.add("add", x, n.b.swiglu("act", x, n.trained("up"))));
  }
  {
    Net n;
    all["kv"] = n.finish(n.b.round_kv("k", n.trained("x")));
  }
  for (const std::string_view op : {"rope", "attention"}) {
    Net n;
    Builder::QueryKey qk{n.trained("q"), n.trained("k", kWidth / 2)};
    const ValueId v = n.trained("v", kWidth / 2);
    if (op == "rope") {
      const auto table = [](bool cos) {
        return [cos](Matrix out, Scalar) {
          std::vector<double> other(kTokens * 2);
          Matrix scratch{other.data(), out.type, out.ld};
          kernels::rope_table(kTokens, 4, 10000, cos ? out : scratch, cos ? scratch : out);
        };
      };
      const ValueId cos = n.b.constant("cos", {kTokens, 2}, table(true));
      const ValueId sin = n.b.constant("sin", {kTokens, 2}, table(false));
      qk = n.b.rope("rope", qk, cos, sin, 4);
    }
    all[op] = n.finish(n.b.attention("attention", qk.q, qk.k, v, 2, 1));
  }
  return all;
}

TEST(Gradients, OfEveryDifferentiableOpAreTheDerivatives) {
  for (const auto& [name, net] : nets()) {
    SCOPED_TRACE(name);
    check_gradients(net, kVocabulary, batch(), 64);
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

TEST(Gradients, OfWholeModelsAreTheDerivatives) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    const model::ModelConfig config = mantissa::testing::tiny_llama(tied);
    const Segments rows({6, 5});
    check_gradients(model::build_log_prob(config, rows.tokens, 6, true), config.vocab_size, rows, 256);
  }
}

}  // namespace
}  // namespace mantissa::graph
