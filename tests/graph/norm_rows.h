// Operands and errors of the norms and their gradients.
#pragma once

#include <cmath>
#include <vector>

#include "graph/op_bounds.h"

namespace mantissa::graph::testing {

/// A norm over the whole width, or over heads of it, and what is added to its gain.
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

/// Input `rstd` becomes what the forward pass makes of x, input 0; its gain does not matter for that.
inline void set_rstd(Operands& in, const Case& c, std::size_t rstd) {
  ReferenceOperand gain;
  gain.width = static_cast<std::int64_t>(in[0].values.size() / in[rstd].values.size());
  gain.values.assign(static_cast<std::size_t>(gain.width), 1.0);
  Operands first{in[0], gain}, out{in[0], in[rstd]};
  find_op("rmsnorm").reference({c.extent(), first, out, Attributes{{"eps", 1e-5}}});
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

inline void add_norm_rows(std::vector<OpRow>& rows) {
  add_rmsnorm_rows(rows, {"", 1, 0});
  add_rmsnorm_rows(rows, {"heads", 3, 0});
  add_rmsnorm_rows(rows, {"offset", 1, 1});
  add_rmsnorm_rows(rows, {"headsoffset", 3, 1});
  rows.push_back({"token_sum", "", same_shape(1), [](const Case& c) { return Bound{token_chain(c)}; }});
}

}  // namespace mantissa::graph::testing
