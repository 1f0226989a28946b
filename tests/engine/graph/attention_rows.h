// Attention among the op tests: over the whole prefix and a window, with and without a soft cap and a cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/graph/op_case.h"
#include "engine/graph/op_sizes.h"

namespace mantissa::graph::testing {

/// Settings of an attention under test.
struct AttentionSettings {
  std::string label;
  bool cached = false;
  std::int64_t window = 0;
  double soft_cap = 0;
  double scale = 1 / std::sqrt(static_cast<double>(kHeadDim));

  Attributes attributes() const {
    return {{"heads", kHeads},
            {"kv_heads", kKvHeads},
            {"head_dim", kHeadDim},
            {"window", window},
            {"soft_cap", soft_cap},
            {"scale", scale},
            {"slots", cached ? kSlots : 0},
            {"capacity", cached ? kPositions : 0}};
  }
};

inline double head_dim() {
  return static_cast<double>(kHeadDim);
}

/// Largest scaled product of a query and a key.
inline double largest_score(const Case& c, const AttentionSettings& a) {
  return a.scale * head_dim() * c.largest(0) * c.largest(1);
}

/// Error of a scaled score: a chain of head_dim products and its scaling.
inline double score_error(const Case& c, const AttentionSettings& a) {
  return (head_dim() + 2) * largest_score(c, a);
}

/// Error of tanh(score / cap): that of the score passes through tanh, whose slope is at most 1; the quotient
/// and a tanh of at most 1.35 ulp follow.
inline double tanh_error(const Case& c, const AttentionSettings& a) {
  return score_error(c, a) / a.soft_cap + 4;
}

/// Error of a probability exp(s − m), relative and in units of u: that of a score, twice (s and m), and the
/// function's own 2 ulp with the difference.
inline double score_chain(const Case& c, const AttentionSettings& a) {
  const double error = a.soft_cap > 0 ? a.soft_cap * (tanh_error(c, a) + 1) : score_error(c, a);
  return 2 * error + 8;
}

/// The error of a row's sums over 16 lanes, including the merging of key blocks.
inline double keys_chain(const Case& c) {
  return chain_of(c.extent().tokens) + 16;
}

/// 1 if the kernel rounds its operands, 0 if the factors' format represents the stored values.
inline double rounds_operands(const Case& c) {
  return holds(c.formats().compute, c.formats().storage) ? 0 : 1;
}

/// out is a mean of values, each at most max|v|. lse is a logarithm: its error is that of the probabilities.
/// Factors: P; where they are rounded v, and q and k in the score of the key and in the maximum.
inline Bound attention_bound(const Case& c, const AttentionSettings& a) {
  const double score = largest_score(c, a);
  const double factors = 1 + rounds_operands(c) * (1 + 4 * score);
  return {score_chain(c, a) + keys_chain(c), factors, {c.largest(2), 1 + score}};
}

/// |dS| ≤ P·(|dout·v| + |dout·out|)·scale ≤ P · 2·d·max|dout|·max|v|·scale; the soft cap's factor 1 − tanh²
/// is at most 1. A query's P sum to 1; a key's to at most `mass`, the largest Σ_t P[t, j], which is what the
/// reference makes of dv for a dout of ones. Factors: P or dS; where they are rounded the other one, dout and
/// v, and q and k in the score.
inline Bound attention_grad_bound(const Case& c, const AttentionSettings& a) {
  Operands ones = c.inputs();
  for (double& x : ones[5].values) x = 1;
  const Operands sums = c.reference(ones);
  double mass = 0;
  for (const double x : sums[2].values) mass = std::max(mass, std::abs(x));
  const double ds = 2 * a.scale * head_dim() * c.largest(5) * c.largest(2);
  const bool capped = a.soft_cap > 0;
  const double slope = capped ? 2 * tanh_error(c, a) + 2 : 0;
  const double chain = score_chain(c, a) + slope + 2 * (head_dim() + 2) + 2 * keys_chain(c);
  const double score = 2 * largest_score(c, a), in_slope = capped ? 2 * score / a.soft_cap : 0;
  const double factors = 1 + rounds_operands(c) * (3 + score + in_slope);
  return {chain, factors, {ds * c.largest(1), ds * mass * c.largest(0), mass * c.largest(5)}};
}

inline std::vector<InputSpec> attention_inputs(std::int64_t tokens, bool cached) {
  const Shape q = Shape::tokens(tokens, {kHeads * kHeadDim});
  const Shape k =
      cached ? Shape{kSlots, kPositions, kKvHeads * kHeadDim} : Shape::tokens(tokens, {kKvHeads * kHeadDim});
  return {{q}, {k}, {k}};
}

inline OpRow attention_row(const AttentionSettings& a) {
  return {"attention",
          a.label,
          [a](std::int64_t t, std::int64_t) { return attention_inputs(t, a.cached); },
          [a](const Case& c) { return attention_bound(c, a); },
          a.attributes(),
          a.cached ? 3 : 0};
}

inline OpRow attention_grad_row(const AttentionSettings& a) {
  return {"attention.grad",
          a.label,
          [](std::int64_t t, std::int64_t) {
            std::vector<InputSpec> in = attention_inputs(t, false);
            in.push_back(in[0]);
            in.push_back({Shape::tokens(t, {kHeads}), Stored::arithmetic});
            in.push_back(in[0]);
            return in;
          },
          [a](const Case& c) { return attention_grad_bound(c, a); },
          a.attributes(),
          0,
          [attributes = a.attributes()](Operands& in, Case& c) {
            // out and lse are results of the forward pass for q, k and v.
            Operands first(in.begin(), in.begin() + 3), out{in[3], in[4]};
            reference_of(find_op("attention"))({c.extent(), first, out, attributes});
            in[3] = out[0];
            in[4] = out[1];
          }};
}

inline std::vector<OpRow> attention_rows() {
  const AttentionSettings whole{""}, cached{"cached", true};
  const AttentionSettings window{"window", false, 3, 0, 0.5}, cap{"softCap", false, 0, 2};
  const AttentionSettings both{"windowSoftCap", false, 130, 1.5, 0.3};
  const AttentionSettings cached_both{"cachedWindowSoftCap", true, 5, 1.5, 0.3};
  std::vector<OpRow> rows;
  for (const auto& a : {whole, window, cap, both, cached, cached_both}) rows.push_back(attention_row(a));
  for (const auto& a : {whole, window, cap, both}) rows.push_back(attention_grad_row(a));
  return rows;
}

}  // namespace mantissa::graph::testing
