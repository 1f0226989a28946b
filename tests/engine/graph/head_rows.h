// Operands and errors of the head, with soft-capped logits and without.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/graph/op_sizes.h"

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
/// Σ p with p ≤ e^(2·largest)/vocabulary. The slope of a soft cap errs by twice the error of logit over cap.
inline Bound log_prob_grad_bound(const Case& c, std::size_t upstream, double soft_cap) {
  const double largest = largest_logit(c);
  std::map<double, double> asked;
  double most = 0;
  for (const double id : c.inputs()[2].values) most = std::max(most, ++asked[id]);
  const double mass = most + tokens_of(c) * std::exp(2 * largest) / static_cast<double>(kVocabulary);
  const double d = c.largest(upstream);
  const double slope = soft_cap == 0 ? 0 : 2 * chain_of(kHeadWidth) * largest / soft_cap + 12;
  const double chain = 2 * chain_of(kHeadWidth) * largest + 12 + chain_of(kVocabulary) + token_chain(c);
  return {chain + slope, 1, {2 * d * c.largest(1), d * mass * c.largest(0)}};
}

inline std::vector<InputSpec> head_inputs(std::int64_t t) {
  return {{Shape::tokens(t, {kHeadWidth})},
          {Shape{kVocabulary, kHeadWidth}, Stored::storage, 0.05},
          {Shape::tokens(t), Stored::ids, 1, kVocabulary, true}};
}

/// Sets lse, and the entropies, to those of the operands.
inline void set_statistics(Operands& in, Case& c, const Attributes& attributes) {
  Operands first(in.begin(), in.begin() + 3), out{in[4], in[3]};
  if (attributes.flag("entropy")) out.push_back(in[5]);
  reference_of(find_op("log_prob"))({c.extent(), first, out, attributes});
  in[3] = out[1];
  if (attributes.flag("entropy")) in[5] = out[2];
}

inline void add_head_rows(std::vector<OpRow>& rows, const std::string& label, double cap) {
  using T = std::int64_t;
  const Attributes attributes{{"soft_cap", cap}};
  rows.push_back({"log_prob", label, [](T t, T) { return head_inputs(t); }, log_prob_bound, attributes});
  rows.push_back({"log_prob.grad", label,
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.push_back({Shape::tokens(t), Stored::arithmetic});
                    in.push_back({Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  [cap](const Case& c) { return log_prob_grad_bound(c, 4, cap); }, attributes, 0,
                  [attributes](Operands& in, Case& c) { set_statistics(in, c, attributes); }});
  rows.push_back({"log_prob.training", label,
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.push_back({Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  [cap](const Case& c) {
                    Bound b = log_prob_grad_bound(c, 3, cap);
                    const Bound forward = log_prob_bound(c);
                    b.chain = std::max(b.chain, forward.chain);
                    b.magnitude.insert(b.magnitude.end(), forward.magnitude.begin(), forward.magnitude.end());
                    return b;
                  },
                  attributes});
}

/// In addition to log_prob_grad_bound(), e · p · (log p + H): |log p| and H are at most 2 · logit + log
/// vocabulary, and err by that times the error of a p.
inline Bound entropy_grad_bound(const Case& c) {
  Bound b = log_prob_grad_bound(c, 4, 0);
  const double t = 2 * (2 * largest_logit(c) + std::log(static_cast<double>(kVocabulary)));
  const double share = 1 + c.largest(6) * (t + t / 2 + 2) / c.largest(4);
  for (double& m : b.magnitude) m *= share;
  return b;
}

/// Sets lse, and the entries of the largest logits.
inline void set_tops(Operands& in, Case& c, const Attributes& attributes) {
  set_statistics(in, c, attributes);
  for (std::int64_t t = 0; t < in[0].rows; ++t) {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t v = 0; v < in[1].rows; ++v) {
      double logit = 0;
      for (std::int64_t k = 0; k < in[0].width; ++k)
        logit += in[0].values[static_cast<std::size_t>(t * in[0].width + k)] *
                 in[1].values[static_cast<std::size_t>(v * in[0].width + k)];
      if (logit > largest) in[5].values[static_cast<std::size_t>(t)] = static_cast<double>(v);
      largest = std::max(largest, logit);
    }
  }
}

/// In addition to log_prob_grad_bound(), l2wrap · d · logit at one entry of a token.
inline Bound l2wrap_grad_bound(const Case& c, double l2wrap) {
  Bound b = log_prob_grad_bound(c, 4, 0);
  for (double& m : b.magnitude) m *= 1 + l2wrap * largest_logit(c);
  b.magnitude[1] += tokens_of(c) * c.largest(4) * l2wrap * largest_logit(c) * c.largest(0);
  return b;
}

inline void add_head_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  add_head_rows(rows, "", 0);
  add_head_rows(rows, "capped", 0.2);  // most logits are below 1
  rows.push_back({"log_prob",
                  "entropy",
                  [](T t, T) { return head_inputs(t); },
                  [](const Case& c) {
                    Bound b = log_prob_bound(c);
                    b.magnitude.push_back(2 * b.magnitude[0]);
                    return b;
                  },
                  {{"entropy", true}}});
  const Attributes wrapped{{"l2wrap", 0.5}};
  rows.push_back({"log_prob.grad", "l2wrap",
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.insert(in.end(), 3, {Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) { return l2wrap_grad_bound(c, 0.5); }, wrapped, 0,
                  [wrapped](Operands& in, Case& c) { set_tops(in, c, wrapped); }});
  rows.push_back({"log_prob.grad",
                  "z_loss",
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.insert(in.end(), 2, {Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) {
                    Bound b = log_prob_grad_bound(c, 4, 0);
                    for (double& m : b.magnitude) m *= 1 + 2 * 0.5 * c.largest(3);
                    return b;
                  },
                  {{"z_loss", 0.5}},
                  0,
                  [](Operands& in, Case& c) {
                    set_statistics(in, c, {{"z_loss", 0.5}});
                  }});
  const Attributes entropy{{"entropy", true}};
  rows.push_back({"log_prob.grad", "entropy",
                  [](T t, T) {
                    std::vector<InputSpec> in = head_inputs(t);
                    in.insert(in.end(), 4, {Shape::tokens(t), Stored::arithmetic});
                    return in;
                  },
                  entropy_grad_bound, entropy, 0,
                  [entropy](Operands& in, Case& c) { set_statistics(in, c, entropy); }});
}

}  // namespace mantissa::graph::testing
