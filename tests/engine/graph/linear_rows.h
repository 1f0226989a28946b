// Rows of the Linear layer and its gradients: with and without a bias, and in both layouts of the weight.
#pragma once

#include <vector>

#include "engine/graph/op_case.h"
#include "engine/graph/op_sizes.h"

namespace mantissa::graph::testing {

constexpr std::int64_t kLinearOut = 40, kLongOut = 300;  // more than one block of a sum

/// Weight of a layer from kWidth to `out` values.
inline Shape linear_weight(std::int64_t out, bool transposed) {
  return transposed ? Shape{kWidth, out} : Shape{out, kWidth};
}

inline void add_linear_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  for (const bool transposed : {false, true}) {
    const std::string label = transposed ? "transposed" : "";
    const Attributes attributes{{"transposed", transposed}};
    for (const bool bias : {false, true}) {
      rows.push_back(
          {"matmul", label + (bias ? "bias" : ""),
           [=](T t, T) {
             std::vector<InputSpec> in{{Shape::tokens(t, {kWidth})}, {linear_weight(kLinearOut, transposed)}};
             if (bias) in.push_back({Shape{kLinearOut}});
             return in;
           },
           chain(chain_of(kWidth) + (bias ? 1 : 0)), attributes});
    }
    rows.push_back({"matmul.dx", label,
                    [=](T t, T) {
                      return std::vector<InputSpec>{{Shape::tokens(t, {kLongOut})},
                                                    {linear_weight(kLongOut, transposed)}};
                    },
                    chain(chain_of(kLongOut)), attributes});
    rows.push_back(
        {"matmul.dw", label,
         [](T t, T) {
           return std::vector<InputSpec>{{Shape::tokens(t, {kLinearOut})}, {Shape::tokens(t, {kWidth})}};
         },
         [](const Case& c) { return Bound{token_chain(c)}; }, attributes});
  }
}

}  // namespace mantissa::graph::testing
