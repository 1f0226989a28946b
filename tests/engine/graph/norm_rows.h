// Operands and errors of the norms and their gradients.
#pragma once

#include <cmath>
#include <vector>

#include "engine/graph/op_sizes.h"

namespace mantissa::graph::testing {

/// A norm over the whole width or over heads, and the offset of its gain.
struct NormKind {
  std::string label;
  std::int64_t heads;
  double gain_offset;

  std::int64_t channels() const { return kWidth / heads; }
  Shape rstd(std::int64_t tokens) const {
    return heads == 1 ? Shape::tokens(tokens) : Shape::tokens(tokens, {heads});
  }
};

/// Sums over channels: 16 lanes, and the operations around them.
inline double norm_chain() {
  return static_cast<double>(kWidth) / 16 + 12;
}

/// dx = rstd·(g − x̂·mean(g∘x̂)) with g = dy∘gain: at most rstd·max|g|·(1 + max|x̂|²).
inline Bound rmsnorm_dx_bound(const Case& c, double gain_offset) {
  const double x_hat = c.largest(0) * c.largest(2);
  return {norm_chain() + 1,
          0,
          {c.largest(2) * (gain_offset + c.largest(1)) * c.largest(3) * (1 + x_hat * x_hat)}};
}

/// Input `rstd` becomes the result of the forward pass for x, input 0; the gain does not matter.
inline void set_rstd(Operands& in, const Case& c, std::size_t rstd) {
  ReferenceOperand gain;
  gain.width = static_cast<std::int64_t>(in[0].values.size() / in[rstd].values.size());
  gain.values.assign(static_cast<std::size_t>(gain.width), 1.0);
  Operands first{in[0], gain}, out{in[0], in[rstd]};
  reference_of(find_op("rmsnorm"))({c.extent(), first, out, Attributes{{"eps", 1e-5}}});
  in[rstd] = out[1];
}

inline void add_rmsnorm_rows(std::vector<OpRow>& rows, const NormKind& kind) {
  using T = std::int64_t;
  const Attributes offset{{"gain_offset", kind.gain_offset}};
  rows.push_back({"rmsnorm",
                  kind.label,
                  [kind](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape{kind.channels()}}};
                  },
                  chain(norm_chain() + 1),
                  {{"eps", 1e-5}, {"gain_offset", kind.gain_offset}}});
  rows.push_back({"rmsnorm.dx", kind.label,
                  [kind](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})},
                                                  {Shape{kind.channels()}},
                                                  {kind.rstd(t), Stored::arithmetic},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [kind](const Case& c) { return rmsnorm_dx_bound(c, kind.gain_offset); }, offset, 0,
                  [](Operands& in, Case& c) { set_rstd(in, c, 2); }});
  rows.push_back({"rmsnorm.dgain",
                  kind.label,
                  [kind](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})},
                                                  {kind.rstd(t), Stored::arithmetic},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [kind](const Case& c) {
                    return Bound{token_chain(c) + 2 + static_cast<double>(kind.heads) * tokens_of(c) / 256};
                  },
                  {},
                  0,
                  [](Operands& in, Case& c) { set_rstd(in, c, 1); }});
}

/// Largest |x̂| of LayerNorm: |x − mean| is at most 2·max|x|.
inline double layernorm_size(const Case& c, double rstd) {
  return 1 + 2 * c.largest(0) * rstd;
}

/// The mean's error is relative to max|x|, and so are those of x − mean and, times rstd, of x̂; the variance's
/// is relative, with the square of the mean's. y: at most max|gain|·|x̂| + max|bias|.
inline Bound layernorm_bound(const Case& c) {
  const Operands out = c.reference(c.inputs());
  const double rstd = *std::max_element(out[2].values.begin(), out[2].values.end());
  const double size = layernorm_size(c, rstd), bias = c.inputs().size() > 2 ? c.largest(2) : 0;
  return {2 * norm_chain(), 0, {c.largest(1) * size + bias, c.largest(0), rstd * size}};
}

/// dx = rstd·(g − mean(g) − x̂·mean(g∘x̂)) with g = dy∘gain: at most rstd·max|g|·(2 + max|x̂|²).
inline Bound layernorm_dx_bound(const Case& c) {
  const double size = layernorm_size(c, c.largest(3));
  return {2 * norm_chain(), 0, {c.largest(3) * c.largest(1) * c.largest(4) * (2 + size * size)}};
}

/// x̂ has the roundings of x − mean, relative to |x| + |mean|, and of its product with rstd.
inline Bound layernorm_dgain_bound(const Case& c) {
  return {
      token_chain(c) + 3, 0, {tokens_of(c) * c.largest(3) * (c.largest(0) + c.largest(1)) * c.largest(2)}};
}

/// Inputs `mean` and `mean` + 1 become results of the forward pass for x, input 0.
inline void set_mean_and_rstd(Operands& in, const Case& c, std::size_t mean) {
  ReferenceOperand gain;
  gain.width = in[0].width;
  gain.values.assign(static_cast<std::size_t>(gain.width), 1.0);
  Operands first{in[0], gain}, out{in[0], in[mean], in[mean + 1]};
  reference_of(find_op("layernorm"))({c.extent(), first, out, Attributes{{"eps", 1e-5}}});
  in[mean] = out[1];
  in[mean + 1] = out[2];
}

inline void add_layernorm_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  const auto inputs = [](T t, std::size_t vectors) {
    std::vector<InputSpec> in{{Shape::tokens(t, {kWidth})}};
    in.resize(1 + vectors, {Shape{kWidth}});
    return in;
  };
  const Attributes eps{{"eps", 1e-5}};
  rows.push_back({"layernorm", "", [inputs](T t, T) { return inputs(t, 2); }, layernorm_bound, eps});
  rows.push_back({"layernorm", "nobias", [inputs](T t, T) { return inputs(t, 1); }, layernorm_bound, eps});
  rows.push_back({"layernorm.dx",
                  "",
                  [inputs](T t, T) {
                    std::vector<InputSpec> in = inputs(t, 1);
                    in.resize(4, {Shape::tokens(t), Stored::arithmetic});
                    in.push_back(in[0]);
                    return in;
                  },
                  layernorm_dx_bound,
                  {},
                  0,
                  [](Operands& in, Case& c) { set_mean_and_rstd(in, c, 2); }});
  rows.push_back({"layernorm.dgain",
                  "",
                  [inputs](T t, T) {
                    std::vector<InputSpec> in = inputs(t, 0);
                    in.resize(3, {Shape::tokens(t), Stored::arithmetic});
                    in.push_back(in[0]);
                    return in;
                  },
                  layernorm_dgain_bound,
                  {},
                  0,
                  [](Operands& in, Case& c) { set_mean_and_rstd(in, c, 1); }});
}

inline void add_norm_rows(std::vector<OpRow>& rows) {
  add_rmsnorm_rows(rows, {"", 1, 0});
  add_rmsnorm_rows(rows, {"heads", 3, 0});
  add_rmsnorm_rows(rows, {"offset", 1, 1});
  add_rmsnorm_rows(rows, {"headsoffset", 3, 1});
  add_layernorm_rows(rows);
  rows.push_back({"token_sum", "", same_shape(1), [](const Case& c) { return Bound{token_chain(c)}; }});
}

}  // namespace mantissa::graph::testing
