#include "mantissa/report/number_text.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

namespace mantissa::report {
namespace {

constexpr const char* kThinSpace = "\u202f";

std::string sign_of(double value) {
  return std::signbit(value) ? "−" : "";
}

// "1.3e-5": two digits, without padding of the exponent.
std::string scientific(double magnitude) {
  int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  double digits = magnitude / std::pow(10.0, exponent);
  if (exponent < -300) digits = magnitude * 1e300 / std::pow(10.0, exponent + 300);  // 10^-320 is not exact
  if (digits >= 9.95) {
    digits = 1;
    ++exponent;
  }
  std::string text = fmt::format("{:.1f}", digits);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return fmt::format("{}e{}", text, exponent);
}

// Without zeros at the end of the fraction.
std::string fixed(double magnitude, int decimals) {
  std::string text = fmt::format("{:.{}f}", magnitude, decimals);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string count_text(std::int64_t value) {
  std::string digits = std::to_string(value);
  const bool negative = digits.front() == '-';
  if (negative) digits.erase(0, 1);
  if (digits.size() > 4)  // four digits need no groups
    for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, kThinSpace);
  return (negative ? "−" : "") + digits;
}

std::string number_text(double value) {
  if (std::isnan(value)) return kNoNumber;
  if (value == 0) return "0";
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign_of(value) + "∞";
  if (magnitude >= 1e7 || magnitude < 1e-3) return sign_of(value) + scientific(magnitude);
  if (magnitude == std::floor(magnitude) || magnitude >= 1000)
    return count_text(static_cast<std::int64_t>(std::llround(value)));
  const int above_point = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  return sign_of(value) + fixed(magnitude, 3 - above_point);
}

std::string share_text(double share) {
  if (std::isnan(share)) return kNoNumber;
  const double percent = std::fabs(share) * 100;
  if (percent == 0) return fmt::format("0{}%", kThinSpace);
  if (std::isinf(percent)) return sign_of(share) + "∞";
  if (percent < 1e-4) return sign_of(share) + scientific(std::fabs(share));
  std::string text;
  if (percent >= 99.95 && percent < 100) {
    text = percent >= 99.995 ? "> 99.99" : fixed(std::floor(percent * 100) / 100, 2);
  } else {
    const int above_point = static_cast<int>(std::floor(std::log10(percent))) + 1;
    const bool nearly_all = percent > 99 && percent < 100;
    text = fixed(percent, nearly_all ? 1 : std::max(0, 2 - above_point));
  }
  return sign_of(share) + text + kThinSpace + "%";
}

std::string power_text(double value) {
  if (!std::isfinite(value) || value == 0) return number_text(value);
  int exponent = 0;
  const double half = std::frexp(std::fabs(value), &exponent);
  if (half != 0.5 || (exponent > -4 && exponent <= 5)) return number_text(value);
  return fmt::format("{}2^{}", sign_of(value), exponent - 1);
}

std::string raised_html(const std::string& text) {
  const auto raised = [](std::string exponent) {
    if (exponent.starts_with('-')) exponent.replace(0, 1, "−");
    return "<sup>" + exponent + "</sup>";
  };
  if (const std::size_t at = text.find("2^"); at != std::string::npos)
    return text.substr(0, at + 1) + raised(text.substr(at + 2));
  const std::size_t at = text.find('e');
  if (at == std::string::npos || at == 0 || std::isdigit(static_cast<unsigned char>(text[at - 1])) == 0)
    return text;
  std::string digits = text.substr(0, at);
  if (digits == "1" || digits == "−1")
    digits.pop_back();
  else
    digits += "·";
  return digits + "10" + raised(text.substr(at + 1));
}

}  // namespace mantissa::report
