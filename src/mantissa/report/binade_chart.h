// Histograms of magnitudes by power of two, with a format's range behind them.
#pragma once

#include <string>
#include <vector>

#include "mantissa/core/numeric/binades.h"
#include "mantissa/core/numeric/format.h"

namespace mantissa::report {

/// The magnitudes that a format holds.
struct FormatRange {
  std::string name;
  int least_exp;   // the smallest subnormal is 2^least_exp
  int normal_exp;  // the smallest normal is 2^normal_exp
  double max_finite;
};
FormatRange range_of(Scalar format);

/// The binades that a chart shows, from `from` to below `to`.
struct BinadeWindow {
  int from = 0, to = 1;
};

/// Returns the binades with values, and two more at each side. The limits of a format are included if its
/// whole range has at most 64 binades, or if they are within 12 binades of the values.
BinadeWindow window_of(const std::vector<const Binades*>& all, const FormatRange& range);

struct BinadeChart {
  std::string label;  // one sentence for screen readers
  FormatRange range;
  Binades after;     // as stored
  Binades before{};  // before rounding, or empty
  int height = 150;  // pixels
};
/// Returns a chart with bars for the stored values and an outline for those before rounding. Heights are
/// logarithmic.
std::string to_html(const BinadeChart& chart);

struct BinadeRow {
  std::string label;  // shown at the left
  std::string name;   // shown for the row
  const Binades* after = nullptr;
  const Binades* before = nullptr;  // or null; drawn where it leaves the format's range
};
/// Rows of small histograms over one axis, to compare the layers of a module.
struct BinadeRows {
  std::string label, row_name;
  FormatRange range;
  std::vector<BinadeRow> rows;
};
std::string to_html(const BinadeRows& chart);

/// Returns the legend of both.
std::string binade_legend();

}  // namespace mantissa::report
