// Where a run broke: the first value of the plan that is not finite.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "mantissa/runtime/executor.h"

namespace mantissa::train {

struct NonFinite {
  std::string where;  // "model.layers.3.mlp.down_proj matmul forward"
  double value = 0;
};

/// Runs `again` with an observer on every step and returns the first output that holds inf or nan.
std::optional<NonFinite> find_first_non_finite(runtime::Executor& executor,
                                               const std::function<void()>& again);

}  // namespace mantissa::train
