// Filters that give numbers, and `default`.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/text_search.h"

namespace mantissa::chat {

namespace {

// A number as int(text, base) reads it: white space around, a sign, single underscores between digits.
std::optional<std::int64_t> read_integer(std::string_view text, int base) {
  text = strip_text(text, nullptr, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&](char letter, int of) {
    if ((base == of || base == 0) && text.size() > 2 && text[0] == '0' && (text[1] | 32) == letter) {
      text.remove_prefix(text[2] == '_' ? 3 : 2);
      base = of;
    }
  };
  prefix('x', 16);
  prefix('o', 8);
  prefix('b', 2);
  if (base == 0) base = 10;
  std::string digits = negative ? "-" : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '-' || text[i] == '+') return std::nullopt;
    if (text[i] == '_') {
      if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') return std::nullopt;
    } else {
      digits += text[i];
    }
  }
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n, base);
  if (error == std::errc::result_out_of_range) throw Fault("the integer does not fit 64 bits");
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return n;
}

// A number as float(text) reads it.
std::optional<double> read_real(std::string_view text) {
  text = strip_text(text, nullptr, true, true);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t k) { return k < text.size() && text[k] >= '0' && text[k] <= '9'; };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    digits += static_cast<char>(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
  }
  std::string_view rest = digits;
  double sign = 1;
  if (rest.starts_with('-') || rest.starts_with('+')) {
    sign = rest[0] == '-' ? -1 : 1;
    rest.remove_prefix(1);
  }
  if (rest == "inf" || rest == "infinity") return sign * HUGE_VAL;
  if (rest == "nan") return std::nan("");
  if (rest.find_first_not_of("0123456789.e+-") != std::string_view::npos || rest.starts_with('-') ||
      rest.starts_with('+'))
    return std::nullopt;
  double d = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), d);
  if (end != rest.data() + rest.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    d = std::strtod(digits.c_str() + (digits[0] == '-' || digits[0] == '+'), nullptr);
  return sign * d;
}

std::optional<std::int64_t> truncated(double d) {
  if (std::isnan(d) || std::isinf(d)) return std::nullopt;
  if (std::fabs(d) >= 9223372036854775808.0) throw Fault("the integer does not fit 64 bits");
  return static_cast<std::int64_t>(d);
}

Value number_int(Interpreter&, const Value& input, Arguments& a) {
  const Parameters p("int", a, {"default", "base"});
  require_defined(input);
  const Value preset = p.given(0) ? p.at(0) : Value(std::int64_t{0});
  if (const auto i = input.as_integer()) return Value(*i);
  if (const double* d = input.real()) {
    if (std::isinf(*d)) throw Fault("infinity is not an integer");
    const auto i = truncated(*d);
    return i ? Value(*i) : preset;
  }
  if (!input.text()) return preset;
  const std::int64_t base = p.integer(1, 10);
  if (base < 0 || base == 1 || base > 36) return preset;
  if (const auto i = read_integer(input.text()->bytes, static_cast<int>(base))) return Value(*i);
  const auto d = read_real(input.text()->bytes);
  const auto i = d ? truncated(*d) : std::nullopt;
  return i ? Value(*i) : preset;
}

Value number_float(Interpreter&, const Value& input, Arguments& a) {
  const Parameters p("float", a, {"default"});
  require_defined(input);
  if (const auto d = input.as_number()) return Value(*d);
  if (input.text()) {
    if (const auto d = read_real(input.text()->bytes)) return Value(*d);
  }
  return p.given(0) ? p.at(0) : Value(0.0);
}

Value number_abs(Interpreter&, const Value& input, Arguments& a) {
  const Parameters p("abs", a, {});
  require_defined(input);
  if (const auto i = input.as_integer()) {
    if (*i == INT64_MIN) throw Fault("the integer does not fit 64 bits");
    return Value(*i < 0 ? -*i : *i);
  }
  if (const double* d = input.real()) return Value(std::fabs(*d));
  throw Fault("abs takes a number, not '{}'", type_name(input));
}

// round(d, digits) to nearest even in decimal, from the exact digits of d.
double round_decimal(double d, std::int64_t digits) {
  if (!std::isfinite(d) || digits > 323) return d;
  if (digits < -308) return std::copysign(0.0, d);
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", d, digits).c_str(), nullptr);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / scale) * scale;
}

Value number_round(Interpreter&, const Value& input, Arguments& a) {
  const Parameters p("round", a, {"precision", "method"});
  const std::int64_t precision = p.integer(0, 0);
  const std::string method = p.given(1) ? p.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    throw Fault("round: the method must be common, ceil or floor");
  require_defined(input);
  const auto d = input.as_number();
  if (!d) throw Fault("round takes a number, not '{}'", type_name(input));
  if (method == "common") {
    if (const auto i = input.as_integer()) {
      if (precision >= 0) return Value(*i);
      return Value(static_cast<std::int64_t>(round_decimal(*d, precision)));
    }
    return Value(round_decimal(*d, precision));
  }
  if (precision < -15 || precision > 300) throw Fault("round: the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *d * scale;
  if (!std::isfinite(scaled)) throw Fault("round: the number is out of range");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value number_length(Interpreter&, const Value& input, Arguments& a) {
  const Parameters p("length", a, {});
  const auto n = length_of(input);
  if (!n)
    throw Fault("'{}' has no length{}", type_name(input),
                input.as<Iterator>() ? ". Fix: add the filter 'list' before it" : "");
  return Value(static_cast<std::int64_t>(*n));
}

Value number_default(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("default", a, {"default_value", "boolean"});
  if (!input.is_undefined() && !(p.flag(1, false) && !truth(input))) return input;
  return p.given(0) ? p.at(0) : make_text(in.meter(), "");
}

Value number_filesize(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("filesizeformat", a, {"binary"});
  require_defined(input);
  const auto given = input.text() ? read_real(input.text()->bytes) : input.as_number();
  if (!given) throw Fault("filesizeformat takes a number, not '{}'", type_name(input));
  const bool binary = p.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (*given == 1) return make_text(in.meter(), "1 Byte");
  if (*given < base) return make_text(in.meter(), fmt::format("{:.0f} Bytes", std::trunc(*given) + 0.0));
  static constexpr std::string_view kUnits = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kUnits.size() && *given >= unit; ++i) unit *= base;
  const std::string name =
      binary ? fmt::format("{}iB", i == 0 ? 'K' : kUnits[i]) : fmt::format("{}B", kUnits[i]);
  return make_text(in.meter(), fmt::format("{:.1f} {}", base * *given / unit, name));
}

}  // namespace

std::span<const FilterRow> number_filters() {
  static constexpr FilterRow kRows[] = {
      {"int", number_int},         {"float", number_float},   {"abs", number_abs},
      {"round", number_round},     {"length", number_length}, {"count", number_length},
      {"default", number_default}, {"d", number_default},     {"filesizeformat", number_filesize}};
  return kRows;
}

}  // namespace mantissa::chat
