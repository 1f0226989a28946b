// Operands and errors of the ops of adapters.
#pragma once

#include <vector>

#include "engine/graph/op_case.h"
#include "engine/graph/op_sizes.h"

namespace mantissa::graph::testing {

constexpr std::int64_t kAdapterOut = 40, kAdapterRank = 3;

inline void add_adapter_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  for (const bool transposed : {false, true}) {
    // rank + 1 roundings of each element, then the chain of its square, and the root.
    rows.push_back({"row_norms",
                    transposed ? "transposed" : "",
                    [=](T, T) {
                      return std::vector<InputSpec>{
                          {transposed ? Shape{kWidth, kAdapterOut} : Shape{kAdapterOut, kWidth}},
                          {Shape{kAdapterRank, kWidth}},
                          {Shape{kAdapterOut, kAdapterRank}}};
                    },
                    chain(kAdapterRank + 2 + chain_of(kWidth)),
                    {{"scale", 0.75}, {"transposed", transposed}}});
  }
  const auto of_vectors = [](std::size_t wide, std::size_t vectors) {
    return [=](T t, T) {
      std::vector<InputSpec> in(wide, {Shape::tokens(t, {kWidth})});
      in.insert(in.end(), vectors, {Shape{kWidth}});
      return in;
    };
  };
  rows.push_back({"magnitude", "", of_vectors(1, 2), chain(2)});
  rows.push_back({"magnitude", "bias", of_vectors(1, 3), chain(3)});
  rows.push_back({"magnitude.dz", "", of_vectors(1, 2), chain(2)});
  rows.push_back({"magnitude.dm", "", of_vectors(2, 1), chain(2)});
}

}  // namespace mantissa::graph::testing
