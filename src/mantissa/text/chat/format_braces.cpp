// str.format.
#include <algorithm>

#include "mantissa/text/chat/access.h"
#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/format_spec.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

FormatSpec parse_braces_spec(std::string_view text) {
  FormatSpec spec;
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
  if (at < text.size()) throw Fault("the format '{}' is not supported", text);
  return spec;
}

std::string convert_braces(const FormatSpec& spec, const Value& v, Meter& meter) {
  require_defined(v);
  constexpr std::string_view kReal = "eEfFgG%";
  const bool real = spec.type && kReal.find(spec.type) != std::string_view::npos;
  if (v.boolean() && !spec.type) return format_text(spec, str(v, meter), meter);
  if (const auto n = v.as_integer(); n && !real) {
    if (spec.type && std::string_view("dxXobn").find(spec.type) == std::string_view::npos) {
      throw Fault("an integer cannot have the format '{}'", spec.type);
    }
    if (spec.precision >= 0) throw Fault("an integer cannot have a precision");
    return format_integer(spec, *n, meter);
  }
  if (v.as_number()) {
    if (!real && spec.type) throw Fault("a number cannot have the format '{}'", spec.type);
    return format_real(spec, *v.as_number(), meter);
  }
  if (spec.type && spec.type != 's') throw Fault("'{}' cannot have the format '{}'", type_name(v), spec.type);
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
    if (it == arguments.named.end()) throw Fault("the format needs the argument '{}'", name);
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
        throw Fault("the conversion '{}' is not supported", conversion);
      }
      out += convert_braces(parse_braces_spec(inside.substr(std::min(colon + 1, inside.size()))), value,
                            in.meter());
      at = end + 1;
      in.meter().allocate(out.size());
    }
  }
  return out;
}

}  // namespace mantissa::chat
