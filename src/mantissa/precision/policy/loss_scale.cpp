// The text form of a loss scale: "none", "dynamic:2^16", "128".
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/loss_scale.h"

namespace mantissa::precision {
namespace {

constexpr double kDefaultInitial = 65536;

template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Parses "2^16" or "65536" as a loss scale.
std::optional<double> scale_number(std::string_view text) {
  std::optional<double> value;
  if (text.starts_with("2^")) {
    const std::optional<int> exponent = whole_number<int>(text.substr(2));
    if (exponent && std::abs(*exponent) <= 127) value = std::ldexp(1.0, *exponent);
  } else {
    value = whole_number<double>(text);
  }
  if (!value || !is_loss_scale(*value)) return std::nullopt;
  return value;
}

}  // namespace

std::string LossScale::str() const {
  if (kind == Kind::none) return "none";
  if (kind == Kind::constant) return fmt::format("{}", value);
  int exponent = 0;
  const bool power_of_two = std::frexp(value, &exponent) == 0.5;
  return power_of_two ? fmt::format("dynamic:2^{}", exponent - 1) : fmt::format("dynamic:{}", value);
}

bool is_loss_scale(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return value >= 1 / kMost && value <= kMost;
}

LossScale parse_loss_scale(std::string_view text) {
  constexpr std::string_view kDynamic = "dynamic";
  if (text == "none") return {};
  if (text == kDynamic) return {LossScale::Kind::dynamic, kDefaultInitial};
  if (text == "0") {
    throw ConfigError(
        "loss_scale=0: a scale of 0 erases the gradients; write loss_scale=dynamic (DeepSpeed's meaning of "
        "0) or loss_scale=none");
  }
  const bool dynamic = text.starts_with("dynamic:");
  const std::optional<double> value = scale_number(dynamic ? text.substr(kDynamic.size() + 1) : text);
  if (!value) {
    throw ConfigError(
        "loss_scale={}: not a loss scale; write none, dynamic:2^16 (the initial scale), or a constant such "
        "as 128, from 2^-127 to 2^127",
        in_quotes(text));
  }
  return {dynamic ? LossScale::Kind::dynamic : LossScale::Kind::constant, *value};
}

}  // namespace mantissa::precision
