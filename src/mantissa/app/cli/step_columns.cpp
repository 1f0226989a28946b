#include "mantissa/app/cli/step_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

const double* find_metric(const api::Step& s, std::string_view name) {
  for (const auto& [metric, value] : s.metrics) {
    if (metric == name) return &value;
  }
  return nullptr;
}

}  // namespace

std::string power_text(double scale) {
  int power = 0;
  return std::frexp(scale, &power) == 0.5 ? fmt::format("2^{}", power - 1) : fmt::format("{:.4g}", scale);
}

std::string clock_text(double seconds) {
  const auto s = std::llround(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

StepColumns::StepColumns(const api::Step& first)
    : online_(find_metric(first, "policy_loss") != nullptr), scales_(first.loss_scale.has_value()) {
  using As = Column::As;
  static const std::vector<Column> kOffline = {{"masked_share", "mask", 4, As::share},
                                               {"padding_share", "pad", 4, As::share},
                                               {"accuracy", "acc", 4, As::share},
                                               {"margin", "margin", 8, As::number}};
  static const std::vector<Column> kOnline = {
      {"reward", "reward", 8, As::number},          {"accuracy", "acc", 4, As::share},
      {"response_length", "length", 6, As::tokens}, {"kl", "kl", 8, As::small},
      {"entropy", "entropy", 7, As::number},        {"rollout_difference", "mismatch", 8, As::small}};
  for (const Column& column : online_ ? kOnline : kOffline) {
    if (online_ || find_metric(first, column.metric) != nullptr) columns_.push_back(column);
  }
}

std::string StepColumns::text_of(const Column& column) {
  if (!column.value) return "–";
  const double value = *column.value;
  switch (column.as) {
    case Column::As::share:
      return fmt::format("{:.0f}%", 100 * value);
    case Column::As::tokens:
      return fmt::format("{:.1f}", value);
    case Column::As::number:
      return fmt::format("{:.4f}", value);
    case Column::As::small:
      return value == 0 ? "0" : fmt::format("{:.1e}", value);
  }
  return {};
}

std::string StepColumns::headings() const {
  std::string text = fmt::format("{:>6}", "step");
  if (!online_) text += fmt::format(" {:>8} {:>7} {:>9}", "loss", "gnorm", "lr");
  if (!online_ && scales_) text += "  scale";
  for (const Column& c : columns_) text += fmt::format(" {:>{}}", c.heading, c.width);
  if (online_) text += fmt::format(" {:>7}{}", "gnorm", scales_ ? "  scale" : "");
  text += fmt::format(" {:>8}", "tok/s");
  if (!online_) text += fmt::format(" {:>5}", "peak");
  return text + fmt::format(" {:>8}", "left");
}

std::string StepColumns::row(const api::Step& s) {
  const std::string gnorm = fmt::format(" {:>7.3f}", std::abs(s.grad_norm));
  const std::string scale = s.loss_scale ? fmt::format(" {:>6}", power_text(*s.loss_scale)) : "";
  std::string text = fmt::format("{:>6}", s.step);
  if (!online_) text += fmt::format(" {:>8.4f}{} {:>9.2e}{}", s.loss, gnorm, s.lr, scale);
  for (Column& c : columns_) {
    if (const double* value = find_metric(s, c.metric)) c.value = *value;
    const std::string value = text_of(c);
    text += std::string(1 + static_cast<std::size_t>(std::max<std::int64_t>(
                                0, c.width - static_cast<std::int64_t>(width_of(value)))),
                        ' ') +
            value;
  }
  if (online_) text += gnorm + scale;
  text += fmt::format(" {:>8.0f}", s.tokens_per_second);
  if (!online_) text += fmt::format(" {:>4.0f}%", 100 * s.peak_share);
  return text + fmt::format(" {:>8}", clock_text(s.seconds_left));
}

}  // namespace mantissa::cli
