// Rows of the ops that split a tensor by features and concatenate several: every byte is copied.
#pragma once

#include <vector>

#include "engine/graph/op_case.h"
#include "engine/graph/op_sizes.h"

namespace mantissa::graph::testing {

inline void add_column_rows(std::vector<OpRow>& rows) {
  using T = std::int64_t;
  const std::vector<T> sizes{5, 12, kWidth - 17};
  const auto parts = [sizes](const std::vector<std::size_t>& which) {
    return [=](T t, T) {
      std::vector<InputSpec> in;
      for (const std::size_t i : which) in.push_back({Shape::tokens(t, {sizes[i]})});
      return in;
    };
  };
  rows.push_back({"split", "", same_shape(1), chain(0), {{"sizes", sizes}}});
  rows.push_back({"concat.grad", "", same_shape(1), chain(0), {{"sizes", sizes}}});
  rows.push_back({"concat", "", parts({0, 1, 2}), chain(0)});
  rows.push_back(
      {"split.grad", "", parts({0, 1, 2}), chain(0), {{"sizes", sizes}, {"parts", std::vector<T>{0, 1, 2}}}});
  rows.push_back(
      {"split.grad", "gap", parts({0, 2}), chain(0), {{"sizes", sizes}, {"parts", std::vector<T>{0, 2}}}});
}

}  // namespace mantissa::graph::testing
