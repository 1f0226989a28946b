#include "mantissa/report/binade_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/report/axis.h"
#include "mantissa/report/binade_parts.h"
#include "mantissa/report/html.h"
#include "mantissa/report/number_text.h"

namespace mantissa::report {
namespace {

// Bars of the stored values, and invisible columns with the counts of both as text.
std::string bars_svg(const BinadeChart& chart, const BinadeWindow& window) {
  const auto total = static_cast<double>(std::max<std::uint64_t>(1, chart.after.total()));
  const auto total_before = static_cast<double>(std::max<std::uint64_t>(1, chart.before.total()));
  std::string bars, readings;
  for (int e = std::max(window.from, Binades::kLeast); e < std::min(window.to, Binades::kMost + 1); ++e) {
    const std::uint64_t after = chart.after.at(e), before = chart.before.at(e);
    if (after == 0 && before == 0) continue;
    const int left = e - window.from;
    const double share = static_cast<double>(after) / total, height = binade::height_of(share);
    if (after > 0) bars += fmt::format("M{:.4g} 1000h.88v-{}h-.88z", left + 0.06, coordinate(height));
    std::string text = fmt::format("2^{} to 2^{}\nstored: {}, {} values", e, e + 1, share_text(share),
                                   count_text(static_cast<std::int64_t>(after)));
    if (chart.before.total() > 0)
      text += fmt::format("\nbefore rounding: {}", share_text(static_cast<double>(before) / total_before));
    readings += fmt::format("<rect x=\"{}\" y=\"0\" width=\"1\" height=\"1000\"><title>{}</title></rect>",
                            left, escaped(text));
  }
  std::string out = fmt::format("<path class=\"after\" d=\"{}\"/>", bars);
  if (chart.before.total() > 0)
    out += fmt::format("<path class=\"before\" d=\"{}\"/>", binade::outline(chart.before, window, 1000, 0));
  return out + "<g class=\"hit\">" + readings + "</g>";
}

}  // namespace

std::string to_html(const BinadeChart& chart) {
  const BinadeWindow window = window_of({&chart.after, &chart.before}, chart.range);
  std::string y_labels, grid;
  for (const auto& [share, text] : {std::pair{1.0, "100 %"}, {1e-2, "1 %"}, {1e-4, "1e-4"}, {1e-6, "1e-6"}}) {
    const double at = binade::height_of(share);
    y_labels += fmt::format("<span style=\"bottom:{:.1f}%\">{}</span>", 100 * at, raised_html(text));
    grid += fmt::format("M0 {}h{}", coordinate(1 - at), window.to - window.from);
  }
  return fmt::format(
      "<div class=\"chart binades\"><div class=\"yname\">share of values</div>"
      "<div class=\"ylabels\" style=\"height:{0}px\">{1}</div><div class=\"plot\" style=\"height:{0}px\">"
      "<svg viewBox=\"0 0 {7} 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{2}\">{3}"
      "<path class=\"gridline\" d=\"{4}\"/>{5}</svg></div><div class=\"xlabels\">{6}</div><div "
      "class=\"xname\">magnitude</div></div>\n",
      chart.height, y_labels, escaped(chart.label), binade::zones_svg(window, chart.range, 1000), grid,
      bars_svg(chart, window), binade::axis_html(window, chart.range), window.to - window.from);
}

std::string to_html(const BinadeRows& chart) {
  constexpr int kRow = 100, kBar = 86;  // units
  std::vector<const Binades*> all;
  for (const BinadeRow& r : chart.rows) {
    all.push_back(r.after);
    all.push_back(r.before);
  }
  const BinadeWindow window = window_of(all, chart.range);
  const int height = kRow * static_cast<int>(std::max<std::size_t>(1, chart.rows.size()));
  std::string labels, marks;
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const BinadeRow& r = chart.rows[i];
    const int top = kRow * static_cast<int>(i) + kRow - kBar;
    labels += fmt::format("<span>{}</span>", escaped(r.label));
    marks += fmt::format("<path class=\"after\" d=\"{}\"><title>{}</title></path>",
                         binade::outline(*r.after, window, kBar, top), escaped(r.name));
    if (r.before != nullptr && binade::leaves(*r.before, chart.range))
      marks +=
          fmt::format("<path class=\"before\" d=\"{}\"/>", binade::outline(*r.before, window, kBar, top));
  }
  return fmt::format(
      "<div class=\"heat binades\" style=\"--row:22px\"><div class=\"rname\">{}</div><div></div>"
      "<div class=\"rlabels\">{}</div><div class=\"cells\"><svg viewBox=\"0 0 {} {}\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\" "
      "style=\"height:{}px\">{}{}</svg></div><div></div><div class=\"xlabels\">{}</div><div></div><div "
      "class=\"xname\">magnitude</div></div>\n",
      escaped(chart.row_name), labels, window.to - window.from, height, escaped(chart.label),
      22 * std::max<std::size_t>(1, chart.rows.size()), binade::zones_svg(window, chart.range, height), marks,
      binade::axis_html(window, chart.range));
}

}  // namespace mantissa::report
