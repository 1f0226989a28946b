// The load-balancing loss: the rows, references and gradients of its ops.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "engine/graph/added_op.h"
#include "engine/graph/net.h"
#include "engine/graph/op_sizes.h"
#include "mantissa/core/base/error.h"

namespace mantissa::graph::testing::balance_op_test {
namespace {

constexpr std::int64_t kExperts = 5, kChosen = 2;

InputSpec per_expert(std::int64_t tokens, double scale = 1) {
  return {Shape::tokens(tokens, {kExperts}), Stored::arithmetic, scale};
}

/// Roundings of a softmax of logits up to `largest`, and of a sum over experts.
double softmax_chain(double largest) {
  return 2 * (2 * largest + 4) + 2 * kExperts + 4;
}

std::vector<OpRow> rows() {
  using T = std::int64_t;
  return {
      {"expert_shares",
       "",
       [](T t, T) {
         const InputSpec choice = {Shape::tokens(t, {kChosen}), Stored::ids, 1, kExperts};
         return std::vector<InputSpec>{choice, choice, choice};
       },
       [](const Case&) {
         return Bound{1, 0, {1}};
       },
       {{"experts", kExperts}}},
      {"balance",
       "",
       [](T t, T) {
         return std::vector<InputSpec>{per_expert(t, 0.3), per_expert(t), per_expert(t)};
       },
       [](const Case& c) {
         return Bound{softmax_chain(std::max(c.largest(1), c.largest(2))) + 3, 0, {kExperts * c.largest(0)}};
       },
       {{"weight", 1.0}}},
      {"balance.dlogits",
       "",
       [](T t, T) {
         const InputSpec seed = {Shape::tokens(t), Stored::arithmetic};
         return std::vector<InputSpec>{seed, per_expert(t, 0.3), per_expert(t)};
       },
       [](const Case& c) {
         return Bound{2 * softmax_chain(c.largest(2)) + 5, 0, {3 * c.largest(0) * 2 * c.largest(1)}};
       },
       {{"factor", 3.0}}}};
}

// ---- references in double

std::vector<double> softmax(const double* logits) {
  std::vector<double> p;
  for (std::int64_t e = 0; e < kExperts; ++e) p.push_back(std::exp(logits[e]));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

void expert_shares(const ReferenceCall& c) {
  std::vector<double>& share = c.outputs[0].values;
  for (const Row& row : c.extent.rows) {
    std::vector<double> count(kExperts);
    for (const ReferenceOperand& choice : c.inputs) {
      for (std::int64_t i = row.begin * kChosen; i < (row.begin + row.length) * kChosen; ++i)
        ++count[static_cast<std::size_t>(choice.data()[i])];
    }
    for (std::int64_t t = row.begin; t < row.begin + row.length; ++t) {
      for (std::int64_t e = 0; e < kExperts; ++e) {
        share[static_cast<std::size_t>(t * kExperts + e)] =
            count[static_cast<std::size_t>(e)] / static_cast<double>(row.length * std::ssize(c.inputs));
      }
    }
  }
}

void balance(const ReferenceCall& c) {
  const auto layers = static_cast<double>(c.inputs.size() - 1);
  for (std::size_t t = 0; t < c.outputs[0].values.size(); ++t) {
    double sum = 0;
    for (const ReferenceOperand& logits : c.inputs.subspan(1)) {
      const std::vector<double> p = softmax(logits.data() + t * kExperts);
      for (std::size_t e = 0; e < kExperts; ++e) sum += c.inputs[0].values[t * kExperts + e] * p[e];
    }
    c.outputs[0].values[t] = kExperts / layers * sum;
  }
}

void balance_dlogits(const ReferenceCall& c) {
  for (std::size_t t = 0; t < c.inputs[0].values.size(); ++t) {
    const double* share = c.inputs[1].data() + t * kExperts;
    const std::vector<double> p = softmax(c.inputs[2].data() + t * kExperts);
    const double mean = std::inner_product(p.begin(), p.end(), share, 0.0);
    for (std::size_t e = 0; e < kExperts; ++e) {
      c.outputs[0].values[t * kExperts + e] =
          c.attributes.number("factor") * c.inputs[0].values[t] * p[e] * (share[e] - mean);
    }
  }
}

/// The routers of two layers beside a log-probability.
Graph balance_net() {
  Net n;
  const ValueId x = n.trained("x");
  std::vector<ValueId> choices, logits = {kNone};
  for (const char* gate : {"a", "b"}) {
    logits.push_back(n.b.term(gate, x, n.weight(fmt::format("{}.weight", gate), {4, kNetWidth})));
    choices.push_back(
        n.b.node("route", gate, {logits.back()}, {{"chosen", kChosen}, {"normalized", true}})[1]);
  }
  logits[0] = n.b.node("expert_shares", "balance", choices, {{"experts", 4}}).front();
  const ValueId of_tokens = n.b.node("balance", "balance", logits, {{"weight", 1.0}}).front();
  const ValueId log_prob =
      n.b.log_prob("head", x, n.weight("head.weight", {kNetVocabulary, kNetWidth}), n.targets);
  const ValueId sum = n.b.add("sum", log_prob, of_tokens);
  n.graph.mark_output("log_prob", sum);
  differentiate(n.graph, std::array{Seed{sum, n.seed}});
  return std::move(n.graph);
}

const AddedOp kBalanceTests(
    rows(), {{"expert_shares", expert_shares}, {"balance", balance}, {"balance.dlogits", balance_dlogits}},
    [](std::map<std::string_view, Graph>& all) { all["balance"] = balance_net(); });

TEST(BalanceOp, RefusesLayersOfOtherSizes) {
  Net n;
  const ValueId x = n.trained("x"), narrow = n.trained("y", kNetWidth - 1);
  const auto choice = [&](std::int64_t chosen) {
    return n.b.node("route", "gate", {x}, {{"chosen", chosen}, {"normalized", true}})[1];
  };
  EXPECT_THROW(n.b.node("expert_shares", "balance", {choice(2), choice(3)}, {{"experts", kNetWidth}}),
               ShapeError);
  EXPECT_THROW(n.b.node("balance", "balance", {x, narrow}, {{"weight", 1.0}}), ShapeError);
}

}  // namespace
}  // namespace mantissa::graph::testing::balance_op_test
