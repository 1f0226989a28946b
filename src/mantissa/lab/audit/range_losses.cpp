#include "mantissa/lab/audit/range_losses.h"

#include <fmt/format.h>

namespace mantissa::lab {
namespace {

void see(RangeLoss& worst, double share, const ValueSeries& value) {
  if (share > worst.share)
    worst = {share, fmt::format("{} {} {}", value.scope, value.op_and_name(), value.pass)};
}

}  // namespace

RangeLosses range_losses(const Audit& audit) {
  const auto skipped = [&](std::int64_t step) {
    const auto point = std::ranges::find(audit.points, step, &StepPoint::step);
    return point != audit.points.end() && point->skipped;
  };
  RangeLosses worst;
  for (const ValueSeries& v : audit.values) {
    for (const ValueStep& s : v.steps) {
      if (skipped(s.step)) continue;
      see(worst.large, std::max({s.saturated, s.inf + s.nan, s.overflowed.value_or(0)}), v);
      see(v.delayed && s.step == 1 ? worst.first : worst.small, s.flushed.value_or(0), v);
    }
  }
  return worst;
}

}  // namespace mantissa::lab
