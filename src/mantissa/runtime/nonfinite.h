// Where a computation broke: the first value of the plan that is not finite, and the rule that keeps it so.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/runtime/executor.h"

namespace mantissa::runtime {

struct NonFinite {
  std::string scope, op, pass;  // "model.layers.3.mlp.down_proj", "matmul", "forward"
  Scalar format = Scalar::f32;  // that the value is stored in
  double value = 0;             // before it was rounded to the format, where that is known; else inf or nan
  std::string_view field;       // of the policy, that sets the format; empty where none does
  std::string interior;         // the lowered inside of the op that may have made it; empty: none
  std::vector<std::int64_t> rows;  // of the step, that the values belong to; empty: of no row in particular

  /// "model.layers.3.mlp.down_proj matmul forward 8.1e4 > 65504 (f16)"
  std::string text() const;
  /// The rule that gives the value an f32: {"--rule", "model.layers.3.mlp.down_proj: compute=f32"}; empty
  /// where it has one.
  std::vector<std::string> cure() const;
};

/// `value`, without the sign that means nothing where it is nan.
double unsigned_nan(double value);

/// The rule that gives the inside of an op its usual format.
std::vector<std::string> interior_cure(const std::string& scope, const std::string& interior);

/// Runs `again` with an observer on every step of the plan and returns the first output that holds inf or
/// nan. `first_row` is the row of the optimizer step that the micro-batch at hand begins with.
std::optional<NonFinite> find_first_non_finite(Executor& executor, const std::int64_t& first_row,
                                               const std::function<void()>& again);

/// Throws RunStopped: `what` ("the loss is nan"), the first value that is not finite as
/// find_first_non_finite() found it, and cures for a command that has a policy and trains nothing.
[[noreturn]] void stop_non_finite(const std::string& what, const std::optional<NonFinite>& first,
                                  const plan::Program& program);

}  // namespace mantissa::runtime
