// Operands and errors of the ops of recurrent layers.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/graph/norm_rows.h"
#include "engine/graph/op_sizes.h"

namespace mantissa::graph::testing {

inline constexpr std::int64_t kRecurrentHeads = 3, kRecurrentDim = kWidth / kRecurrentHeads;

/// Makes the recurrence a contraction: decays of at most 1/e, and an update by alpha and beta of at most
/// kRecurrentDim · 0.2² in norm. Errors of one step then fade, and sums of states are bounded.
inline void contract(Operands& in, Case&) {
  for (double& x : in[1].values) x = -1 - std::abs(x);
  for (const std::size_t i : {std::size_t{4}, std::size_t{5}}) {
    for (double& x : in[i].values) x = std::clamp(x / 16, -0.2, 0.2);
  }
}

/// Largest factor by which a step enlarges a state, and the sum of its powers.
inline double fading() {
  return 1 / (1 - (std::exp(-1.0) + static_cast<double>(kRecurrentDim) * 0.04));
}

/// Largest element of a state: the given one, and the sum of the products that are added.
inline double largest_state(const Case& c, double first) {
  return first + c.largest(2) * c.largest(3) * fading();
}

/// A step has chains of kRecurrentDim terms, an exponential and four more roundings; the errors of earlier
/// ones fade.
inline double recurrence_chain() {
  return (2 * static_cast<double>(kRecurrentDim) + 8) * fading();
}

/// `first`: the input with the first states; 0: they are zeros.
inline Bound recurrence_bound(const Case& c, bool keeps, std::size_t first = 0) {
  const double dim = static_cast<double>(kRecurrentDim);
  const double state = largest_state(c, first > 0 ? c.largest(first) : 0);
  const double y = dim * state * c.largest(0);
  return {recurrence_chain(), 0, keeps ? std::vector{state, y} : std::vector{y}};
}

/// With G the gradient of a state: at most the products r·dy, which fade as the state does.
inline Bound recurrence_grad_bound(const Case& c, std::size_t first = 0) {
  const double dim = static_cast<double>(kRecurrentDim),
               state = largest_state(c, first > 0 ? c.largest(first) : 0);
  const double g = c.largest(0) * c.largest(6) * fading();
  const double s = dim * 0.2 * state, ds = dim * 0.2 * g;
  return {2 * recurrence_chain() + dim,
          0,
          {dim * state * c.largest(6), dim * g * state, dim * g * c.largest(3), dim * g * c.largest(2),
           dim * state * ds, dim * g * s}};
}

inline std::vector<InputSpec> recurrence_inputs(std::int64_t t, std::size_t more) {
  return std::vector<InputSpec>(6 + more, {Shape::tokens(t, {kWidth})});
}

inline void add_recurrence_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  const Attributes shape{
      {"heads", kRecurrentHeads}, {"key_dim", kRecurrentDim}, {"value_dim", kRecurrentDim}};
  rows.push_back({"recurrence", "", [](T t, T) { return recurrence_inputs(t, 0); },
                  [](const Case& c) { return recurrence_bound(c, false); }, shape, 0, contract});
  rows.push_back({"recurrence.grad", "", [](T t, T) { return recurrence_inputs(t, 1); },
                  [](const Case& c) { return recurrence_grad_bound(c); }, shape, 0, contract});
  rows.push_back({"recurrence.decode", "",
                  [](T t, T) {
                    std::vector<InputSpec> in = recurrence_inputs(t, 0);
                    in.push_back({Shape{kSlots, kWidth * kRecurrentDim}, Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) { return recurrence_bound(c, true, 6); }, shape, 3, contract});
  const Shape states{kSlots, kWidth * kRecurrentDim}, initial{kRecurrentHeads, kRecurrentDim, kRecurrentDim};
  const auto with = [](const char* flag, const char* other = "plain") {
    return Attributes{{"heads", kRecurrentHeads},
                      {"key_dim", kRecurrentDim},
                      {"value_dim", kRecurrentDim},
                      {flag, true},
                      {other, true}};
  };
  rows.push_back({"recurrence.carry", "",
                  [states](T t, T) {
                    std::vector<InputSpec> in = recurrence_inputs(t, 0);
                    in.insert(in.end(), 2, {states, Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) { return recurrence_bound(c, true, 7); }, with("carries"), 3, contract});
  rows.push_back({"recurrence.grad", "_carry",
                  [states](T t, T) {
                    std::vector<InputSpec> in = recurrence_inputs(t, 1);
                    in.push_back({states, Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) { return recurrence_grad_bound(c, 7); }, with("carries"), 3, contract});
  rows.push_back({"recurrence", "_initial",
                  [initial](T t, T) {
                    std::vector<InputSpec> in = recurrence_inputs(t, 0);
                    in.push_back({initial, Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) { return recurrence_bound(c, false, 6); }, with("initial"), 0, contract});
  rows.push_back({"recurrence.grad", "_initial",
                  [initial](T t, T) {
                    std::vector<InputSpec> in = recurrence_inputs(t, 1);
                    in.push_back({initial, Stored::arithmetic});
                    return in;
                  },
                  [](const Case& c) {
                    Bound bound = recurrence_grad_bound(c, 7);
                    // The sum over the rows of gradients of states.
                    const auto n = static_cast<double>(c.extent().rows.size());
                    bound.chain += n;
                    bound.magnitude.push_back(n * c.largest(0) * c.largest(6) * fading());
                    return bound;
                  },
                  with("initial", "trains_initial"), 0, contract});
}

/// Two mixtures: x and their coefficients.
inline std::vector<InputSpec> shift_inputs(std::int64_t t) {
  return {{Shape::tokens(t, {kWidth})}, {Shape{1, 1, kWidth}}, {Shape{kWidth}}};
}

inline Bound shift_bound(const Case& c, double earlier) {
  const double x = c.largest(0),
               mix = std::max(c.largest(c.inputs().size() - 1), c.largest(c.inputs().size() - 2));
  const double mixed = x + (x + earlier) * mix;
  return earlier == 0 ? Bound{3, 0, {mixed, mixed}} : Bound{3, 0, {std::max(x, earlier), mixed, mixed}};
}

inline void add_shift_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  rows.push_back({"token_shift", "", [](T t, T) { return shift_inputs(t); },
                  [](const Case& c) { return shift_bound(c, 0); }});
  rows.push_back({"token_shift.decode",
                  "",
                  [](T t, T) {
                    std::vector<InputSpec> in = shift_inputs(t);
                    in.insert(in.begin() + 1, {Shape{kSlots, kWidth}});
                    return in;
                  },
                  [](const Case& c) { return shift_bound(c, c.largest(1)); },
                  {},
                  3});
  rows.push_back({"token_shift.carry",
                  "",
                  [](T t, T) {
                    std::vector<InputSpec> in = shift_inputs(t);
                    in.insert(in.begin() + 1, 2, {Shape{kSlots, kWidth}});
                    return in;
                  },
                  [](const Case& c) { return shift_bound(c, c.largest(2)); },
                  {},
                  3});
  rows.push_back({"token_shift.dmix",
                  "_carry",
                  [](T t, T) {
                    std::vector<InputSpec> in(2, {Shape::tokens(t, {kWidth})});
                    in.push_back({Shape{kSlots, kWidth}});
                    return in;
                  },
                  [](const Case& c) {
                    const double x = c.largest(0) + std::max(c.largest(0), c.largest(2));
                    return Bound{token_chain(c) + 1, 0, {tokens_of(c) * x * c.largest(1)}};
                  },
                  {{"dims", std::vector<T>{1, 1, kWidth}}},
                  3});
  rows.push_back({"token_shift.dx", "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape{1, 1, kWidth}},
                                                  {Shape{kWidth}},
                                                  {Shape::tokens(t, {kWidth})},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [](const Case& c) {
                    const double mix = std::max(c.largest(0), c.largest(1));
                    return Bound{6, 0, {2 * std::max(c.largest(2), c.largest(3)) * (1 + 2 * mix)}};
                  }});
  rows.push_back({"token_shift.dmix",
                  "",
                  [](T t, T) { return std::vector<InputSpec>(2, {Shape::tokens(t, {kWidth})}); },
                  [](const Case& c) {
                    return Bound{token_chain(c) + 1, 0, {tokens_of(c) * 2 * c.largest(0) * c.largest(1)}};
                  },
                  {{"dims", std::vector<T>{1, 1, kWidth}}}});
}

/// Input 4 becomes the reciprocal norm of each head of k∘k_k, the result of the forward pass.
inline void set_key_norms(Operands& in, Case& c) {
  Operands first(in.begin(), in.begin() + 4), out{in[0], in[0], in[0], in[4]};
  reference_of(find_op("rwkv_keys"))({c.extent(), first, out, Attributes{{"heads", kRecurrentHeads}}});
  in[4] = out[3];
}

inline void add_key_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  const Attributes heads{{"heads", kRecurrentHeads}};
  const auto inputs = [](T t) {
    return std::vector<InputSpec>{
        {Shape::tokens(t, {kWidth})}, {Shape::tokens(t, {kWidth})}, {Shape{kWidth}}, {Shape{kWidth}}};
  };
  // The norm has a relative error of half its chain; |κ̂| ≤ 1.
  rows.push_back({"rwkv_keys", "", [inputs](T t, T) { return inputs(t); },
                  [](const Case& c) {
                    const Operands out = c.reference(c.inputs());
                    const double key = c.largest(0) * (1 + (1 + c.largest(1)) * c.largest(3));
                    const double norm = *std::max_element(out[3].values.begin(), out[3].values.end());
                    return Bound{norm_chain(), 0, {1, c.largest(1), key, norm}};
                  },
                  heads});
  rows.push_back({"rwkv_keys.grad", "",
                  [inputs](T t, T) {
                    std::vector<InputSpec> in = inputs(t);
                    in.push_back({Shape::tokens(t, {kRecurrentHeads}), Stored::arithmetic});
                    in.resize(8, in[0]);
                    return in;
                  },
                  [](const Case& c) {
                    const double dim = static_cast<double>(kRecurrentDim);
                    const double cotangent = c.largest(1) * c.largest(6) + c.largest(5);
                    const double kappa = cotangent * (1 + dim) * c.largest(4);
                    const double rest = c.largest(7) * (1 + (1 + c.largest(1)) * c.largest(3));
                    return Bound{norm_chain(),
                                 0,
                                 {kappa * c.largest(2) + rest,
                                  c.largest(6) + c.largest(7) * c.largest(0) * c.largest(3),
                                  kappa * c.largest(0), c.largest(7) * c.largest(0) * (1 + c.largest(1))}};
                  },
                  heads, 0, set_key_norms});
}

/// Inputs 8, 9 and 10 become the statistics of the forward pass.
inline void set_output_statistics(Operands& in, Case& c) {
  Operands first(in.begin(), in.begin() + 8), out{in[0], in[8], in[9], in[10]};
  reference_of(find_op("rwkv_output"))(
      {c.extent(), first, out, Attributes{{"heads", kRecurrentHeads}, {"eps", 1e-3}}});
  for (std::size_t i = 0; i < 3; ++i) in[8 + i] = out[1 + i];
}

/// Largest x̂·gain + bias + s·v, from the reciprocal deviation and s.
inline double largest_mixed(const Case& c, double normal, double s) {
  return normal * c.largest(6) + c.largest(7) + s * c.largest(3);
}

inline void add_output_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  const Attributes attributes{{"heads", kRecurrentHeads}, {"eps", 1e-3}};
  const auto inputs = [](T t) {
    std::vector<InputSpec> in(5, {Shape::tokens(t, {kWidth})});
    in.resize(8, {Shape{kWidth}});
    return in;
  };
  const auto largest_s = [](const Case& c) {
    return static_cast<double>(kRecurrentDim) * c.largest(1) * c.largest(2) * c.largest(5);
  };
  rows.push_back({"rwkv_output", "", [inputs](T t, T) { return inputs(t); },
                  [largest_s](const Case& c) {
                    const Operands out = c.reference(c.inputs());
                    const double rstd = *std::max_element(out[2].values.begin(), out[2].values.end());
                    const double normal = layernorm_size(c, rstd), s = largest_s(c);
                    return Bound{
                        2 * norm_chain(),
                        0,
                        {largest_mixed(c, normal, s) * c.largest(4), c.largest(0), rstd * normal, s}};
                  },
                  attributes});
  rows.push_back({"rwkv_output.grad", "",
                  [inputs](T t, T) {
                    std::vector<InputSpec> in = inputs(t);
                    in.resize(11, {Shape::tokens(t, {kRecurrentHeads}), Stored::arithmetic});
                    in.push_back(in[0]);
                    return in;
                  },
                  [largest_s](const Case& c) {
                    const double normal = layernorm_size(c, c.largest(9)), s = largest_s(c);
                    const double e = c.largest(11) * c.largest(4);
                    const double ds = static_cast<double>(kRecurrentDim) * e * c.largest(3);
                    return Bound{2 * norm_chain(),
                                 0,
                                 {c.largest(9) * e * c.largest(6) * (2 + normal * normal),
                                  ds * c.largest(2) * c.largest(5), ds * c.largest(1) * c.largest(5), e * s,
                                  c.largest(11) * largest_mixed(c, normal, s),
                                  ds * c.largest(1) * c.largest(2), e * normal, e}};
                  },
                  attributes, 0, set_output_statistics});
}

/// Slopes of tanh and the sigmoid: products of two values of at most 1, each of a few roundings.
inline void add_gate_rows(std::vector<OpRow>& rows) {
  const Attributes factor{{"factor", -0.6}};
  const auto slope = [](const Case& c) { return Bound{16, 0, {c.largest(1)}}; };
  rows.push_back({"tanh", "", same_shape(1), chain(6)});
  rows.push_back({"tanh.grad", "", same_shape(2), slope});
  rows.push_back({"sigmoid", "", same_shape(1), [](const Case&) { return Bound{6, 0, {1}}; }});
  rows.push_back({"sigmoid.grad", "", same_shape(2), slope});
  rows.push_back({"decay", "", same_shape(1), [](const Case&) { return Bound{6, 0, {1}}; }, factor});
  rows.push_back({"decay.grad", "", same_shape(2), slope, factor});
  rows.push_back({"lerp", "", same_shape(3), [](const Case& c) {
                    return Bound{3, 0, {c.largest(0) + (c.largest(0) + c.largest(1)) * c.largest(2)}};
                  }});
  rows.push_back({"lerp.grad", "", same_shape(4), [](const Case& c) {
                    const double d = c.largest(3), gate = c.largest(2);
                    return Bound{3, 0, {d * (1 + gate), d * gate, d * (c.largest(0) + c.largest(1))}};
                  }});
}

inline void add_recurrent_rows(std::vector<OpRow>& rows) {
  add_recurrence_rows(rows);
  add_shift_rows(rows);
  add_key_rows(rows);
  add_output_rows(rows);
  add_gate_rows(rows);
}

}  // namespace mantissa::graph::testing
