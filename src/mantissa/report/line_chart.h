// A chart of values over steps: several lines, bands around them, and marked steps.
#pragma once

#include <string>
#include <vector>

#include "mantissa/report/axis.h"

namespace mantissa::report {

struct Series {
  std::string name;
  std::vector<double> x, y;              // of equal length, x ascending; a y that is not finite leaves a gap
  std::vector<double> lower{}, upper{};  // of a band around the line, by x; or empty
  std::string band_name{};               // for the legend
};

/// A step to point at, with the text to show for it.
struct Mark {
  double x;
  std::string text;
};

struct LineChart {
  std::string label;  // one sentence for screen readers
  std::string x_name = "step", y_name;
  Spacing spacing = Spacing::linear;  // of y
  Bounds bounds{};                    // of y
  std::vector<Series> series;         // up to 6 have colours of their own
  std::vector<Mark> marks{};
  std::string marks_name{};  // "skipped step"
  int height = 220;          // pixels
};

/// Returns the chart with its legend, which is left out for one series without marks. Long series are thinned
/// to the least and largest value of each pixel or so.
std::string to_html(const LineChart& chart);

/// Returns the part of the chart between the axes, an <svg> of 1000 × 1000 units that stretches.
std::string plot_svg(const LineChart& chart, const Axis& x, const Axis& y);

}  // namespace mantissa::report
