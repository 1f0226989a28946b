// The measurements of online objectives over the steps: rewards, responses, and how far the policies are
// apart.
#pragma once

#include <optional>
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
  std::optional<double> least = 0, most = {};  // that the metric can have
};

/// Returns the metrics that are kept as curves: those with a chart, and those that tell how exactly the
/// rewards and accuracies among them are known.
std::span<const std::string> curve_names();

/// Adds a value of the metric `name` to the run's curves if it is one of curve_names().
void add_to_curves(ComparedRun& run, std::int64_t step, const std::string& name, double value);

/// Returns the charts of the metrics that any run has. The body is empty if there are none.
report::Section curves_section(const Comparison& comparison);

}  // namespace mantissa::lab
