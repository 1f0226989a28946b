#include "mantissa/report/binade_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/report/number_text.h"

namespace mantissa::report {

FormatRange range_of(Scalar format) {
  const ScalarTraits& t = traits(format);
  return {std::string(t.name), t.min_normal_exp - t.mantissa_bits, t.min_normal_exp, t.max_finite};
}

BinadeWindow window_of(const std::vector<const Binades*>& all, const FormatRange& range) {
  int low = Binades::kMost + 1, high = Binades::kLeast - 1;
  for (const Binades* b : all)
    for (int e = Binades::kLeast; b != nullptr && e <= Binades::kMost; ++e)
      if (b->at(e) > 0) {
        low = std::min(low, e);
        high = std::max(high, e);
      }
  const int top = static_cast<int>(std::ceil(std::log2(range.max_finite)));
  const bool narrow = top - range.least_exp <= 64;
  if (low > high) return narrow ? BinadeWindow{range.least_exp - 2, top + 2} : BinadeWindow{-16, 16};
  BinadeWindow window{low - 2, high + 3};
  for (const int limit : {range.least_exp, range.normal_exp, top})
    if (narrow || (limit > low - 12 && limit < high + 12)) {
      window.from = std::min(window.from, limit - 2);
      window.to = std::max(window.to, limit + 2);
    }
  return window;
}

std::string binade_legend() {
  return "<ul class=\"legend\"><li><i class=\"after\"></i>stored values</li>"
         "<li><i class=\"before\"></i>the same before rounding</li>"
         "<li><i class=\"zone sub\"></i>subnormal: fewer digits</li>"
         "<li><i class=\"zone lost\"></i>too small: becomes 0</li>"
         "<li><i class=\"zone over\"></i>too large: overflows or saturates</li></ul>\n";
}

namespace binade {

double place(const BinadeWindow& window, double log2_magnitude) {
  return std::clamp(log2_magnitude - window.from, 0.0, static_cast<double>(window.to - window.from));
}

std::string zones_svg(const BinadeWindow& window, const FormatRange& range, int height) {
  const auto zone = [&](const char* name, double from, double to) {
    return to <= from
               ? ""
               : fmt::format("<rect class=\"{}\" x=\"{:.4g}\" y=\"0\" width=\"{:.4g}\" height=\"{}\"/>", name,
                             from, to - from, height);
  };
  const double least = place(window, range.least_exp), normal = place(window, range.normal_exp);
  return zone("lost", 0, least) + zone("sub", least, normal) +
         zone("over", place(window, std::log2(range.max_finite)), window.to - window.from);
}

std::string axis_html(const BinadeWindow& window, const FormatRange& range) {
  struct Label {
    double at;
    std::string html;
    bool limit;
  };
  std::vector<Label> labels;
  const double room = 0.13, room_of_limits = 0.07;  // of a label, as a share of the width
  const auto add = [&](double exponent, std::string html, bool limit) {
    const double at = (exponent - window.from) / std::max(1, window.to - window.from);
    if (at < 0 || at > 1) return;
    if (std::ranges::all_of(
            labels, [&](const Label& l) { return std::fabs(l.at - at) >= (limit ? room_of_limits : room); }))
      labels.push_back({at, std::move(html), limit});
  };
  const auto power = [](int e) { return raised_html(fmt::format("2^{}", e)); };
  add(std::log2(range.max_finite),
      range.max_finite < 1e6 ? number_text(range.max_finite)
                             : power(static_cast<int>(std::ceil(std::log2(range.max_finite)))),
      true);
  add(range.normal_exp, power(range.normal_exp), true);
  add(range.least_exp, power(range.least_exp), true);
  const int span = window.to - window.from;
  const int step = span > 80 ? 20 : span > 32 ? 10 : span > 12 ? 4 : 2;
  add(0, "1", false);
  for (int e = window.from - window.from % step; e < window.to; e += step) add(e, power(e), false);
  std::string out;
  for (const Label& l : labels)
    out += fmt::format("<span{} style=\"left:{:.1f}%\">{}</span>", l.limit ? " class=\"limit\"" : "",
                       100 * l.at, l.html);
  return out;
}

double height_of(double share) {
  return share <= 0 ? 0 : std::clamp((std::log10(share) + 8) / 8, 0.02, 1.0);
}

std::string outline(const Binades& binades, const BinadeWindow& window, int height, int top) {
  const auto total = static_cast<double>(binades.total());
  std::string d;
  int since = window.from;
  int last = -1;  // the height of the binade before, or −1 outside of the outline
  for (int e = window.from; e <= window.to; ++e) {
    const std::uint64_t count =
        e < window.to && e >= Binades::kLeast && e <= Binades::kMost ? binades.at(e) : 0;
    const int up =
        count == 0 ? -1
                   : static_cast<int>(std::lround(height * height_of(static_cast<double>(count) / total)));
    if (up == last) continue;
    if (last < 0)
      d += fmt::format("M{} {}v{}", e - window.from, top + height, -up);
    else
      d += fmt::format("h{}v{}", e - since, last - std::max(0, up));
    since = e;
    last = up;
  }
  return d;
}

bool leaves(const Binades& binades, const FormatRange& range) {
  const int top = static_cast<int>(std::ceil(std::log2(range.max_finite)));
  for (int e = Binades::kLeast; e <= Binades::kMost; ++e)
    if ((e < range.least_exp || e >= top) && binades.at(e) > 0) return true;
  return false;
}

}  // namespace binade
}  // namespace mantissa::report
