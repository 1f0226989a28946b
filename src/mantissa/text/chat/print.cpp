#include "mantissa/text/chat/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

void append_repr(std::string& out, const Value& v, Meter& meter);

// Charges what a step appended.
class Appending {
 public:
  Appending(const std::string& out, Meter& meter) : out_(out), meter_(meter), start_(out.size()) {}
  void done() {
    meter_.allocate(out_.size() - start_);
    meter_.scan(out_.size() - start_);
  }

 private:
  const std::string& out_;
  Meter& meter_;
  std::size_t start_;
};

void append_repr_list(std::string& out, const List& list, Meter& meter) {
  out += list.tuple ? '(' : '[';
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, list.items[i], meter);
  }
  if (list.tuple && list.items.size() == 1) out += ',';
  out += list.tuple ? ')' : ']';
}

void append_repr(std::string& out, const Value& v, Meter& meter) {
  const Meter::Nested nested(meter);
  Appending appending(out, meter);
  if (v.is_none()) {
    out += "None";
  } else if (v.is_undefined()) {
    out += "Undefined";
  } else if (const bool* b = v.boolean()) {
    out += *b ? "True" : "False";
  } else if (const std::int64_t* i = v.integer()) {
    out += std::to_string(*i);
  } else if (const double* d = v.real()) {
    out += repr_real(*d);
  } else if (const Text* t = v.text()) {
    out += t->markup ? fmt::format("Markup({})", repr_text(t->bytes)) : repr_text(t->bytes);
  } else if (const List* list = v.list()) {
    meter.step();
    append_repr_list(out, *list, meter);
    return;  // the items are charged
  } else if (const Dict* dict = v.dict()) {
    meter.step();
    out += '{';
    for (std::size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, dict->entries[i].first, meter);
      out += ": ";
      append_repr(out, dict->entries[i].second, meter);
    }
    out += '}';
    return;
  } else {
    out += v.object()->repr(meter);
  }
  appending.done();
}

void append_json_text(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = unicode::size_at(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kEscaped = "\"\\nrtfb";
    if (const std::size_t k = kPlain.find(text[at]); k != std::string_view::npos) {
      out += '\\';
      out += kEscaped[k];
    } else if (c < 0x20 || (ascii && c == 0x7F)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else if (n == 1 || !ascii) {
      out.append(text, at, n);
    } else {
      const auto code = static_cast<std::uint32_t>(unicode::code_point_at(text, at));
      if (code < 0x10000) {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
      } else {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                       0xDC00 + ((code - 0x10000) & 0x3FF));
      }
    }
    at += n;
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  std::string run(const Value& v) {
    write(v, 0);
    return std::move(out_);
  }

 private:
  static std::string real(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return repr_real(d);
  }

  void new_line(std::size_t level) {
    if (!style_.indent) return;
    meter_.allocate(1 + level * style_.indent->size());
    out_ += '\n';
    for (std::size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void key(const Value& k) {
    if (const Text* t = k.text()) {
      append_json_text(out_, t->bytes, style_.ascii);
    } else if (k.is_none() || k.as_number()) {
      std::string plain = k.is_none()   ? "null"
                          : k.boolean() ? (*k.boolean() ? "true" : "false")
                          : k.integer() ? std::to_string(*k.integer())
                                        : real(*k.real());
      out_ += '"' + plain + '"';
    } else {
      throw Fault("tojson: a key must be a string, a number, a boolean or none, not {}", type_name(k));
    }
  }

  void sequence(const List& list, std::size_t level) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void mapping(const Dict& dict, std::size_t level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<std::pair<Value, Value>> entries = dict.entries;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [this](const auto& a, const auto& b) { return less(a.first, b.first, meter_); });
    }
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      key(entries[i].first);
      out_ += style_.key_separator;
      write(entries[i].second, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  void write(const Value& v, std::size_t level) {
    const Meter::Nested nested(meter_);
    meter_.step();
    const Appending appending(out_, meter_);
    if (const Text* t = v.text()) {
      meter_.allocate(t->bytes.size() + 2);
      meter_.scan(t->bytes.size());
      append_json_text(out_, t->bytes, style_.ascii);
    } else if (v.is_none()) {
      out_ += "null";
    } else if (const bool* b = v.boolean()) {
      out_ += *b ? "true" : "false";
    } else if (const std::int64_t* i = v.integer()) {
      out_ += std::to_string(*i);
    } else if (const double* d = v.real()) {
      out_ += real(*d);
    } else if (v.list()) {
      sequence(*v.list(), level);
    } else if (v.dict()) {
      mapping(*v.dict(), level);
    } else if (v.is_undefined()) {
      throw Fault("tojson: {}", *v.undefined().message);
    } else {
      throw Fault("tojson: {} is not JSON. Fix: add the filter 'list' before it", type_name(v));
    }
  }

  const JsonStyle& style_;
  Meter& meter_;
  std::string out_;
};

}  // namespace

std::string str(const Value& v, Meter& meter) {
  if (const Text* t = v.text()) {
    meter.allocate(t->bytes.size());
    return t->bytes;
  }
  if (v.is_undefined()) return {};
  return repr(v, meter);
}

std::string repr(const Value& v, Meter& meter) {
  std::string out;
  append_repr(out, v, meter);
  return out;
}

std::string repr_text(std::string_view text) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = unicode::size_at(text, at);
    const char32_t c = unicode::code_point_at(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (unicode::is_printable(c)) {
      out.append(text, at, n);
    } else {
      const auto code = static_cast<std::uint32_t>(c);
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
    at += n;
  }
  return out += quote;
}

std::string repr_real(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[400] = {};
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer - 1, d, std::chars_format::scientific);
  const std::string_view digits(buffer, static_cast<std::size_t>(scientific.ptr - buffer));
  const int exponent = std::atoi(digits.data() + digits.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return std::string(digits);
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer - 1, d, std::chars_format::fixed);
  std::string out(buffer, static_cast<std::size_t>(fixed.ptr - buffer));
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

std::string to_json(const Value& v, const JsonStyle& style, Meter& meter) {
  return JsonWriter(style, meter).run(v);
}

namespace {

// The repr of the objects that print their content.
std::string repr_pairs(std::string_view open, const std::vector<std::pair<std::string, Value>>& pairs,
                       Meter& meter) {
  std::string out(open);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    out += (i > 0 ? ", " : "") + repr_text(pairs[i].first) + ": " + repr(pairs[i].second, meter);
  }
  return out;
}

}  // namespace

std::string DictView::repr(Meter& meter) const {
  std::vector<Value> items;
  for (std::size_t i = 0; i < dict.dict()->entries.size(); ++i) items.push_back(at(i, meter));
  return fmt::format("{}({})", type(), chat::repr(make_list(meter, std::move(items)), meter));
}

std::string Namespace::repr(Meter& meter) const {
  const Meter::Nested nested(meter);
  return repr_pairs("<Namespace {", attributes, meter) + "}>";
}

}  // namespace mantissa::chat
