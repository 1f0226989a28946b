// For each op of the registry: operands to test it with, and the error that its roundings allow.
#pragma once

#include <map>
#include <vector>

#include "graph/linear_rows.h"
#include "graph/op_bounds.h"
#include "graph/op_case.h"
#include "graph/pointwise_rows.h"

namespace mantissa::graph::testing {

constexpr std::int64_t kVocabulary = 1040, kHeadWidth = 8;  // more than one chunk of the head
constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 8;
constexpr std::int64_t kPositions = 320, kSlots = 4;

inline Attributes heads(bool cached) {
  return {{"heads", kHeads},
          {"kv_heads", kKvHeads},
          {"head_dim", kHeadDim},
          {"slots", cached ? kSlots : 0},
          {"capacity", cached ? kPositions : 0}};
}

inline double head_dim() {
  return static_cast<double>(kHeadDim);
}
/// Error of a probability exp(s − m), relative and in units of u: a score's chain of head_dim products, each
/// at most max|q|·max|k|, and its scaling, twice (s and m); and the function's own 2 ulp with the difference.
inline double score_chain(const Case& c) {
  return 2 * (head_dim() + 2) * std::sqrt(head_dim()) * c.largest(0) * c.largest(1) + 8;
}

/// Of a row's sums over 16 lanes with the merging of key blocks.
inline double keys_chain(const Case& c) {
  return chain_of(c.extent().tokens) + 16;
}

inline Bound attention_bound(const Case& c) {
  // out is a mean of values, each at most max|v|. lse is a logarithm: its error is that of the probabilities.
  return {score_chain(c) + keys_chain(c), 1, {c.largest(2), 1 + head_dim() * c.largest(0) * c.largest(1)}};
}

/// |dS| ≤ P·(|dout·v| + |dout·out|)·scale ≤ P · 2·√d·max|dout|·max|v|. A query's P sum to 1; a key's to at
/// most `mass`, the largest Σ_t P[t, j], which is what the reference makes of dv for a dout of ones.
inline Bound attention_grad_bound(const Case& c) {
  Operands ones = c.inputs();
  for (double& x : ones[5].values) x = 1;
  const Operands sums = c.reference(ones);
  double mass = 0;
  for (const double x : sums[2].values) mass = std::max(mass, std::abs(x));
  const double ds = 2 * std::sqrt(head_dim()) * c.largest(5) * c.largest(2);
  const double chain = score_chain(c) + 2 * (head_dim() + 2) + 2 * keys_chain(c);
  return {chain, 1, {ds * c.largest(1), ds * mass * c.largest(0), mass * c.largest(5)}};
}

/// Largest Σ|x||w| of a logit.
inline double largest_logit(const Case& c) {
  return static_cast<double>(kHeadWidth) * c.largest(0) * c.largest(1);
}

/// A logit's chain, and Σ exp(l − m) over lanes and chunks; both relative to max(1, |logits|) + log
/// vocabulary.
inline Bound log_prob_bound(const Case& c) {
  const double scale = largest_logit(c) + std::log(static_cast<double>(kVocabulary));
  return {2 * chain_of(kHeadWidth) + static_cast<double>(kVocabulary) / 16 + 24, 0, {scale, scale}};
}

/// A token's |dlogits| sum to at most 2·|d|. A vocabulary entry's, over tokens, to the times it is asked plus
/// Σ p with p ≤ e^(2·largest)/vocabulary.
inline Bound log_prob_grad_bound(const Case& c, std::size_t upstream) {
  const double largest = largest_logit(c);
  std::map<double, double> asked;
  double most = 0;
  for (const double id : c.inputs()[2].values) most = std::max(most, ++asked[id]);
  const double mass = most + tokens_of(c) * std::exp(2 * largest) / static_cast<double>(kVocabulary);
  const double d = c.largest(upstream);
  const double chain = 2 * chain_of(kHeadWidth) * largest + 12 + chain_of(kVocabulary) + token_chain(c);
  return {chain, 1, {2 * d * c.largest(1), d * mass * c.largest(0)}};
}

/// dx = rstd·(g − x̂·mean(g∘x̂)) with g = dy∘gain: at most rstd·max|g|·(1 + max|x̂|²).
inline Bound rmsnorm_dx_bound(const Case& c) {
  const double x_hat = c.largest(0) * c.largest(2);
  return {static_cast<double>(kWidth) / 16 + 12,
          0,
          {c.largest(2) * c.largest(1) * c.largest(3) * (1 + x_hat * x_hat)}};
}

inline std::vector<InputSpec> head_inputs(std::int64_t t) {
  return {{Shape::tokens(t, {kHeadWidth})},
          {Shape{kVocabulary, kHeadWidth}, Stored::storage, 0.05},
          {Shape::tokens(t), Stored::ids, 1, kVocabulary, true}};
}

inline std::vector<InputSpec> attention_inputs(std::int64_t t) {
  return {{Shape::tokens(t, {kHeads * kHeadDim})},
          {Shape::tokens(t, {kKvHeads * kHeadDim})},
          {Shape::tokens(t, {kKvHeads * kHeadDim})}};
}

inline std::vector<InputSpec> rope_inputs(std::int64_t t) {
  const Shape table{kPositions, kHeadDim / 2};
  return {{Shape::tokens(t, {kHeads * kHeadDim})},
          {Shape::tokens(t, {kKvHeads * kHeadDim})},
          {table, Stored::arithmetic, 0.5},
          {table, Stored::arithmetic, 0.5}};
}

/// Two products, each of a value and a table's entry.
inline Bound rope_bound(const Case& c) {
  const double table = c.largest(2) + c.largest(3);
  return {3, 0, {c.largest(0) * table, c.largest(1) * table}};
}

/// What forward makes of the inputs before it: a gradient's out and lse, rstd.
inline void set_outputs_of(std::string_view forward, std::size_t inputs, std::vector<std::size_t> to,
                           Operands& in, const Case& c, const Attributes& attributes) {
  Operands outputs;
  for (const std::size_t i : to) outputs.push_back(in[i]);
  const Operands first(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(inputs));
  find_op(forward).reference({c.extent(), first, outputs, attributes});
  for (std::size_t o = 0; o < to.size(); ++o) in[to[o]] = outputs[o];
}

inline std::vector<OpRow> op_rows() {
  using T = std::int64_t;
  const Attributes head_attributes{{"entropy", false}};
  std::vector<OpRow> rows;
  add_linear_rows(rows);
  rows.push_back({"rmsnorm",
                  "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape{kWidth}}};
                  },
                  chain(static_cast<double>(kWidth) / 16 + 12),
                  {{"eps", 1e-5}}});
  const auto with_rstd = [](bool gain) {
    return [gain](Operands& in, Case& c) {
      // rstd is what the forward pass makes of x; its gain does not matter for that.
      Operands first{in[0], in[gain ? 1 : 2]}, out{in[0], in[gain ? 2 : 1]};
      find_op("rmsnorm").reference({c.extent(), first, out, Attributes{{"eps", 1e-5}}});
      in[gain ? 2 : 1] = out[1];
    };
  };
  rows.push_back({"rmsnorm.dx",
                  "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})},
                                                  {Shape{kWidth}},
                                                  {Shape::tokens(t), Stored::arithmetic},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  rmsnorm_dx_bound,
                  {},
                  0,
                  with_rstd(true)});
  rows.push_back({"rmsnorm.dgain",
                  "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})},
                                                  {Shape::tokens(t), Stored::arithmetic},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [](const Case& c) { return Bound{token_chain(c) + 2}; },
                  {},
                  0,
                  with_rstd(false)});
  rows.push_back({"rope", "", [](T t, T) { return rope_inputs(t); }, rope_bound, heads(false), 3});
  rows.push_back({"rope.grad", "", [](T t, T) { return rope_inputs(t); }, rope_bound, heads(false), 3});
  rows.push_back(
      {"attention", "", [](T t, T) { return attention_inputs(t); }, attention_bound, heads(false)});
  rows.push_back({"attention", "cached",
                  [](T t, T) {
                    const Shape cache{kSlots, kPositions, kKvHeads * kHeadDim};
                    return std::vector<InputSpec>{{Shape::tokens(t, {kHeads * kHeadDim})}, {cache}, {cache}};
                  },
                  attention_bound, heads(true), 3});
  rows.push_back({"attention.grad", "",
                  [](T t, T) {
                    std::vector<InputSpec> in = attention_inputs(t);
                    in.push_back(in[0]);
                    in.push_back({Shape::tokens(t, {kHeads}), Stored::arithmetic});
                    in.push_back(in[0]);
                    return in;
                  },
                  attention_grad_bound, heads(false), 0,
                  [](Operands& in, Case& c) {
                    set_outputs_of("attention", 3, {3, 4}, in, c, heads(false));
                  }});
  rows.push_back(
      {"gather", "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t), Stored::ids, 1, 50}, {Shape{50, kWidth}}};
       },
       chain(0)});
  rows.push_back(
      {"gather.dtable",
       "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t), Stored::ids, 1, 50}, {Shape::tokens(t, {kWidth})}};
       },
       [](const Case& c) { return Bound{token_chain(c)}; },
       {{"entries", 50}}});
  rows.push_back({"gather.add_rows", "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape{50, kWidth}, Stored::arithmetic},
                                                  {Shape::tokens(t), Stored::ids, 1, 50},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [](const Case& c) { return Bound{token_chain(c) + 1}; }});
  rows.push_back(
      {"select", "",
       [](T t, T r) {
         return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape::rows(r), Stored::ids, 1, t}};
       },
       chain(0)});
  rows.push_back(
      {"select.dx",
       "",
       [](T t, T r) {
         return std::vector<InputSpec>{{Shape::rows(r, {kWidth})}, {Shape::rows(r), Stored::ids, 1, t}};
       },
       [](const Case& c) { return Bound{static_cast<double>(c.extent().rows.size())}; },
       {{"tokens", kPositions}}});
  rows.push_back({"token_sum", "", same_shape(1), [](const Case& c) { return Bound{token_chain(c)}; }});
  add_pointwise_rows(rows);
  rows.push_back({"accumulate", "",
                  [](T, T) {
                    return std::vector<InputSpec>(2, {Shape{50, kWidth}, Stored::arithmetic});
                  },
                  chain(1)});
  rows.push_back({"round", "", same_shape(1, Stored::arithmetic), chain(0)});
  rows.push_back({"quantize",
                  "",
                  same_shape(1, Stored::arithmetic),
                  chain(0),
                  {{"blocks", -1}, {"along_rows", false}, {"current", false}, {"margin", 0}}});
  rows.push_back({"log_prob", "", [](T t, T) { return head_inputs(t); }, log_prob_bound});
  rows.push_back({"log_prob",
                  "entropy",
                  [](T t, T) { return head_inputs(t); },
                  [](const Case& c) {
                    Bound b = log_prob_bound(c);
                    b.magnitude.push_back(2 * b.magnitude[0]);
                    return b;
                  },
                  {{"entropy", true}}});
  rows.push_back({"log_prob.grad",
                  "",
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.push_back({Shape::tokens(t), Stored::arithmetic});
                    in.push_back({Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) { return log_prob_grad_bound(c, 4); },
                  {},
                  0,
                  [](Operands& in, Case& c) {
                    Operands first(in.begin(), in.begin() + 3), out{in[4], in[3]};
                    find_op("log_prob").reference({c.extent(), first, out, Attributes{}});
                    in[3] = out[1];
                  }});
  rows.push_back({"log_prob.training", "",
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.push_back({Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) {
                    Bound b = log_prob_grad_bound(c, 3);
                    const Bound forward = log_prob_bound(c);
                    b.chain = std::max(b.chain, forward.chain);
                    b.magnitude.insert(b.magnitude.end(), forward.magnitude.begin(), forward.magnitude.end());
                    return b;
                  }});
  rows.push_back(
      {"cache_append",
       "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape{kSlots, kPositions, kWidth}}};
       },
       chain(0),
       {{"capacity", kPositions}},
       3});
  return rows;
}

}  // namespace mantissa::graph::testing
