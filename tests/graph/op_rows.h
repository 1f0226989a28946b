// For each op of the registry: operands to test it with, and the error that its roundings allow.
#pragma once

#include <map>
#include <vector>

#include "graph/attention_rows.h"
#include "graph/norm_rows.h"
#include "graph/op_case.h"
#include "graph/op_sizes.h"
#include "graph/pointwise_rows.h"

namespace mantissa::graph::testing {

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

inline std::vector<InputSpec> head_inputs(std::int64_t t) {
  return {{Shape::tokens(t, {kHeadWidth})},
          {Shape{kVocabulary, kHeadWidth}, Stored::storage, 0.05},
          {Shape::tokens(t), Stored::ids, 1, kVocabulary, true}};
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

inline std::vector<OpRow> op_rows() {
  using T = std::int64_t;
  const Attributes head_size{{"head_dim", kHeadDim}};
  std::vector<OpRow> rows;
  rows.push_back({"matmul", "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape{40, kWidth}}};
                  },
                  [](const Case&) { return Bound{chain_of(kWidth)}; }});
  rows.push_back({"matmul.dx", "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {300})}, {Shape{300, kWidth}}};
                  },
                  [](const Case&) { return Bound{chain_of(300)}; }});
  rows.push_back({"matmul.dw", "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {40})}, {Shape::tokens(t, {kWidth})}};
                  },
                  [](const Case& c) { return Bound{token_chain(c)}; }});
  add_norm_rows(rows);
  rows.push_back({"rope", "", [](T t, T) { return rope_inputs(t); }, rope_bound, head_size, 3});
  rows.push_back({"rope.grad", "", [](T t, T) { return rope_inputs(t); }, rope_bound, head_size, 3});
  for (OpRow& row : attention_rows()) rows.push_back(std::move(row));
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
