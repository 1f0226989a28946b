// The origin of a non-finite value: the first one in the plan, and the rule that keeps it finite.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/runtime/executor.h"
#include "mantissa/engine/runtime/weight_lines.h"

namespace mantissa::runtime {

/// A number that an op reads.
struct ReadRange {
  std::string name;   // "weight", or ""
  double absmax = 0;  // of the finite values
  friend bool operator==(const ReadRange&, const ReadRange&) = default;
};

struct NonFinite {
  std::string scope, op, pass;  // "model.layers.3.mlp.down_proj", "matmul", "forward"
  Scalar format = Scalar::f32;  // the stored format of the value
  double value = 0;             // before rounding to the format, if known; otherwise inf or NaN
  std::string_view field;       // the policy field that sets the format, or ""
  std::string interior;  // the op's intermediate results in a lowered format, which may be the cause, or ""
  std::int64_t channel = 0;  // of the value, in the last dimension
  std::vector<ReadRange> inputs = {};
  std::string weight = {};     // the weight of a product, if its line of this channel is an outlier
  bool weight_column = false;  // that line is a column, not a row
  WeightLine line = {};        // that line
  std::optional<BeyondFormat> beyond = {};  // of `weight`: the value is this element, which its copy in
                                            // `format` cannot hold
  bool weight_vector = false;               // `weight` has one dimension
  std::vector<std::int64_t> rows =
      {};  // data rows of the step with such values; empty if they belong to no row

  /// Returns for example "model.layers.3.mlp.down_proj matmul forward 8.1e4 > 65504 (f16)", followed by the
  /// outlier of the weight, if there is one. Names the row and column of a weight beyond its copy's format.
  std::string text() const;
  /// Returns the rule that makes the value f32: {"--rule", "model.layers.3.mlp.down_proj: compute=f32"}, or
  /// nothing if it is f32 already.
  std::vector<std::string> cure() const;
};

/// Returns `value`, without the meaningless sign of a NaN.
double unsigned_nan(double value);

/// Returns the rule that gives an op's intermediate results their usual format.
std::vector<std::string> interior_cure(const std::string& scope, const std::string& interior);

/// Calls `again`, which runs the micro-batches of a step, and returns the first output with an inf or NaN.
/// Nothing else observes that run. If it `ends`, each micro-batch ends at that output: its results are
/// incomplete. Otherwise it goes on, as other ranks do that wait for its keys. `first_row` is the first row
/// of the current micro-batch within the optimizer step.
std::optional<NonFinite> find_first_non_finite(Executor& executor, const std::int64_t& first_row,
                                               const std::function<void()>& again, bool ends = true);

class NonFiniteSearch;

/// The same search during the first run of the micro-batches of a step. Each result is read once more, so
/// this costs less than to repeat the step, and more than not to watch it.
class NonFiniteWatch {
 public:
  /// Watches the executor as long as this exists. Both arguments must outlive it.
  NonFiniteWatch(Executor& executor, const std::int64_t& first_row);
  ~NonFiniteWatch();
  NonFiniteWatch(const NonFiniteWatch&) = delete;
  NonFiniteWatch& operator=(const NonFiniteWatch&) = delete;

  /// Returns the first output with an inf or NaN since the beginning.
  std::optional<NonFinite> found() const;

 private:
  Executor& executor_;
  std::unique_ptr<NonFiniteSearch> search_;
};

/// Throws RunStopped with `what` ("the loss is nan"), the first non-finite value from
/// find_first_non_finite(), and cures for a command with a policy but without training.
[[noreturn]] void stop_non_finite(const std::string& what, const std::optional<NonFinite>& first,
                                  const plan::Program& program);

}  // namespace mantissa::runtime
