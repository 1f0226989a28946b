// The operator % of strings.
#include <cmath>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/format_spec.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

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
    if (!found) throw Fault("the mapping of the format has no key '{}'", name);
    return *found;
  }
  std::int64_t next_integer() {
    const auto n = next().as_integer();
    if (!n) throw Fault("'*' wants an integer");
    if (*n > kWidestField || *n < -kWidestField) throw Fault("a format has too large a width");
    return *n;
  }
  void done() const {
    const bool all = tuple_ ? at_ == tuple_->items.size()
                            : at_ == 1 || named_ || argument_.dict() || argument_.list() ||
                                  argument_.is_undefined() || argument_.as<Range>();
    if (!all) throw Fault("not all arguments are converted by the format string");
  }

 private:
  const Value& argument_;
  Meter& meter_;
  const List* tuple_;
  std::size_t at_ = 0;
  bool named_ = false;
};

std::string convert_percent(FormatSpec spec, const Value& v, Meter& meter) {
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
      if (!n) throw Fault("%{} needs a number, not '{}'", spec.type, type_name(v));
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
      if (!d) throw Fault("%{} needs a number, not '{}'", spec.type, type_name(v));
      return format_real(spec, *d, meter);
    }
    default:
      throw Fault("unsupported format character '{}'", spec.type);
  }
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
    FormatSpec spec;
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

}  // namespace mantissa::chat
