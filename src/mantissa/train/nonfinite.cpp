#include "mantissa/train/nonfinite.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "mantissa/kernels/update.h"

namespace mantissa::train {
namespace {

/// The first value of an output that is not finite, if there is one.
std::optional<double> first_bad(const graph::Argument& a, const kernels::Context& ctx) {
  if (a.integer) return std::nullopt;
  const std::int64_t count = a.rows * a.width;
  std::vector<double> wide(static_cast<std::size_t>(count));
  kernels::cast(ctx, count, a.data, a.type, wide.data(), Scalar::f64);
  for (const double x : wide) {
    if (!std::isfinite(x)) return x;
  }
  return std::nullopt;
}

}  // namespace

std::optional<NonFinite> find_first_non_finite(runtime::Executor& executor,
                                               const std::function<void()>& again) {
  std::optional<NonFinite> found;
  executor.after_step = [&](const plan::Step& step, const graph::Call& call) {
    if (found) return;
    for (const graph::Argument& out : call.outputs) {
      if (const std::optional<double> bad = first_bad(out, call.ctx)) {
        found = NonFinite{
            fmt::format("{} {} {}", step.scope, step.op->op, precision::name(plan::pass_of(step.phase))),
            *bad};
        return;
      }
    }
  };
  again();
  executor.after_step = nullptr;
  return found;
}

}  // namespace mantissa::train
