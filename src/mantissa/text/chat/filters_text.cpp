// Filters of strings.
#include <fmt/format.h>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/operators.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/text_search.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

// str(input), with its cost.
std::string input_text(Interpreter& in, const Value& input) {
  std::string text = str(input, in.meter());
  in.meter().scan(text.size());
  return text;
}

// Likewise, with the memory of its code points.
std::string case_text(Interpreter& in, const Value& input) {
  std::string text = input_text(in, input);
  in.meter().allocate(text.size() * 8);
  return text;
}

Value text_trim(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("trim", a, {"chars"});
  const std::string text = input_text(in, input);
  return make_text(in.meter(), std::string(strip_text(text, p.some(0) ? &p.text(0) : nullptr, true, true)));
}

Value text_upper(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("upper", a, {});
  return make_text(in.meter(), unicode::upper(case_text(in, input)));
}

Value text_lower(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("lower", a, {});
  return make_text(in.meter(), unicode::lower(case_text(in, input)));
}

Value text_capitalize(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("capitalize", a, {});
  return make_text(in.meter(), unicode::capitalize(case_text(in, input)));
}

// Each word begins with a capital, where words are separated by white space and -({[<.
Value text_title(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("title", a, {});
  const std::string text = case_text(in, input);
  const auto separates = [](char32_t c) {
    return unicode::is_space(c) ||
           (c < 128 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string out, word;
  const auto end_word = [&] {
    if (word.empty()) return;
    const std::size_t n = unicode::size_at(word, 0);
    out += unicode::upper(word.substr(0, n)) + unicode::lower(word.substr(n));
    word.clear();
  };
  for (std::size_t at = 0; at < text.size(); at += unicode::size_at(text, at)) {
    const std::string_view c = std::string_view(text).substr(at, unicode::size_at(text, at));
    if (separates(unicode::code_point_at(text, at))) {
      end_word();
      out += c;
    } else {
      word += c;
    }
  }
  end_word();
  return make_text(in.meter(), std::move(out));
}

Value text_replace(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("replace", a, {"old", "new", "count"}, 2);
  const std::string text = input_text(in, input);
  const std::string old = str(p.at(0), in.meter());
  const std::string by = str(p.at(1), in.meter());
  const std::int64_t most = p.some(2) ? p.integer(2) : -1;
  in.meter().allocate(replaced_size(text, old, by, most));
  return make_text(in.meter(), replace_text(text, old, by, most));
}

Value text_string(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("string", a, {});
  if (input.text()) return input;
  return make_text(in.meter(), str(input, in.meter()));
}

Value text_format(Interpreter& in, const Value& input, Arguments& a) {
  if (!a.positional.empty() && !a.named.empty())
    throw Fault("format takes positional or named arguments, not both");
  Value argument;
  if (a.named.empty()) {
    argument = make_tuple(in.meter(), std::move(a.positional));
  } else {
    Dict dict;
    for (auto& [name, value] : a.named) dict.set(make_text(in.meter(), name), std::move(value), in.meter());
    argument = make_dict(in.meter(), std::move(dict));
  }
  return make_text(in.meter(), format_percent(input_text(in, input), argument, in.meter()));
}

Value text_indent(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("indent", a, {"width", "first", "blank"});
  require_defined(input);
  if (!input.text()) throw Fault("indent takes a string, not '{}'", type_name(input));
  std::string indention;
  if (p.given(0) && p.at(0).text()) {
    indention = p.text(0);
  } else {
    const std::int64_t width = p.integer(0, 4);
    in.meter().allocate(static_cast<std::uint64_t>(std::max<std::int64_t>(width, 0)));
    indention = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool blank = p.flag(2, false);
  const std::vector<std::string> lines = split_lines(input.text()->bytes + "\n", false);
  in.meter().allocate(lines.size() * (indention.size() + sizeof(std::string)) + input.text()->bytes.size());
  std::string out = p.flag(1, false) ? indention : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return make_text(in.meter(), std::move(out));
}

Value text_truncate(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("truncate", a, {"length", "killwords", "end", "leeway"});
  const std::string end = p.given(2) ? p.text(2) : "...";
  const std::int64_t length = p.integer(0, 255), leeway = p.some(3) ? p.integer(3) : 5;
  const auto end_size = static_cast<std::int64_t>(unicode::length(end));
  if (length < end_size || leeway < 0)
    throw Fault("truncate needs a length that holds the end, and a leeway of at least 0");
  const auto size = length_of(input);
  const auto excess = size ? static_cast<std::int64_t>(*size) - length : 0;
  if (size && excess <= leeway) return input;
  if (!input.text()) throw Fault("truncate takes a string, not '{}'", type_name(input));
  const Text& text = *input.text();
  std::string cut =
      text.bytes.substr(0, unicode::offset(text.bytes, static_cast<std::size_t>(length - end_size)));
  if (!p.flag(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return make_text(in.meter(), cut + end);
}

Value text_center(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("center", a, {"width"});
  const std::string text = input_text(in, input);
  const auto size = static_cast<std::int64_t>(unicode::length(text));
  const std::int64_t width = p.integer(0, 80);
  const std::int64_t missing = width > size ? width - size : 0;
  in.meter().allocate(static_cast<std::uint64_t>(missing));
  const std::int64_t left = missing / 2 + (missing & width & 1);
  return make_text(in.meter(), std::string(static_cast<std::size_t>(left), ' ') + text +
                                   std::string(static_cast<std::size_t>(missing - left), ' '));
}

Value text_wordcount(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("wordcount", a, {});
  const std::string text = input_text(in, input);
  std::int64_t words = 0;
  bool inside = false;
  for (const char32_t c : unicode::code_points(text)) {
    const bool letter = c == '_' || unicode::is_alpha(c) || unicode::is_numeric(c);
    words += letter && !inside;
    inside = letter;
  }
  return Value(words);
}

Value text_escape(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("escape", a, {});
  if (input.text() && input.text()->markup) return input;
  const std::string text = input_text(in, input);
  in.meter().allocate(text.size() * 5);
  return make_text(in.meter(), escape_html(text), true);
}

Value text_force_escape(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("forceescape", a, {});
  const std::string text = input_text(in, input);
  in.meter().allocate(text.size() * 5);
  return make_text(in.meter(), escape_html(text), true);
}

Value text_safe(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("safe", a, {});
  return make_text(in.meter(), input_text(in, input), true);
}

std::string quote_url(std::string_view text, std::string_view safe) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain || std::string_view("_.-~").find(c) != std::string_view::npos ||
        safe.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// One part of a query, where a space is a plus.
std::string quote_query(std::string_view text) {
  return replace_text(quote_url(text, ""), "%20", "+", -1);
}

Value text_urlencode(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("urlencode", a, {});
  if (input.text() || !is_iterable(input)) {
    const std::string text = input_text(in, input);
    in.meter().allocate(text.size() * 3);
    return make_text(in.meter(), quote_url(text, "/"));
  }
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    const std::string k = input_text(in, key), v = input_text(in, value);
    in.meter().allocate((k.size() + v.size()) * 3);
    out += (out.empty() ? "" : "&") + quote_query(k) + "=" + quote_query(v);
  };
  if (const Dict* dict = input.dict()) {
    for (const auto& [key, value] : dict->entries) add(key, value);
  } else {
    for (const Value& pair : elements(input, in.meter())) {
      const std::vector<Value> parts = elements(pair, in.meter());
      if (parts.size() != 2) throw Fault("urlencode needs pairs");
      add(parts[0], parts[1]);
    }
  }
  return make_text(in.meter(), std::move(out));
}

Value text_tojson(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ascii = p.flag(0, false), .sort_keys = p.flag(3, false)};
  if (p.some(1)) {
    if (p.at(1).text()) {
      style.indent = p.text(1);
    } else {
      const std::int64_t width = std::max<std::int64_t>(p.integer(1), 0);
      in.meter().allocate(static_cast<std::uint64_t>(width));
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (p.some(2)) {
    const std::vector<Value> parts = elements(p.at(2), in.meter());
    if (parts.size() != 2 || !parts[0].text() || !parts[1].text())
      throw Fault("tojson: 'separators' needs two strings");
    style.item_separator = parts[0].text()->bytes;
    style.key_separator = parts[1].text()->bytes;
  }
  return make_text(in.meter(), to_json(input, style, in.meter()));
}

}  // namespace

std::span<const FilterRow> text_filters() {
  static constexpr FilterRow kRows[] = {{"trim", text_trim},
                                        {"upper", text_upper},
                                        {"lower", text_lower},
                                        {"capitalize", text_capitalize},
                                        {"title", text_title},
                                        {"replace", text_replace},
                                        {"string", text_string},
                                        {"format", text_format},
                                        {"indent", text_indent},
                                        {"truncate", text_truncate},
                                        {"center", text_center},
                                        {"wordcount", text_wordcount},
                                        {"e", text_escape},
                                        {"escape", text_escape},
                                        {"forceescape", text_force_escape},
                                        {"safe", text_safe},
                                        {"urlencode", text_urlencode},
                                        {"tojson", text_tojson}};
  return kRows;
}

}  // namespace mantissa::chat
