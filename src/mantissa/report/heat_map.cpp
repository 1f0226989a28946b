#include "mantissa/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "mantissa/report/html.h"
#include "mantissa/report/number_text.h"

namespace mantissa::report {
namespace {

// "4", or "4–7" for joined columns.
std::string column_text(const HeatMap& map, std::size_t from, std::size_t to) {
  const std::string &first = map.columns[from], &last = map.columns[to];
  if (from == to) return first;
  return first.substr(0, first.find("–")) + "–" +
         (last.find("–") == std::string::npos ? last : last.substr(last.find("–") + std::string("–").size()));
}

constexpr int kLabel = 11;        // pixels that a label needs
constexpr int kGapFrom = 8;       // pixels of a row from which on there is a gap between rows
constexpr std::size_t kFew = 12;  // columns that would be too wide on a wide screen

// The marks of a row in a box of 1 unit for each column, 10 units high. A mark is `height` units high.
std::string row_svg(const HeatMap& map, std::size_t row, const ColorScale& scale, int height) {
  const HeatRow& r = map.rows[row];
  std::string out;
  const std::size_t columns = std::min(r.values.size(), map.columns.size());
  for (std::size_t from = 0; from < columns;) {
    if (std::isnan(r.values[from])) {
      ++from;
      continue;
    }
    const int color = scale.class_of(r.values[from]);
    std::size_t to = from;
    while (to + 1 < columns && !std::isnan(r.values[to + 1]) && scale.class_of(r.values[to + 1]) == color)
      ++to;
    const auto [low, high] = std::minmax_element(r.values.begin() + static_cast<std::ptrdiff_t>(from),
                                                 r.values.begin() + static_cast<std::ptrdiff_t>(to) + 1);
    std::string values = scale.text(*low);
    if (scale.text(*high) != values) values += " to " + scale.text(*high);
    out += fmt::format("<path class=\"{}\" d=\"M{} {}h{}v{}h-{}z\"><title>{}\n{} {}: {}</title></path>",
                       scale.css_of(color), from, row * 10, to + 1 - from, height, to + 1 - from,
                       escaped(r.name), escaped(map.column_name), escaped(column_text(map, from, to)),
                       escaped(values));
    from = to + 1;
  }
  return out;
}

bool is_word(const HeatRow& row) {
  return row.label.find_first_not_of("0123456789") != std::string::npos;
}

// The height of a row in pixels.
int row_height(const HeatMap& map) {
  constexpr int kLeast = 4, kMost = 15, kOfWords = 12;
  constexpr std::size_t kManyRows = 40;
  const int pixels =
      std::clamp(map.height / static_cast<int>(std::max<std::size_t>(1, map.rows.size())), kLeast, kMost);
  const bool words = std::ranges::adjacent_find(map.rows, [](const HeatRow& a, const HeatRow& b) {
                       return is_word(a) && is_word(b);
                     }) != map.rows.end();
  return words && map.rows.size() <= kManyRows ? std::max(pixels, kOfWords) : pixels;
}

// The labels of rows `pixels` high. Words are always shown: one without room joins the word before it.
// Numbers are shown where there is room: all, or those that 2, 5 or 10 divide.
std::string row_labels(const HeatMap& map, int pixels) {
  const int every = pixels >= kLabel ? 1 : 2 * pixels >= kLabel ? 2 : 5 * pixels >= kLabel ? 5 : 10;
  const auto near = [&](std::size_t i, std::size_t j) {
    return std::abs(static_cast<int>(i) - static_cast<int>(j)) * pixels < kLabel;
  };
  std::vector<std::string> labels(map.rows.size());
  std::size_t last = map.rows.size();  // row of the last word
  for (std::size_t i = 0; i < map.rows.size(); ++i) {
    if (!is_word(map.rows[i])) continue;
    if (last < map.rows.size() && near(i, last)) {
      labels[last] += ", " + map.rows[i].label;
      continue;
    }
    labels[i] = map.rows[i].label;
    last = i;
  }
  std::string out;
  for (std::size_t i = 0; i < map.rows.size(); ++i) {
    bool shown = !is_word(map.rows[i]) && std::atoi(map.rows[i].label.c_str()) % every == 0;
    for (std::size_t j = 0; j < map.rows.size() && shown; ++j)
      if (is_word(map.rows[j]) && near(i, j)) shown = false;
    out += fmt::format("<span>{}</span>", escaped(shown ? map.rows[i].label : labels[i]));
  }
  return out;
}

// Labels at a distance that leaves room for each.
std::string column_labels(const HeatMap& map) {
  const std::size_t count = map.columns.size();
  if (count == 0) return "";
  std::size_t widest = 1;
  for (const std::string& c : map.columns) widest = std::max(widest, c.size());
  // Few columns are at least 60 pixels wide.
  const std::size_t most =
      count < kFew && widest <= 6 ? count : std::clamp<std::size_t>(40 / (widest + 2), 2, 8);
  const std::size_t every = (count + most - 1) / most;
  std::string out;
  for (std::size_t i = 0; i < count; i += every)
    out += fmt::format("<span style=\"left:{:.2f}%\">{}</span>",
                       100 * (static_cast<double>(i) + 0.5) / static_cast<double>(count),
                       escaped(map.columns[i]));
  return out;
}

}  // namespace

int ColorScale::class_of(double value) const {
  const double magnitude = std::fabs(value);
  const auto reached =
      static_cast<int>(std::ranges::count_if(bounds, [&](double b) { return magnitude >= b; }));
  if (is_signed) return value < 0 ? -reached : reached;
  return magnitude == 0 ? 0 : reached + 1;
}

std::string ColorScale::css_of(int color) const {
  if (is_signed) return color < 0 ? fmt::format("n{}", -color) : fmt::format("p{}", color);
  if (!high_is_good) return fmt::format("c{}", color);
  // The colours of a signed scale, from its warm end to its blue one: they differ in lightness within each
  // half.
  static constexpr std::array kWarmToBlue = {"p4", "p3", "p2", "p1", "n1", "n2", "n3", "n4"};
  const double last = static_cast<double>(bounds.size()) + 1;  // the class of the highest values
  return kWarmToBlue.at(static_cast<std::size_t>(std::lround(color * (kWarmToBlue.size() - 1) / last)));
}

std::string to_html(const HeatMap& map, const ColorScale& scale) {
  const std::size_t rows = std::max<std::size_t>(1, map.rows.size());
  const int pixels = row_height(map);
  std::string marks;
  for (std::size_t i = 0; i < map.rows.size(); ++i)
    marks += row_svg(map, i, scale, pixels < kGapFrom ? 10 : 9);
  const std::string width =
      map.columns.size() < kFew ? fmt::format(";max-width:{}px", 260 + 60 * map.columns.size()) : "";
  return fmt::format(
      "<div class=\"heat\" style=\"--row:{}px{}\"><div class=\"rname\">{}</div><div></div>"
      "<div class=\"rlabels\">{}</div><div class=\"cells\"><svg viewBox=\"0 0 {} {}\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\" "
      "style=\"height:{}px\">{}</svg></div><div></div><div class=\"xlabels\">{}</div><div></div><div "
      "class=\"xname\">{}</div></div>\n",
      pixels, width, escaped(map.row_name), row_labels(map, pixels),
      std::max<std::size_t>(1, map.columns.size()), rows * 10, escaped(map.label),
      static_cast<int>(rows) * pixels, marks, column_labels(map), escaped(map.column_name));
}

std::size_t marks_of(const HeatMap& map, const ColorScale& scale) {
  std::size_t marks = 0;
  for (const HeatRow& r : map.rows)
    for (std::size_t i = 0; i < r.values.size(); ++i)
      if (!std::isnan(r.values[i]) && (i == 0 || std::isnan(r.values[i - 1]) ||
                                       scale.class_of(r.values[i]) != scale.class_of(r.values[i - 1])))
        ++marks;
  return marks;
}

bool has_missing(const HeatMap& map) {
  return std::ranges::any_of(map.rows, [&](const HeatRow& r) {
    return r.values.size() < map.columns.size() ||
           std::ranges::any_of(r.values, [](double v) { return std::isnan(v); });
  });
}

std::string legend_html(const ColorScale& scale, bool missing) {
  std::string out =
      fmt::format("<div class=\"scale\"><span class=\"sname\">{}</span><ol>", escaped(scale.name));
  const auto entry = [&](const std::string& css, const std::string& html, const char* item = "") {
    out += fmt::format("<li{}><i class=\"{}\"></i><span>{}</span></li>", item, css, html);
  };
  const auto bound = [&](std::size_t i) { return raised_html(escaped(scale.text(scale.bounds[i]))); };
  const std::size_t count = scale.bounds.size();
  if (scale.is_signed) {
    for (std::size_t i = count; i-- > 0;) entry(fmt::format("n{}", i + 1), "−" + bound(i));
    entry("p0", "0");
    for (std::size_t i = 0; i < count; ++i) entry(fmt::format("p{}", i + 1), "+" + bound(i));
  } else {
    entry(scale.css_of(0), "0");
    entry(scale.css_of(1), "&gt; 0");
    for (std::size_t i = 0; i < count; ++i) entry(scale.css_of(static_cast<int>(i) + 2), bound(i));
  }
  if (missing) entry("none", "not measured", " class=\"gap\"");
  return out + "</ol></div>\n";
}

void join_columns(HeatMap& map, std::size_t most) {
  const std::size_t count = map.columns.size();
  if (count <= most || most == 0) return;
  const std::size_t each = (count + most - 1) / most;
  std::vector<std::string> columns;
  for (std::size_t from = 0; from < count; from += each)
    columns.push_back(column_text(map, from, std::min(count, from + each) - 1));
  for (HeatRow& row : map.rows) {
    std::vector<double> values;
    for (std::size_t from = 0; from < count; from += each) {
      double largest = std::nan("");
      for (std::size_t i = from; i < std::min({count, from + each, row.values.size()}); ++i)
        if (std::isnan(largest) || std::fabs(row.values[i]) > std::fabs(largest)) largest = row.values[i];
      values.push_back(largest);
    }
    row.values = std::move(values);
  }
  map.columns = std::move(columns);
}

}  // namespace mantissa::report
