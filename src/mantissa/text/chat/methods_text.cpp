// The methods of strings.
#include "mantissa/core/base/error_text.h"
#include "mantissa/text/chat/access.h"
#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/text_search.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

using Self = const Text&;

struct Call {
  Interpreter& in;
  Self self;
  std::string_view name;
  Arguments& arguments;

  Value text(std::string s) const { return make_text(in.meter(), std::move(s)); }
  Value list(const std::vector<std::string>& parts) const {
    std::vector<Value> items;
    items.reserve(parts.size());
    for (const std::string& part : parts) items.push_back(text(part));
    return make_list(in.meter(), std::move(items));
  }
};

void positional_only(const Call& c) {
  if (!c.arguments.named.empty()) throw Fault("{} takes no named arguments", c.name);
}

template <std::string (*map)(std::string_view)>
Value mapped(const Call& c) {
  const Parameters p(c.name, c.arguments, {});
  c.in.meter().allocate(c.self.bytes.size() * 8);  // code points, and the result
  return c.text(map(c.self.bytes));
}

template <bool left, bool right>
Value strip(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"chars"});
  return c.text(std::string(strip_text(c.self.bytes, p.some(0) ? &p.text(0) : nullptr, left, right)));
}

template <bool from_right>
Value split(const Call& c) {
  const Parameters p(c.name, c.arguments, {"sep", "maxsplit"});
  const std::int64_t most = p.integer(1, -1);
  c.in.meter().allocate(c.self.bytes.size() * 4);
  if (!p.some(0)) return c.list(split_words(c.self.bytes, most, from_right));
  if (p.text(0).empty()) throw Fault("{}: the separator is empty", c.name);
  c.in.meter().allocate(count_text(c.self.bytes, p.text(0)) * sizeof(std::string));
  return c.list(split_text(c.self.bytes, p.text(0), most, from_right));
}

Value splitlines(const Call& c) {
  const Parameters p(c.name, c.arguments, {"keepends"});
  c.in.meter().allocate(c.self.bytes.size() * sizeof(std::string));
  return c.list(split_lines(c.self.bytes, p.flag(0, false)));
}

// The part of the text between two indices, in code points.
struct Window {
  std::string_view text;
  std::size_t start;
  bool possible;  // false if the start lies behind the end
};

Window window(const Call& c, const Parameters& p, std::size_t first) {
  const auto n = static_cast<std::int64_t>(c.self.length);
  const auto index = [&](std::size_t i, std::int64_t preset) {
    std::int64_t k = p.some(i) ? p.integer(i) : preset;
    if (k < 0) k = k < -n ? 0 : k + n;
    return k;
  };
  const std::int64_t start = index(first, 0), end = std::min(index(first + 1, n), n);
  if (start > end) return {"", 0, false};
  const std::size_t from = unicode::offset(c.self.bytes, static_cast<std::size_t>(start));
  const std::string_view rest = std::string_view(c.self.bytes).substr(from);
  return {rest.substr(0, unicode::offset(rest, static_cast<std::size_t>(end - start))),
          static_cast<std::size_t>(start), true};
}

template <bool last, bool required>
Value find(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"sub", "start", "end"}, 1);
  const Window w = window(c, p, 1);
  const std::string& sub = p.text(0);
  const std::size_t at = !w.possible ? std::string_view::npos
                         : last      ? find_last(w.text, sub)
                                     : find_text(w.text, sub);
  if (at != std::string_view::npos)
    return Value(static_cast<std::int64_t>(w.start + unicode::length(w.text.substr(0, at))));
  if (required) throw Fault("{}: substring not found", c.name);
  return Value(std::int64_t{-1});
}

Value count(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"sub", "start", "end"}, 1);
  const Window w = window(c, p, 1);
  if (!w.possible) return Value(std::int64_t{0});
  const std::size_t n = p.text(0).empty() ? unicode::length(w.text) + 1 : count_text(w.text, p.text(0));
  return Value(static_cast<std::int64_t>(n));
}

template <bool at_start>
Value has_end(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"prefix", "start", "end"}, 1);
  const Window w = window(c, p, 1);
  const auto matches = [&](const Value& v) {
    require_defined(v);
    if (!v.text()) throw Fault("{} takes a string or a tuple of strings, not '{}'", c.name, type_name(v));
    return w.possible && (at_start ? w.text.starts_with(v.text()->bytes) : w.text.ends_with(v.text()->bytes));
  };
  if (const List* list = p.at(0).list(); list && list->tuple) {
    for (const Value& v : list->items) {
      if (matches(v)) return Value(true);
    }
    return Value(false);
  }
  return Value(matches(p.at(0)));
}

Value replace(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"old", "new", "count"}, 2);
  const std::int64_t most = p.integer(2, -1);
  c.in.meter().allocate(replaced_size(c.self.bytes, p.text(0), p.text(1), most));
  return c.text(replace_text(c.self.bytes, p.text(0), p.text(1), most));
}

Value join(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"iterable"}, 1);
  require_defined(p.at(0).is_undefined() ? Value() : p.at(0));
  std::string out;
  bool first = true;
  for (const Value& v : elements(p.at(0), c.in.meter())) {
    if (!v.text()) throw Fault("join needs strings, not '{}'. Fix: use the filter 'join'", type_name(v));
    c.in.meter().allocate(v.text()->bytes.size() + (first ? 0 : c.self.bytes.size()));
    if (!first) out += c.self.bytes;
    first = false;
    out += v.text()->bytes;
  }
  return c.text(std::move(out));
}

template <bool from_right>
Value partition(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"sep"}, 1);
  const std::string& sep = p.text(0);
  if (sep.empty()) throw Fault("{}: the separator is empty", c.name);
  const std::size_t at = from_right ? find_last(c.self.bytes, sep) : find_text(c.self.bytes, sep);
  std::string before = c.self.bytes, after;
  const bool found = at != std::string_view::npos;
  if (found) {
    before = c.self.bytes.substr(0, at);
    after = c.self.bytes.substr(at + sep.size());
  } else if (from_right) {
    std::swap(before, after);
  }
  return make_tuple(c.in.meter(),
                    {c.text(std::move(before)), c.text(found ? sep : ""), c.text(std::move(after))});
}

template <bool prefix>
Value remove_end(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"prefix"}, 1);
  std::string_view rest = c.self.bytes;
  if (prefix ? rest.starts_with(p.text(0)) : rest.ends_with(p.text(0))) {
    prefix ? rest.remove_prefix(p.text(0).size()) : rest.remove_suffix(p.text(0).size());
  }
  return c.text(std::string(rest));
}

// Pads to a width, with `left` of the missing characters before the text.
Value pad_text(const Call& c, std::size_t (*left)(std::size_t missing, std::size_t width)) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"width", "fillchar"}, 1);
  const std::string fill = p.given(1) ? p.text(1) : " ";
  if (unicode::length(fill) != 1) throw Fault("{}: the fill must be one character", c.name);
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(p.integer(0), 0));
  const std::size_t missing = width > c.self.length ? width - c.self.length : 0;
  c.in.meter().allocate(missing * fill.size());
  std::string out;
  for (std::size_t i = 0; i < left(missing, width); ++i) out += fill;
  out += c.self.bytes;
  for (std::size_t i = left(missing, width); i < missing; ++i) out += fill;
  return c.text(std::move(out));
}

Value ljust(const Call& c) {
  return pad_text(c, [](std::size_t, std::size_t) -> std::size_t { return 0; });
}
Value rjust(const Call& c) {
  return pad_text(c, [](std::size_t missing, std::size_t) { return missing; });
}
Value center(const Call& c) {
  return pad_text(c,
                  [](std::size_t missing, std::size_t width) { return missing / 2 + (missing & width & 1); });
}

Value zfill(const Call& c) {
  positional_only(c);
  const Parameters p(c.name, c.arguments, {"width"}, 1);
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(p.integer(0), 0));
  if (width <= c.self.length) return c.text(c.self.bytes);
  c.in.meter().allocate(width);
  const bool sign = c.self.bytes.starts_with('-') || c.self.bytes.starts_with('+');
  return c.text(c.self.bytes.substr(0, sign) + std::string(width - c.self.length, '0') +
                c.self.bytes.substr(sign));
}

Value expandtabs(const Call& c) {
  const Parameters p(c.name, c.arguments, {"tabsize"});
  const std::int64_t size = p.integer(0, 8);
  std::string out;
  std::int64_t column = 0;
  for (const char32_t ch : unicode::code_points(c.self.bytes)) {
    if (ch == '\t') {
      const std::int64_t n = size > 0 ? size - column % size : 0;
      c.in.meter().allocate(static_cast<std::uint64_t>(n));
      out += std::string(static_cast<std::size_t>(n), ' ');
      column += n;
    } else {
      unicode::append(out, ch);
      column = ch == '\n' || ch == '\r' ? 0 : column + 1;
    }
  }
  return c.text(std::move(out));
}

template <bool (*holds)(char32_t), bool empty = false>
Value all_are(const Call& c) {
  const Parameters p(c.name, c.arguments, {});
  if (c.self.bytes.empty()) return Value(empty);
  const std::vector<char32_t> points = unicode::code_points(c.self.bytes);
  return Value(std::all_of(points.begin(), points.end(), holds));
}

bool is_ascii(char32_t c) {
  return c < 128;
}
bool is_alnum(char32_t c) {
  return unicode::is_alpha(c) || unicode::is_numeric(c);
}

// No letter of the other case, and at least one of this case.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value is_case(const Call& c) {
  const Parameters p(c.name, c.arguments, {});
  bool any = false;
  for (const char32_t ch : unicode::code_points(c.self.bytes)) {
    if (other(ch) || unicode::is_title(ch)) return Value(false);
    any |= wanted(ch);
  }
  return Value(any);
}

Value istitle(const Call& c) {
  const Parameters p(c.name, c.arguments, {});
  bool any = false, inside = false;
  for (const char32_t ch : unicode::code_points(c.self.bytes)) {
    const bool capital = unicode::is_upper(ch) || unicode::is_title(ch), small = unicode::is_lower(ch);
    if ((capital && inside) || (small && !inside)) return Value(false);
    inside = capital || small;
    any |= inside;
  }
  return Value(any);
}

Value isidentifier(const Call& c) {
  const Parameters p(c.name, c.arguments, {});
  const std::vector<char32_t> points = unicode::code_points(c.self.bytes);
  const auto part = [](char32_t ch) { return ch == '_' || unicode::is_alpha(ch) || unicode::is_decimal(ch); };
  return Value(!points.empty() && !unicode::is_decimal(points[0]) &&
               std::all_of(points.begin(), points.end(), part));
}

Value format(const Call& c) {
  return c.text(format_braces(c.in, c.self.bytes, c.arguments));
}

struct MethodRow {
  std::string_view name;
  Value (*body)(const Call&);
};

constexpr MethodRow kMethods[] = {{"capitalize", mapped<unicode::capitalize>},
                                  {"casefold", mapped<unicode::fold>},
                                  {"center", center},
                                  {"count", count},
                                  {"endswith", has_end<false>},
                                  {"expandtabs", expandtabs},
                                  {"find", find<false, false>},
                                  {"format", format},
                                  {"index", find<false, true>},
                                  {"isalnum", all_are<is_alnum>},
                                  {"isalpha", all_are<unicode::is_alpha>},
                                  {"isascii", all_are<is_ascii, true>},
                                  {"isdecimal", all_are<unicode::is_decimal>},
                                  {"isdigit", all_are<unicode::is_digit>},
                                  {"isidentifier", isidentifier},
                                  {"islower", is_case<unicode::is_lower, unicode::is_upper>},
                                  {"isnumeric", all_are<unicode::is_numeric>},
                                  {"isprintable", all_are<unicode::is_printable, true>},
                                  {"isspace", all_are<unicode::is_space>},
                                  {"istitle", istitle},
                                  {"isupper", is_case<unicode::is_upper, unicode::is_lower>},
                                  {"join", join},
                                  {"ljust", ljust},
                                  {"lower", mapped<unicode::lower>},
                                  {"lstrip", strip<true, false>},
                                  {"partition", partition<false>},
                                  {"removeprefix", remove_end<true>},
                                  {"removesuffix", remove_end<false>},
                                  {"replace", replace},
                                  {"rfind", find<true, false>},
                                  {"rindex", find<true, true>},
                                  {"rjust", rjust},
                                  {"rpartition", partition<true>},
                                  {"rsplit", split<true>},
                                  {"rstrip", strip<false, true>},
                                  {"split", split<false>},
                                  {"splitlines", splitlines},
                                  {"startswith", has_end<true>},
                                  {"strip", strip<true, true>},
                                  {"swapcase", mapped<unicode::swapcase>},
                                  {"title", mapped<unicode::title>},
                                  {"upper", mapped<unicode::upper>},
                                  {"zfill", zfill}};

}  // namespace

Value call_text_method(Interpreter& in, const Value& text, std::string_view name, Arguments& arguments) {
  const Text& self = *text.text();
  in.meter().scan(self.bytes.size());
  if (self.markup && (!arguments.positional.empty() || !arguments.named.empty())) {
    throw Fault(
        "'{}' with arguments is not supported for the result of 'safe' or 'escape'. Fix: apply "
        "that filter last",
        name);
  }
  for (const MethodRow& row : kMethods) {
    if (row.name != name) continue;
    const Value result = row.body({in, self, name, arguments});
    return self.markup && result.text() ? make_text(in.meter(), result.text()->bytes, true) : result;
  }
  throw InternalError("no method '{}'", name);
}

}  // namespace mantissa::chat
