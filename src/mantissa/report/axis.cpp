#include "mantissa/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/report/number_text.h"

namespace mantissa::report {
namespace {

constexpr double kMost = 1e300;      // larger values are drawn at the end, so that differences are finite
constexpr double kLeastSpan = 1e-9;  // of an axis, relative to its values

// The least of 1, 2, 5 times a power of ten that is at least `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

}  // namespace

Axis::Axis(Spacing spacing, const std::vector<double>& values, bool rounded, const Bounds& bounds)
    : spacing_(spacing) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double v : values) {
    if (!(std::fabs(v) <= kMost) || (spacing != Spacing::linear && v <= 0)) continue;
    low = std::min(low, scaled(v));
    high = std::max(high, scaled(v));
  }
  if (low > high) return;
  // Values that are equal, or nearly, lie in the middle: steps between them would vanish in rounding.
  if (high - low <= kLeastSpan * std::max(std::fabs(low), std::fabs(high)) || high - low < 1 / kMost) {
    const double tenth = std::fabs(low) * 0.1;
    const double margin = spacing != Spacing::linear || tenth < 1 / kMost ? 1 : tenth;
    low -= margin;
    high += margin;
  }
  if (rounded) {
    step_ = spacing == Spacing::linear ? round_step((high - low) / 4) : 1;
    low = std::floor(low / step_ + 1e-9) * step_;
    high = std::ceil(high / step_ - 1e-9) * step_;
  }
  if (spacing == Spacing::linear) {
    if (bounds.least && *bounds.least < high) low = std::max(low, *bounds.least);
    if (bounds.most && *bounds.most > low) high = std::min(high, *bounds.most);
  }
  low_ = low;
  high_ = high;
}

double Axis::scaled(double value) const {
  switch (spacing_) {
    case Spacing::log2:
      return std::log2(value);
    case Spacing::log10:
      return std::log10(value);
    case Spacing::linear:
      break;
  }
  return value;
}

std::optional<double> Axis::at(double value) const {
  if (!std::isfinite(value)) return std::nullopt;
  if (spacing_ != Spacing::linear) {
    if (value < 0) return std::nullopt;
    if (value == 0) return 0.0;
  }
  return std::clamp((scaled(value) - low_) / (high_ - low_), 0.0, 1.0);
}

std::vector<Tick> Axis::ticks(int most, bool whole) const {
  std::vector<Tick> out;
  const double span = high_ - low_;
  const bool ends_fit = spacing_ == Spacing::linear && step_ > 0 && span / step_ < most + 0.5;
  double step = ends_fit ? step_ : round_step(span / std::max(1, most - 1));
  if (spacing_ != Spacing::linear || whole) step = std::max(1.0, std::ceil(step - 1e-9));
  for (double v = std::ceil(low_ / step - 1e-9) * step; v <= high_ + span * 1e-9; v += step) {
    if (std::fabs(v) < step * 1e-6) v = 0;
    std::string text = number_text(v);
    if (spacing_ == Spacing::log2)
      text = v >= 0 && v < 10 ? number_text(std::exp2(v)) : fmt::format("2^{:.0f}", v);
    if (spacing_ == Spacing::log10)
      text = v >= -2 && v < 5 ? number_text(std::pow(10, v)) : fmt::format("1e{:.0f}", v);
    out.push_back({std::clamp((v - low_) / span, 0.0, 1.0), raised_html(text)});
    if (spacing_ != Spacing::log10 || span > 2) continue;
    for (const double digit : {2.0, 5.0})  // few decades have room for more labels
      if (const double place = (v + std::log10(digit) - low_) / span; place < 1)
        out.push_back({place, raised_html(number_text(digit * std::pow(10, v)))});
  }
  return out;
}

std::string coordinate(double place) {
  std::string text = fmt::format("{:.1f}", place * 1000);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

}  // namespace mantissa::report
