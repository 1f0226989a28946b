#include "mantissa/chat/format.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/chat/access.h"
#include "mantissa/chat/arguments.h"
#include "mantissa/chat/error.h"
#include "mantissa/chat/interpreter.h"
#include "mantissa/chat/print.h"
#include "mantissa/chat/unicode.h"

namespace mantissa::chat {

namespace {

constexpr std::int64_t kWidest = 10'000'000;

// What both kinds of formats say about one value.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ or =, or none
  char sign = '-';
  bool alternate = false;
  std::int64_t width = 0;
  bool grouping = false;
  std::int64_t precision = -1;
  char type = '\0';
};

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > kWidest) throw Fault("a format has too large a width");
  }
  return n;
}

std::string pad(const Spec& spec, const std::string& sign, const std::string& body, char preset,
                Meter& meter) {
  const std::size_t size = unicode::length(sign) + unicode::length(body);
  const auto width = static_cast<std::size_t>(spec.width);
  if (size >= width) return sign + body;
  const std::size_t missing = width - size;
  meter.allocate(missing * spec.fill.size());
  const auto fill = [&](std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align ? spec.align : preset) {
    case '<':
      return sign + body + fill(missing);
    case '^':
      return fill(missing / 2) + sign + body + fill(missing - missing / 2);
    case '=':
      return sign + fill(missing) + body;
    default:
      return fill(missing) + sign + body;
  }
}

std::string group_thousands(const std::string& digits) {
  std::size_t whole = 0;
  while (whole < digits.size() && digits[whole] >= '0' && digits[whole] <= '9') ++whole;
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_integer(const Spec& spec, std::int64_t n, Meter& meter) {
  const std::uint64_t magnitude = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
  std::string body, prefix;
  switch (spec.type) {
    case 'x':
      body = fmt::format("{:x}", magnitude), prefix = "0x";
      break;
    case 'X':
      body = fmt::format("{:X}", magnitude), prefix = "0X";
      break;
    case 'o':
      body = fmt::format("{:o}", magnitude), prefix = "0o";
      break;
    case 'b':
      body = fmt::format("{:b}", magnitude), prefix = "0b";
      break;
    default:
      body = std::to_string(magnitude);
  }
  if (spec.grouping) body = group_thousands(body);
  return pad(spec, sign_of(spec, n < 0) + (spec.alternate ? prefix : ""), body, '>', meter);
}

std::string format_real(const Spec& spec, double d, Meter& meter) {
  if (spec.precision > 10000) throw Fault("a format has too large a precision");
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double magnitude = std::fabs(d);
  std::string body;
  switch (spec.type) {
    case 'e':
      body = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      body = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
      body = fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision);
      break;
    case 'G':
      body = fmt::format("{:.{}G}", magnitude, precision == 0 ? 1 : precision);
      break;
    case '%':
      body = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case '\0':
      if (spec.precision >= 0)
        throw Fault("a precision without a type is not supported for numbers. Fix: add 'f' or 'g'");
      body = repr_real(magnitude);
      break;
    default:
      body = fmt::format("{:.{}f}", magnitude, precision);
  }
  if (spec.grouping) body = group_thousands(body);
  return pad(spec, sign_of(spec, std::signbit(d) && !std::isnan(d)), body, '>', meter);
}

std::string format_text(const Spec& spec, std::string text, Meter& meter) {
  if (spec.precision >= 0)
    text = text.substr(0, unicode::offset(text, static_cast<std::size_t>(spec.precision)));
  return pad(spec, "", text, '<', meter);
}

// Takes the arguments of % in turn, or by name.
class PercentArguments {
 public:
  PercentArguments(const Value& argument, Meter& meter) : argument_(argument), meter_(meter) {
    tuple_ = argument.list() && argument.list()->tuple ? argument.list() : nullptr;
  }
  Value next() {
    if (tuple_ ? at_ >= tuple_->items.size() : at_ > 0)
      throw Fault("not enough arguments for the format string");
    ++at_;
    return tuple_ ? tuple_->items[at_ - 1] : argument_;
  }
  Value named(std::string_view name) {
    if (!argument_.dict()) throw Fault("the format needs a mapping");
    named_ = true;
    const Value* found = argument_.dict()->find(name);
    if (!found) throw Fault(fmt::format("the mapping of the format has no key '{}'", name));
    return *found;
  }
  std::int64_t next_integer() {
    const auto n = next().as_integer();
    if (!n) throw Fault("'*' wants an integer");
    if (*n > kWidest || *n < -kWidest) throw Fault("a format has too large a width");
    return *n;
  }
  void done() const {
    const bool all =
        tuple_ ? at_ == tuple_->items.size()
               : at_ == 1 || named_ || argument_.dict() || argument_.list() || argument_.is_undefined();
    if (!all) throw Fault("not all arguments are converted by the format string");
  }

 private:
  const Value& argument_;
  Meter& meter_;
  const List* tuple_;
  std::size_t at_ = 0;
  bool named_ = false;
};

std::string convert_percent(Spec spec, const Value& v, Meter& meter) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a':
      if (spec.type == 'a') throw Fault("%a is not supported. Fix: use %r");
      return format_text(spec, spec.type == 's' ? str(v, meter) : repr(v, meter), meter);
    case 'c': {
      std::string c;
      if (v.text() && v.text()->length == 1) {
        c = v.text()->bytes;
      } else if (const auto n = v.as_integer();
                 n && *n >= 0 && *n <= 0x10FFFF && (*n < 0xD800 || *n > 0xDFFF)) {
        unicode::append(c, static_cast<char32_t>(*n));
      } else {
        throw Fault("%c needs a character");
      }
      return format_text(spec, c, meter);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      require_defined(v);
      auto n = v.as_integer();
      if (!n && v.real() && spec.type != 'x' && spec.type != 'X' && spec.type != 'o' &&
          std::fabs(*v.real()) < 9e18) {
        n = static_cast<std::int64_t>(*v.real());
      }
      if (!n) throw Fault(fmt::format("%{} needs a number, not '{}'", spec.type, type_name(v)));
      if (spec.precision >= 0)
        throw Fault("a precision for integers is not supported. Fix: use a width with 0");
      return format_integer(spec, *n, meter);
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      require_defined(v);
      const auto d = v.as_number();
      if (!d) throw Fault(fmt::format("%{} needs a number, not '{}'", spec.type, type_name(v)));
      return format_real(spec, *d, meter);
    }
    default:
      throw Fault(fmt::format("unsupported format character '{}'", spec.type));
  }
}

Spec parse_braces_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  const std::size_t first = text.empty() ? 0 : unicode::size_at(text, 0);
  if (first > 0 && is_align(first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') spec.alternate = true, ++at;
  if (at < text.size() && text[at] == '0') {
    if (!spec.align) spec.fill = "0", spec.align = '=';
    ++at;
  }
  spec.width = read_number(text, at);
  if (at < text.size() && text[at] == ',') spec.grouping = true, ++at;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (at >= text.size() || text[at] < '0' || text[at] > '9') throw Fault("a format lacks its precision");
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw Fault(fmt::format("the format '{}' is not supported", text));
  return spec;
}

std::string convert_braces(const Spec& spec, const Value& v, Meter& meter) {
  require_defined(v);
  constexpr std::string_view kReal = "eEfFgG%";
  const bool real = spec.type && kReal.find(spec.type) != std::string_view::npos;
  if (v.boolean() && !spec.type) return format_text(spec, str(v, meter), meter);
  if (const auto n = v.as_integer(); n && !real) {
    if (spec.type && std::string_view("dxXobn").find(spec.type) == std::string_view::npos) {
      throw Fault(fmt::format("an integer cannot have the format '{}'", spec.type));
    }
    if (spec.precision >= 0) throw Fault("an integer cannot have a precision");
    return format_integer(spec, *n, meter);
  }
  if (v.as_number()) {
    if (!real && spec.type) throw Fault(fmt::format("a number cannot have the format '{}'", spec.type));
    return format_real(spec, *v.as_number(), meter);
  }
  if (spec.type && spec.type != 's')
    throw Fault(fmt::format("'{}' cannot have the format '{}'", type_name(v), spec.type));
  if (spec.align == '=') throw Fault("'=' aligns numbers only");
  return format_text(spec, str(v, meter), meter);
}

// The value of a replacement field: "", "0", "name", each with .attribute and [item].
Value field_value(Interpreter& in, std::string_view field, Arguments& arguments, std::int64_t& automatic) {
  std::size_t at = std::min(field.find_first_of(".["), field.size());
  const std::string name(field.substr(0, at));
  Value value;
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
    std::size_t end = 0;
    if (name.empty() ? automatic < 0 : automatic > 0) throw Fault("a format cannot mix '{}' and '{0}'");
    const std::int64_t i = name.empty() ? automatic++ : read_number(name, end);
    if (!name.empty()) automatic = -1;
    if (static_cast<std::size_t>(i) >= arguments.positional.size())
      throw Fault("not enough arguments for the format string");
    value = arguments.positional[static_cast<std::size_t>(i)];
  } else {
    const auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                                 [&](const auto& a) { return a.first == name; });
    if (it == arguments.named.end()) throw Fault(fmt::format("the format needs the argument '{}'", name));
    value = it->second;
  }
  while (at < field.size()) {
    const bool attribute = field[at++] == '.';
    const std::size_t end =
        attribute ? std::min(field.find_first_of(".[", at), field.size()) : field.find(']', at);
    if (end == std::string_view::npos || end == at) throw Fault("a format has an incomplete field");
    const std::string key(field.substr(at, end - at));
    const bool number = key.find_first_not_of("0123456789") == std::string::npos;
    std::size_t digits = 0;
    const Value k = number && !attribute ? Value(read_number(key, digits)) : make_text(in.meter(), key);
    value = attribute ? get_attribute(in, value, k) : get_item(in, value, k);
    at = attribute ? end : end + 1;
  }
  return value;
}

}  // namespace

std::string format_percent(std::string_view format, const Value& argument, Meter& meter) {
  PercentArguments arguments(argument, meter);
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t percent = std::min(format.find('%', at), format.size());
    out += format.substr(at, percent - at);
    at = percent + 1;
    if (percent == format.size()) break;
    Spec spec;
    std::optional<Value> value;
    if (at < format.size() && format[at] == '(') {
      const std::size_t end = format.find(')', at);
      if (end == std::string_view::npos) throw Fault("a format has an incomplete key");
      value = arguments.named(format.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    for (; at < format.size() && std::string_view("#0- +").find(format[at]) != std::string_view::npos; ++at) {
      const char flag = format[at];
      if (flag == '#') spec.alternate = true;
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '0' && spec.align != '<') spec.align = '=';
    }
    if (at < format.size() && format[at] == '*') {
      spec.width = arguments.next_integer();
      if (spec.width < 0) spec.width = -spec.width, spec.align = '<';
      ++at;
    } else {
      spec.width = read_number(format, at);
    }
    if (at < format.size() && format[at] == '.') {
      ++at;
      if (at < format.size() && format[at] == '*') {
        spec.precision = std::max<std::int64_t>(arguments.next_integer(), 0);
        ++at;
      } else {
        spec.precision = read_number(format, at);
      }
    }
    if (at >= format.size()) throw Fault("a format is incomplete");
    spec.type = format[at++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    const bool text = spec.type == 's' || spec.type == 'r' || spec.type == 'c';
    if (spec.align == '=') text ? spec.align = '>' : spec.fill[0] = '0';
    if (text && !spec.align) spec.align = '>';
    out += convert_percent(spec, value ? *value : arguments.next(), meter);
    meter.allocate(out.size());
  }
  arguments.done();
  return out;
}

std::string format_braces(Interpreter& in, std::string_view format, Arguments& arguments) {
  std::string out;
  std::int64_t automatic = 0;
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at++];
    if (c != '{' && c != '}') {
      out += c;
    } else if (at < format.size() && format[at] == c) {
      out += c;
      ++at;
    } else if (c == '}') {
      throw Fault("a format has a single '}'");
    } else {
      const std::size_t end = format.find('}', at);
      if (end == std::string_view::npos) throw Fault("a format has a single '{'");
      const std::string_view inside = format.substr(at, end - at);
      if (inside.find('{') != std::string_view::npos)
        throw Fault("fields inside of fields are not supported");
      const std::size_t colon = std::min(inside.find(':'), inside.size());
      const std::size_t mark = std::min(inside.substr(0, colon).find('!'), colon);
      const std::string_view conversion = inside.substr(mark, colon - mark);
      Value value = field_value(in, inside.substr(0, mark), arguments, automatic);
      if (conversion == "!r") {
        value = make_text(in.meter(), repr(value, in.meter()));
      } else if (conversion == "!s") {
        value = make_text(in.meter(), str(value, in.meter()));
      } else if (!conversion.empty()) {
        throw Fault(fmt::format("the conversion '{}' is not supported", conversion));
      }
      out += convert_braces(parse_braces_spec(inside.substr(std::min(colon + 1, inside.size()))), value,
                            in.meter());
      at = end + 1;
      in.meter().allocate(out.size());
    }
  }
  return out;
}

std::string format_time(std::string_view format, const LocalTime& time) {
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 >= format.size()) {
      out += format[at];
      continue;
    }
    std::string one = "%";
    one += format[++at];
    if (one == "%-" && at + 1 < format.size()) one += format[++at];
    static constexpr std::string_view kKnown = "aAbBcdDeFgGhHIjklmMnprRsStTuUVwWxXyY%C";
    if (one == "%f") {
      out += fmt::format("{:06}", time.microsecond);
    } else if (one == "%z" || one == "%Z") {
      continue;  // a time without a zone has neither
    } else if (kKnown.find(one.back()) != std::string_view::npos) {
      char buffer[128];
      out.append(buffer, std::strftime(buffer, sizeof buffer, one.c_str(), &time.calendar));
    } else {
      throw Fault(fmt::format("the time format '{}' is not supported", one));
    }
  }
  return out;
}

}  // namespace mantissa::chat
