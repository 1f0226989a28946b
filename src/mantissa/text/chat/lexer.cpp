#include "mantissa/text/chat/lexer.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "mantissa/text/chat/string_literal.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

using Type = Token::Type;

// All line ends become "\n", and one at the end of the template is dropped, as Jinja does.
std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : source_(normalize_source(source)), name_(name) {}

  std::vector<Token> run() {
    if (!unicode::valid(source_)) fail("the template is not valid UTF-8. Fix: re-encode the file");
    while (at_ < source_.size()) text();
    add(Type::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) { throw TemplateError(name_, place(at_), message); }

  // Positions only grow, so lines are counted once.
  Place place(std::size_t at) {
    for (; counted_ < at && counted_ < source_.size(); ++counted_) {
      if (source_[counted_] == '\n') {
        place_ = {place_.line + 1, 1};
      } else if ((static_cast<unsigned char>(source_[counted_]) & 0xC0) != 0x80) {
        ++place_.column;
      }
    }
    return place_;
  }

  void add(Type type, std::string value = {}) {
    tokens_.push_back({.type = type, .text = std::move(value), .place = place(at_)});
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool at(std::string_view word) const { return std::string_view(source_).substr(at_).starts_with(word); }

  std::size_t skip_space(std::size_t from) const {
    while (from < source_.size() && unicode::is_space(unicode::code_point_at(source_, from))) {
      from += unicode::size_at(source_, from);
    }
    return from;
  }

  // Moves to `to`. The next tag begins a line if what was skipped ends with a line end.
  void advance(std::size_t to) {
    line_starting_ = to > at_ && source_[to - 1] == '\n';
    at_ = to;
  }

  // Returns the text from the current place up to a tag with the given sign, without the white space that the
  // tag removes.
  std::string_view before_tag(std::size_t tag, char sign, bool block) const {
    std::string_view data = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      std::size_t end = data.size();
      while (end > 0) {
        std::size_t last = end - 1;
        while (last > 0 && (static_cast<unsigned char>(data[last]) & 0xC0) == 0x80) --last;
        if (!unicode::is_space(unicode::code_point_at(data, last))) break;
        end = last;
      }
      return data.substr(0, end);
    }
    if (sign == '+' || !block) return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return data;
    for (std::size_t i = line; i < data.size(); i += unicode::size_at(data, i)) {
      if (!unicode::is_space(unicode::code_point_at(data, i))) return data;
    }
    return data.substr(0, line);
  }

  char sign_at(std::size_t i) const {
    return i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : ' ';
  }

  void text() {
    std::size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add(Type::data, source_.substr(at_));
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::string_view data = before_tag(tag, sign, kind != '{');
    if (!data.empty()) add(Type::data, std::string(data));
    const std::size_t inside = tag + 2 + (sign != ' ');
    if (kind == '#') {
      comment(tag, inside);
    } else if (kind == '%' && raw(inside)) {
      return;
    } else {
      at_ = tag;
      add(kind == '{' ? Type::variable_begin : Type::block_begin);
      advance(inside);
      words(kind == '{');
    }
  }

  // Returns the place after the end of a block or comment whose delimiter begins at `from`.
  std::size_t after_end(std::size_t from, char sign) const {
    if (sign == '-') return skip_space(from + 2);
    return from + 2 + (sign != '+' && from + 2 < source_.size() && source_[from + 2] == '\n');
  }

  void comment(std::size_t tag, std::size_t inside) {
    const std::size_t end = source_.find("#}", inside);
    if (end == std::string::npos) {
      at_ = tag;
      fail("the comment is not closed. Fix: add \"#}\"");
    }
    at_ = inside;
    advance(after_end(end, end > inside ? sign_at(end - 1) : ' '));
  }

  // If the block at `inside` is `raw`, adds the text up to `endraw`.
  bool raw(std::size_t inside) {
    std::size_t i = skip_space(inside);
    if (!std::string_view(source_).substr(i).starts_with("raw")) return false;
    i = skip_space(i + 3);
    const bool strip = i < source_.size() && source_[i] == '-';
    if (!std::string_view(source_).substr(i + strip).starts_with("%}")) return false;
    advance(strip ? skip_space(i + 3) : i + 2);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t end = skip_space(tag + 2 + (sign != ' '));
      if (!std::string_view(source_).substr(end).starts_with("endraw")) continue;
      end = skip_space(end + 6);
      const char end_sign = sign_at(end);
      end += end_sign != ' ';
      if (!std::string_view(source_).substr(end).starts_with("%}")) continue;
      const std::string_view data = before_tag(tag, sign, true);
      if (!data.empty()) add(Type::data, std::string(data));
      advance(after_end(end, end_sign));
      return true;
    }
    fail("the raw block is not closed. Fix: add {% endraw %}");
  }

  // Returns true at the end of the tag, whose delimiter it skips.
  bool tag_end(bool variable) {
    if (variable) {
      if (!at("}}") && !at("-}}")) return false;
      add(Type::variable_end);
      advance(peek() == '-' ? skip_space(at_ + 3) : at_ + 2);
      return true;
    }
    const char sign = sign_at(at_);
    const std::size_t end = at_ + (sign != ' ');
    if (!std::string_view(source_).substr(end).starts_with("%}")) return false;
    add(Type::block_end);
    advance(after_end(end, sign));
    return true;
  }

  // The tokens of a tag, up to its end delimiter, which counts only outside of brackets.
  void words(bool variable) {
    std::string open;
    while (true) {
      advance(std::max(at_, skip_space(at_)));
      if (at_ >= source_.size())
        fail(fmt::format("the tag is not closed. Fix: add \"{}\"", variable ? "}}" : "%}"));
      if (open.empty() && tag_end(variable)) return;
      const char c = peek();
      if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else if (!word()) {
        symbol(open);
      }
    }
  }

  std::size_t digits_from(std::size_t i) const {
    while (i < source_.size() && (is_digit(source_[i]) ||
                                  (source_[i] == '_' && i + 1 < source_.size() && is_digit(source_[i + 1]))))
      ++i;
    return i;
  }

  void number() {
    static constexpr std::string_view kPrefixes = "xXoObB";
    if (peek() == '0' && peek(1) != '\0' && kPrefixes.find(peek(1)) != std::string_view::npos) {
      fail("numbers are supported in decimal only. Fix: write the number in decimal");
    }
    const std::size_t whole = digits_from(at_);
    std::size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1]))
      end = digits_from(end + 1);
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      exponent += exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-');
      if (exponent < source_.size() && is_digit(source_[exponent])) end = digits_from(exponent);
    }
    std::string digits;
    for (std::size_t i = at_; i < end; ++i) {
      if (source_[i] != '_') digits += source_[i];
    }
    const char* last = digits.data() + digits.size();
    Token token{.place = place(at_)};
    if (end == whole) {
      token.type = Type::integer;
      if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
        fail("a number may not begin with 0. Fix: remove the leading zeros");
      }
      if (std::from_chars(digits.data(), last, token.integer).ec != std::errc()) {
        fail(fmt::format("the integer {} does not fit 64 bits. Fix: write a smaller number", digits));
      }
    } else {
      token.type = Type::real;
      if (std::from_chars(digits.data(), last, token.real).ec != std::errc())
        fail(fmt::format("the number {} is out of range", digits));
    }
    tokens_.push_back(std::move(token));
    advance(end);
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("the string is not closed. Fix: add the quotation mark");
    try {
      add(Type::string, unescape_string(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    } catch (const Fault& f) {
      fail(f.what());
    }
    advance(end + 1);
  }

  bool word() {
    std::size_t end = at_;
    while (end < source_.size()) {
      const char32_t c = unicode::code_point_at(source_, end);
      if (c != '_' && !unicode::is_alpha(c) && !(end > at_ && unicode::is_decimal(c))) break;
      end += unicode::size_at(source_, end);
    }
    if (end == at_) return false;
    add(Type::name, source_.substr(at_, end - at_));
    advance(end);
    return true;
  }

  void symbol(std::string& open) {
    static constexpr std::array<std::string_view, 26> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view s : kSymbols) {
      if (!at(s)) continue;
      const char c = s[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c)
          fail(fmt::format("'{}' closes nothing. Fix: balance the brackets", c));
        open.pop_back();
      }
      add(Type::symbol, std::string(s));
      advance(at_ + s.size());
      return;
    }
    fail(fmt::format("unexpected character '{}'", source_.substr(at_, unicode::size_at(source_, at_))));
  }

  std::string source_;
  const std::string& name_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::size_t counted_ = 0;
  Place place_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace mantissa::chat
