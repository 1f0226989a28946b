#include "mantissa/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "mantissa/report/html.h"
#include "mantissa/report/number_text.h"

namespace mantissa::report {
namespace {

constexpr std::size_t kMostPoints = 700;  // of a line: more than the pixels of its width change nothing
constexpr std::size_t kMostDots = 60;     // with more points, only lines are drawn
constexpr std::size_t kMostReadings = 120;
constexpr std::size_t kColours = 6;

struct Point {
  double x = 0, y = 0;
  bool gap = false;
};

std::vector<Point> places(const std::vector<double>& xs, const std::vector<double>& ys, const Axis& x,
                          const Axis& y) {
  std::vector<Point> out;
  for (std::size_t i = 0; i < std::min(xs.size(), ys.size()); ++i) {
    const auto px = x.at(xs[i]), py = y.at(ys[i]);
    if (!px) continue;
    out.push_back({*px, py ? 1 - *py : 0, !py});
  }
  return out;
}

// Of each bucket of neighbours the extremes and any gap, in their order.
std::vector<Point> thinned(const std::vector<Point>& all) {
  if (all.size() <= kMostPoints) return all;
  std::vector<Point> out;
  const std::size_t buckets = kMostPoints / 3;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t from = b * all.size() / buckets, to = (b + 1) * all.size() / buckets;
    std::size_t low = to, high = to, gap = to;
    for (std::size_t i = from; i < to; ++i) {
      if (all[i].gap) {
        gap = i;
        continue;
      }
      if (low == to || all[i].y < all[low].y) low = i;
      if (high == to || all[i].y > all[high].y) high = i;
    }
    for (const std::size_t i : std::set{low, high, gap})
      if (i != to) out.push_back(all[i]);
  }
  return out;
}

// A path through the points, broken at gaps. A point between gaps becomes a dot.
std::string path_of(const std::vector<Point>& points) {
  std::string d;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].gap) continue;
    const bool begins = i == 0 || points[i - 1].gap, ends = i + 1 == points.size() || points[i + 1].gap;
    d += fmt::format("{}{} {}", begins ? "M" : "L", coordinate(points[i].x), coordinate(points[i].y));
    if (begins && ends) d += "h0";
  }
  return d;
}

// The area between the lower and the upper line, where both exist.
std::string area_of(std::vector<Point> lower, std::vector<Point> upper) {
  std::string d;
  for (std::size_t i = 0; i < lower.size();) {
    std::size_t end = i;
    while (end < lower.size() && !lower[end].gap && !upper[end].gap) ++end;
    if (end == i) {
      ++i;
      continue;
    }
    for (std::size_t j = i; j < end; ++j)
      d += fmt::format("{}{} {}", j == i ? "M" : "L", coordinate(upper[j].x), coordinate(upper[j].y));
    for (std::size_t j = end; j-- > i;)
      d += fmt::format("L{} {}", coordinate(lower[j].x), coordinate(lower[j].y));
    d += "Z";
    i = end;
  }
  return d;
}

// Invisible columns that carry the values of a step as text. In a long series, of every n-th step.
std::string readings(const LineChart& chart, const Axis& x) {
  if (chart.series.empty()) return "";
  const std::vector<double>& xs = chart.series.front().x;
  const std::size_t each = (xs.size() + kMostReadings - 1) / kMostReadings;
  std::string out = "<g class=\"hit\">";
  for (std::size_t i = 0; i < xs.size(); i += each) {
    const auto at = x.at(xs[i]);
    if (!at) continue;
    const double left = i == 0 ? 0 : (x.at(xs[i - each]).value_or(*at) + *at) / 2;
    const double right = i + each >= xs.size() ? 1 : (x.at(xs[i + each]).value_or(*at) + *at) / 2;
    std::string text = chart.x_name + " " + number_text(xs[i]);
    for (const Series& s : chart.series) {
      const auto found = std::ranges::find(s.x, xs[i]);
      const auto at_x = static_cast<std::size_t>(found - s.x.begin());
      if (at_x >= s.y.size()) continue;
      const double value = s.y[at_x];
      text += "\n" + (s.name.empty() ? chart.y_name : s.name) + ": " +
              (std::isnan(value)                ? "not finite"
               : chart.spacing == Spacing::log2 ? power_text(value)
                                                : number_text(value));
    }
    for (const Mark& m : chart.marks)
      if (m.x == xs[i]) text += "\n" + m.text;
    out += fmt::format("<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"1000\"><title>{}</title></rect>",
                       coordinate(left), coordinate(right - left), escaped(text));
  }
  return out + "</g>";
}

std::vector<double> all_x(const LineChart& chart) {
  std::vector<double> out;
  for (const Series& s : chart.series) out.insert(out.end(), s.x.begin(), s.x.end());
  for (const Mark& m : chart.marks) out.push_back(m.x);
  return out;
}

std::vector<double> all_y(const LineChart& chart) {
  std::vector<double> out;
  for (const Series& s : chart.series)
    for (const std::vector<double>* v : {&s.y, &s.lower, &s.upper})
      out.insert(out.end(), v->begin(), v->end());
  return out;
}

}  // namespace

std::string plot_svg(const LineChart& chart, const Axis& x, const Axis& y) {
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
      escaped(chart.label));
  std::string grid;
  for (const Tick& t : y.ticks(5)) grid += fmt::format("M0 {}h1000", coordinate(1 - t.at));
  out += fmt::format("<path class=\"gridline\" d=\"{}\"/>", grid);
  std::string marks;
  for (const Mark& m : chart.marks)
    if (chart.marks.size() > kMostDots)
      break;
    else if (const auto at = x.at(m.x))
      marks += fmt::format("M{} 0v1000", coordinate(*at));
  if (!marks.empty()) out += fmt::format("<path class=\"at\" d=\"{}\"/>", marks);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    if (s.lower.empty() || s.lower.size() != s.upper.size()) continue;
    out += fmt::format("<path class=\"band s{}\" d=\"{}\"/>", i % kColours,
                       area_of(places(s.x, s.lower, x, y), places(s.x, s.upper, x, y)));
  }
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    const std::vector<Point> points = thinned(places(s.x, s.y, x, y));
    const std::string d = path_of(points);
    if (d.empty()) continue;
    out += fmt::format("<path class=\"line s{}\" d=\"{}\"/>", i % kColours, d);
    if (points.size() > kMostDots) continue;
    std::string dots;
    for (const Point& p : points)
      if (!p.gap) dots += fmt::format("M{} {}h0", coordinate(p.x), coordinate(p.y));
    out += fmt::format("<path class=\"dots s{}\" d=\"{}\"/>", i % kColours, dots);
  }
  return out + readings(chart, x) + "</svg>";
}

std::string to_html(const LineChart& chart) {
  const Axis x(Spacing::linear, all_x(chart), false), y(chart.spacing, all_y(chart), true, chart.bounds);
  std::string y_labels, x_labels, flags;
  for (const Tick& t : y.ticks(5))
    y_labels += fmt::format("<span style=\"bottom:{:.1f}%\">{}</span>", 100 * t.at, t.html);
  for (const Tick& t : x.ticks(8, true))
    x_labels += fmt::format("<span style=\"left:{:.1f}%\">{}</span>", 100 * t.at, t.html);
  for (const Mark& m : chart.marks)
    if (const auto at = x.at(m.x)) flags += fmt::format("<i style=\"left:{:.1f}%\"></i>", 100 * *at);
  std::vector<LegendEntry> legend;
  if (chart.series.size() > 1 || !chart.marks.empty())
    for (std::size_t i = 0; i < chart.series.size(); ++i)
      legend.push_back({fmt::format("stroke s{}", i % kColours),
                        chart.series[i].name.empty() ? chart.y_name : chart.series[i].name});
  for (std::size_t i = 0; i < chart.series.size(); ++i)
    if (!chart.series[i].band_name.empty())
      legend.push_back({fmt::format("band s{}", i % kColours), chart.series[i].band_name});
  if (!chart.marks.empty()) legend.push_back({"flag", chart.marks_name});
  return fmt::format(
      "<div class=\"chart\"><div class=\"yname\">{}</div><div class=\"ylabels\" "
      "style=\"height:{}px\">{}</div>"
      "<div class=\"plot\" style=\"height:{}px\"><div class=\"flags\">{}</div>{}</div>"
      "<div class=\"xlabels\">{}</div><div class=\"xname\">{}</div></div>\n{}",
      escaped(chart.y_name), chart.height, y_labels, chart.height, flags, plot_svg(chart, x, y), x_labels,
      escaped(chart.x_name), legend.empty() ? "" : legend_html(legend));
}

}  // namespace mantissa::report
