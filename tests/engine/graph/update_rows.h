// The ops of optimizers: passes over a parameter, means of such passes, products of weights.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/op_sizes.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::graph::testing {

/// weight·keep − (√|state| + row)·column, and the new state: an update with an operand of each kind.
inline kernels::Expression update_expression() {
  kernels::ExpressionBuilder b;
  const auto state = b.load(1);
  const auto step = b.mul(b.add(b.sqrt(b.abs(state)), b.load(2)), b.load(3));
  b.store(b.sub(b.mul(b.load(0), b.load(4)), step), 0);
  b.store(b.add(state, step), 1);
  return b.build();
}

inline kernels::Expression product_expression() {
  kernels::ExpressionBuilder b;
  b.store(b.mul(b.load(0), b.load(1)), 0);
  return b.build();
}

/// Operands of products of weights: more than one block of 256 terms in the sum.
inline auto factors(Shape a, Shape b) {
  return [a, b](std::int64_t, std::int64_t) { return std::vector<InputSpec>{{a}, {b}}; };
}

inline void add_update_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  // Signs of the terms of a difference do not matter to its error: |w·keep| + |step| bounds both results.
  rows.push_back({"update",
                  "",
                  [](T, T) {
                    return std::vector<InputSpec>{{Shape{50, kWidth}},
                                                  {Shape{50, kWidth}},
                                                  {Shape{kWidth}, Stored::arithmetic},
                                                  {Shape{50, 1}, Stored::arithmetic},
                                                  {Shape{}, Stored::arithmetic}};
                  },
                  [](const Case& c) {
                    const double step = (std::sqrt(c.largest(1)) + c.largest(2)) * c.largest(3);
                    return Bound{6, 0, {c.largest(0) * c.largest(4) + step, c.largest(1) + step}};
                  },
                  {},
                  0,
                  {},
                  update_expression()});
  for (const auto& [over, label] : {std::pair{T{0}, "all"}, {T{1}, "rows"}, {T{2}, "columns"}}) {
    const auto inputs = [](T, T) {
      return std::vector<InputSpec>{{Shape{300, kWidth}}, {Shape{300, 1}, Stored::arithmetic}};
    };
    // The product is rounded once, its square doubles that; the sums of both sides are f64 chains.
    const auto bound = [](const Case& c) {
      return Bound{4 + (c.formats().arithmetic == Scalar::f64 ? 300 * static_cast<double>(kWidth) : 1)};
    };
    rows.push_back({"update.reduce",
                    std::string("Mean") + label,
                    inputs,
                    bound,
                    {{"over", over}, {"mean", true}},
                    0,
                    {},
                    product_expression()});
    rows.push_back({"update.reduce",
                    std::string("Norm") + label,
                    inputs,
                    bound,
                    {{"over", over}, {"squares", true}, {"root", true}},
                    0,
                    {},
                    product_expression()});
  }
  const auto product_bound = [](T terms) { return [terms](const Case&) { return Bound{chain_of(terms)}; }; };
  rows.push_back({"matmul.product", "", factors({40, 300}, {300, kWidth}), product_bound(300)});
  rows.push_back({"matmul.product",
                  "TransposedA",
                  factors({300, 40}, {300, kWidth}),
                  product_bound(300),
                  {{"transpose_a", true}}});
  rows.push_back({"matmul.product",
                  "TransposedB",
                  factors({40, 300}, {kWidth, 300}),
                  product_bound(300),
                  {{"transpose_b", true}}});
}

}  // namespace mantissa::graph::testing
