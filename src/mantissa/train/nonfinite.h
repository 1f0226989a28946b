// Where a step broke: the first value of the plan that is not finite.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/runtime/executor.h"

namespace mantissa::train {

struct NonFinite {
  std::string scope, op, pass;  // "model.layers.3.mlp.down_proj", "matmul", "forward"
  Scalar format = Scalar::f32;  // that the value is stored in
  double value = 0;             // before it was rounded to the format, where that is known; else inf or nan
  bool beyond_grads = false;    // a weight gradient that was finite before it was rounded to `grads`
  std::string interior;         // the lowered inside of the op that may have made it; empty: none
  std::vector<std::int64_t> rows;  // of the step, that the values belong to; empty: of no row in particular

  /// "model.layers.3.mlp.down_proj matmul forward 8.1e4 > 65504 (f16)"
  std::string text() const;
};

/// `value`, without the sign that means nothing where it is nan.
double unsigned_nan(double value);

/// Runs `again` with an observer on every step of the plan and returns the first output that holds inf or
/// nan. `first_row` is the row of the optimizer step that the micro-batch at hand begins with.
std::optional<NonFinite> find_first_non_finite(runtime::Executor& executor, const std::int64_t& first_row,
                                               const std::function<void()>& again);

}  // namespace mantissa::train
