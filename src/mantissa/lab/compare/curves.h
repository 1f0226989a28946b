// The measurements of online objectives over the steps: rewards, responses, and how far the policies are
// apart.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mantissa/lab/compare/compare.h"
#include "mantissa/report/page.h"

namespace mantissa::lab {

/// A metric with a chart of its own.
struct CurveMetric {
  std::string_view name;  // in metrics.jsonl
  std::string_view title, y_name, reading;
  bool logarithmic = false;
};
std::span<const CurveMetric> curve_metrics();

/// Adds a value of the metric `name` to the run's curves if it has a chart.
void add_to_curves(ComparedRun& run, std::int64_t step, const std::string& name, double value);

/// Returns the charts of the metrics that any run has. The body is empty if there are none.
report::Section curves_section(const Comparison& comparison);

}  // namespace mantissa::lab
