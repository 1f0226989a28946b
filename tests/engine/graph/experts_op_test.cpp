// A mixture of experts: the rows, references and gradients of its ops, and the bits of its weight gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/graph/added_op.h"
#include "engine/graph/net.h"
#include "engine/graph/op_sizes.h"
#include "mantissa/core/base/error.h"

namespace mantissa::graph::testing::experts_op_test {
namespace {

constexpr std::int64_t kExperts = 5, kChosen = 2, kOut = 12;

/// Makes the ids of each token different and ascending.
void make_choice(ReferenceOperand& choice) {
  for (std::size_t t = 0; t < choice.values.size(); t += kChosen) {
    double& a = choice.values[t];
    double& b = choice.values[t + 1];
    if (a == b) b = std::fmod(b + 1, kExperts);
    if (a > b) std::swap(a, b);
  }
}

InputSpec choice_of(std::int64_t tokens) {
  return {Shape::tokens(tokens, {kChosen}), Stored::ids, 1, kExperts};
}

/// `input`: the one with the choice.
std::function<void(Operands&, Case&)> chosen_at(std::size_t input) {
  return [input](Operands& in, Case&) { make_choice(in[input]); };
}

OpRow route_row(const char* label, bool normalized) {
  return {"route",
          label,
          [](std::int64_t t, std::int64_t) {
            return std::vector<InputSpec>{{Shape::tokens(t, {kExperts}), Stored::arithmetic}};
          },
          // Differences of logits round, which e^x multiplies; then the sum and the quotient.
          [](const Case& c) {
            return Bound{2 * (2 * c.largest(0) + 4) + kExperts + 1, 0, {1, 0}};
          },
          {{"chosen", kChosen}, {"normalized", normalized}}};
}

OpRow route_grad_row(const char* label, bool normalized) {
  return {"route.grad",
          label,
          [](std::int64_t t, std::int64_t) {
            const Shape shape = Shape::tokens(t, {kChosen});
            return std::vector<InputSpec>{{shape, Stored::arithmetic},
                                          {shape, Stored::arithmetic, 0.3},
                                          choice_of(t),
                                          {Shape::tokens(t, {kExperts}), Stored::arithmetic}};
          },
          [](const Case& c) {
            const double w = std::max(1.0, c.largest(1)), dw = c.largest(0);
            return Bound{
                2 * (2 * c.largest(3) + 4) + kExperts + 2 * kChosen + 2, 0, {w * dw * (1 + kChosen * w)}};
          },
          {{"normalized", normalized}},
          0,
          chosen_at(2)};
}

std::vector<OpRow> rows() {
  using T = std::int64_t;
  const auto per_choice = [](T t, T width) { return Shape::tokens(t, {kChosen, width}); };
  return {
      route_row("", false),
      route_row("Normalized", true),
      route_grad_row("", false),
      route_grad_row("Normalized", true),
      {"experts",
       "",
       [](T t, T) {
         return std::vector<InputSpec>{
             {Shape::tokens(t, {kWidth})}, {Shape{kExperts, kOut, kWidth}}, choice_of(t)};
       },
       [](const Case&) {
         return Bound{chain_of(kWidth), 2};
       },
       {},
       0,
       chosen_at(2)},
      {"experts",
       "OfChosen",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{
             {per_choice(t, kWidth)}, {Shape{kExperts, kOut, kWidth}}, choice_of(t)};
       },
       [](const Case&) {
         return Bound{chain_of(kWidth), 2};
       },
       {},
       0,
       chosen_at(2)},
      {"experts.dx",
       "",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{{per_choice(t, kOut)}, {Shape{kExperts, kOut, kWidth}}, choice_of(t)};
       },
       [](const Case&) {
         return Bound{chain_of(kOut), 2};
       },
       {{"shared", false}},
       0,
       chosen_at(2)},
      {"experts.dx",
       "Shared",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{{per_choice(t, kOut)}, {Shape{kExperts, kOut, kWidth}}, choice_of(t)};
       },
       [](const Case&) {
         return Bound{chain_of(kOut) + kChosen, 2};
       },
       {{"shared", true}},
       0,
       chosen_at(2)},
      {"experts.dw",
       "",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{{per_choice(t, kOut)}, {Shape::tokens(t, {kWidth})}, choice_of(t)};
       },
       [](const Case& c) {
         return Bound{token_chain(c), 2};
       },
       {{"experts", kExperts}},
       0,
       chosen_at(2)},
      {"experts.dw",
       "OfChosen",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{{per_choice(t, kOut)}, {per_choice(t, kWidth)}, choice_of(t)};
       },
       [](const Case& c) {
         return Bound{token_chain(c), 2};
       },
       {{"experts", kExperts}},
       0,
       chosen_at(2)},
      {"combine", "",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{{per_choice(t, kWidth)},
                                       {Shape::tokens(t, {kChosen}), Stored::arithmetic}};
       },
       chain(kChosen)},
      {"combine.dx", "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})},
                                       {Shape::tokens(t, {kChosen}), Stored::arithmetic}};
       },
       chain(1)},
      {"combine.dweights", "",
       [per_choice](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {per_choice(t, kWidth)}};
       },
       chain(chain_of(kWidth))},
  };
}

// ---- references in double

std::vector<double> softmax(const double* logits, std::size_t n) {
  const double largest = *std::max_element(logits, logits + n);
  std::vector<double> p(n);
  for (std::size_t i = 0; i < n; ++i) p[i] = std::exp(logits[i] - largest);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

void route(const ReferenceCall& c) {
  const auto experts = static_cast<std::size_t>(c.inputs[0].width),
             chosen = static_cast<std::size_t>(c.outputs[0].width);
  for (std::size_t t = 0; t * experts < c.inputs[0].values.size(); ++t) {
    const double* logits = c.inputs[0].data() + t * experts;
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    order.resize(chosen);
    std::sort(order.begin(), order.end());
    const std::vector<double> p = softmax(logits, experts);
    double sum = 0;
    for (const std::size_t e : order) sum += p[e];
    for (std::size_t j = 0; j < chosen; ++j) {
      c.outputs[0].values[t * chosen + j] = p[order[j]] / (c.attributes.flag("normalized") ? sum : 1);
      c.outputs[1].values[t * chosen + j] = static_cast<double>(order[j]);
    }
  }
}

void route_grad(const ReferenceCall& c) {
  const auto experts = static_cast<std::size_t>(c.inputs[3].width),
             chosen = static_cast<std::size_t>(c.inputs[0].width);
  for (std::size_t t = 0; t * experts < c.inputs[3].values.size(); ++t) {
    const double *dw = c.inputs[0].data() + t * chosen, *w = c.inputs[1].data() + t * chosen,
                 *choice = c.inputs[2].data() + t * chosen;
    double s = 0;
    for (std::size_t j = 0; j < chosen; ++j) s += w[j] * dw[j];
    double* out = c.outputs[0].data() + t * experts;
    std::vector<double> p(experts);
    if (!c.attributes.flag("normalized")) p = softmax(c.inputs[3].data() + t * experts, experts);
    for (std::size_t e = 0; e < experts; ++e) out[e] = p[e] * -s;
    for (std::size_t j = 0; j < chosen; ++j) out[static_cast<std::size_t>(choice[j])] = w[j] * (dw[j] - s);
  }
}

/// Calls f(pair, row of x, expert) for the pairs of a token and an expert.
template <class F>
void for_pairs(const ReferenceOperand& choice, const ReferenceOperand& x, const F& f) {
  const std::int64_t chosen = choice.width;
  for (std::int64_t p = 0; p < choice.rows * chosen; ++p)
    f(p, x.rows == choice.rows ? p / chosen : p, static_cast<std::int64_t>(choice.data()[p]));
}

void experts(const ReferenceCall& c) {
  const ReferenceOperand &x = c.inputs[0], &w = c.inputs[1];
  const std::int64_t in = x.width, out = c.outputs[0].width;
  for_pairs(c.inputs[2], x, [&](std::int64_t pair, std::int64_t row, std::int64_t e) {
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < in; ++i) sum += x.data()[row * in + i] * w.data()[(e * out + o) * in + i];
      c.outputs[0].data()[pair * out + o] = sum;
    }
  });
}

void experts_dx(const ReferenceCall& c) {
  const ReferenceOperand &dy = c.inputs[0], &w = c.inputs[1];
  const std::int64_t out = dy.width, in = w.width;
  std::ranges::fill(c.outputs[0].values, 0.0);
  for_pairs(c.inputs[2], c.outputs[0], [&](std::int64_t pair, std::int64_t row, std::int64_t e) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i)
        c.outputs[0].data()[row * in + i] += dy.data()[pair * out + o] * w.data()[(e * out + o) * in + i];
    }
  });
}

void experts_dw(const ReferenceCall& c) {
  const ReferenceOperand &dy = c.inputs[0], &x = c.inputs[1];
  const std::int64_t out = dy.width, in = x.width;
  std::ranges::fill(c.outputs[0].values, 0.0);
  for_pairs(c.inputs[2], x, [&](std::int64_t pair, std::int64_t row, std::int64_t e) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i)
        c.outputs[0].data()[(e * out + o) * in + i] += dy.data()[pair * out + o] * x.data()[row * in + i];
    }
  });
}

void combine(const ReferenceCall& c) {
  const std::int64_t width = c.inputs[0].width, chosen = c.inputs[1].width;
  std::ranges::fill(c.outputs[0].values, 0.0);
  for (std::int64_t p = 0; p < c.inputs[1].rows * chosen; ++p) {
    for (std::int64_t i = 0; i < width; ++i)
      c.outputs[0].data()[p / chosen * width + i] +=
          c.inputs[1].data()[p] * c.inputs[0].data()[p * width + i];
  }
}

void combine_dx(const ReferenceCall& c) {
  const std::int64_t width = c.inputs[0].width, chosen = c.inputs[1].width;
  for (std::int64_t p = 0; p < c.inputs[1].rows * chosen; ++p) {
    for (std::int64_t i = 0; i < width; ++i)
      c.outputs[0].data()[p * width + i] = c.inputs[1].data()[p] * c.inputs[0].data()[p / chosen * width + i];
  }
}

void combine_dweights(const ReferenceCall& c) {
  const std::int64_t width = c.inputs[0].width, chosen = c.outputs[0].width;
  for (std::int64_t p = 0; p < c.outputs[0].rows * chosen; ++p) {
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i)
      sum += c.inputs[0].data()[p / chosen * width + i] * c.inputs[1].data()[p * width + i];
    c.outputs[0].data()[p] = sum;
  }
}

/// Experts of one layer after another, as a model has them.
Graph experts_net(bool normalized) {
  Net n;
  const ValueId x = n.trained("x");
  const ValueId logits = n.b.term("gate", x, n.weight("gate.weight", {4, kNetWidth}));
  const std::vector<ValueId> routed =
      n.b.node("route", "gate", {logits}, {{"chosen", kChosen}, {"normalized", normalized}});
  const auto product = [&](const char* name, ValueId v, Shape shape) {
    return n.b.node("experts", name, {v, n.weight(fmt::format("{}.weight", name), shape), routed[1]}).front();
  };
  const ValueId inner =
      n.b.swiglu("inner", product("g", x, {4, 6, kNetWidth}), product("u", x, {4, 6, kNetWidth}));
  const ValueId results = product("d", inner, {4, kNetWidth, 6});
  return n.finish(n.b.node("combine", "mlp", {results, routed[0]}).front());
}

const AddedOp kExpertsTests(rows(),
                            {{"route", route},
                             {"route.grad", route_grad},
                             {"experts", experts},
                             {"experts.dx", experts_dx},
                             {"experts.dw", experts_dw},
                             {"combine", combine},
                             {"combine.dx", combine_dx},
                             {"combine.dweights", combine_dweights}},
                            [](std::map<std::string_view, Graph>& all) {
                              all["route"] = experts_net(false);
                              all["experts"] = experts_net(true);
                              all["combine"] = experts_net(true);
                            });

TEST(ExpertsOp, RefusesMoreExpertsThanThereAreAndOtherWeights) {
  Net n;
  const ValueId x = n.trained("x");
  EXPECT_THROW(n.b.node("route", "gate", {x}, {{"chosen", kNetWidth + 1}, {"normalized", true}}), ShapeError);
  const ValueId choice = n.b.node("route", "gate", {x}, {{"chosen", kChosen}, {"normalized", true}})[1];
  EXPECT_THROW(n.b.node("experts", "g", {x, n.weight("flat", {6, kNetWidth}), choice}), ShapeError);
  EXPECT_THROW(n.b.node("experts", "g", {x, n.weight("narrow", {4, 6, kNetWidth - 1}), choice}), ShapeError);
}

}  // namespace
}  // namespace mantissa::graph::testing::experts_op_test
