// A chart of values with intervals, one row each, around a line at zero.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/report/page.h"

namespace mantissa::report {

struct IntervalRow {
  std::string name;
  double value = 0;
  std::optional<double> reach{};  // the interval is value ± reach; null: not known
  Status status = Status::unknown;
  std::string text;  // shown for the row: "+0.031 ± 0.004 nats"
};

struct IntervalChart {
  std::string label;    // one sentence for screen readers
  std::string heading;  // of the axis, with its unit
  std::string reading;  // one sentence that says how to read it
  std::vector<IntervalRow> rows;
};

/// Returns the chart. Its axis contains zero and all intervals that are finite. Rows whose value is not
/// finite are left out.
std::string to_html(const IntervalChart& chart);

}  // namespace mantissa::report
