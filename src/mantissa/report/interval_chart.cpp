#include "mantissa/report/interval_chart.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/report/axis.h"
#include "mantissa/report/html.h"

namespace mantissa::report {
namespace {

constexpr int kTicks = 5;

double reach_of(const IntervalRow& row) {
  return row.reach && std::isfinite(*row.reach) ? *row.reach : 0;
}

/// Returns the row's drawing in a box of 1000 × 1000 units that stretches.
std::string row_svg(const IntervalRow& row, const Axis& x) {
  const double at = x.at(row.value).value_or(0), zero = x.at(0).value_or(0);
  const double low = x.at(row.value - reach_of(row)).value_or(at);
  const double high = x.at(row.value + reach_of(row)).value_or(at);
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
      "<path class=\"zero\" d=\"M{} 0v1000\"/>",
      coordinate(zero));
  if (high > low)
    out += fmt::format("<path class=\"reach\" d=\"M{} 500H{}\"/>", coordinate(low), coordinate(high));
  return out + fmt::format("<path class=\"value\" d=\"M{} 500h0\"/></svg>", coordinate(at));
}

}  // namespace

std::string to_html(const IntervalChart& chart) {
  std::vector<double> values = {0};
  for (const IntervalRow& row : chart.rows) {
    if (!std::isfinite(row.value)) continue;
    values.push_back(row.value - reach_of(row));
    values.push_back(row.value + reach_of(row));
  }
  const Axis x(Spacing::linear, values);
  std::string rows, ticks;
  for (const IntervalRow& row : chart.rows) {
    if (!std::isfinite(row.value)) continue;
    rows += fmt::format("<li class=\"{}\"><span class=\"who\">{}</span><span class=\"by\">{}</span>{}</li>\n",
                        class_of(row.status), escaped(row.name), escaped(row.text), row_svg(row, x));
  }
  for (const Tick& t : x.ticks(kTicks))
    ticks += fmt::format("<span style=\"left:{:.1f}%\">{}</span>", 100 * t.at, t.html);
  return fmt::format(
      "<div class=\"intervals\" role=\"group\" aria-label=\"{}\"><p class=\"yname\">{}</p>\n<ul>{}</ul>"
      "<div class=\"xlabels\">{}</div><p class=\"reading\">{}</p></div>\n",
      escaped(chart.label), escaped(chart.heading), rows, ticks, escaped(chart.reading));
}

}  // namespace mantissa::report
