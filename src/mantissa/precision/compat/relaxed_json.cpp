#include "mantissa/precision/compat/relaxed_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::compat {
namespace {

constexpr std::size_t kLongest = std::size_t{1} << 20;
constexpr int kDeepest = 64;
constexpr std::size_t kMostMembers = 1000;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}
bool begins_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.';
}

/// Returns the length of the UTF-8 character at the start of `text`, or 0 if it is malformed.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80                       ? 1
                             : byte(0) >= 0xc2 && byte(0) <= 0xdf ? 2
                             : byte(0) >= 0xe0 && byte(0) <= 0xef ? 3
                             : byte(0) >= 0xf0 && byte(0) <= 0xf4 ? 4
                                                                  : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Rejects overlong forms, surrogates, and code points above U+10FFFF.
  if (length == 3 && ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f))) return 0;
  if (length == 4 && ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f))) return 0;
  return length;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  JsonValue document() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // byte order mark
    skip();
    skip_assignment();
    JsonValue value;
    if (bare_members()) {
      value.kind = JsonValue::Kind::object;
      value.line = line_;
      members(value, 1, '\0');
    } else {
      if (peek() != '{') fail("must be an object, {…}");
      value = parse(1);
    }
    skip();
    if (peek() == ';') ++at_;
    skip();
    if (at_ < text_.size())
      fail(fmt::format("expected the end of the file after the object, got {}", here()));
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what, int line = 0) const {
    throw ConfigError("{}:{}: {}", file_, line > 0 ? line : line_, what);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool begins(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  /// Describes the text at the current position, for messages.
  std::string here() const {
    if (at_ >= text_.size()) return "the end of the file";
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    if (end == at_) end += std::max<std::size_t>(utf8_length(text_.substr(at_)), 1);
    return in_quotes(text_.substr(at_, end - at_));
  }

  void skip_line() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  /// Skips white space and comments.
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '#' || begins("//")) {
        skip_line();
      } else if (begins("/*")) {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail("a comment /* is not closed");
        line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                             text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
        at_ = end + 2;
      } else {
        return;
      }
    }
  }

  /// Skips "ds_config =" before the object of a Python file.
  void skip_assignment() {
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    std::size_t equals = end;
    while (equals < text_.size() && (text_[equals] == ' ' || text_[equals] == '\t')) ++equals;
    if (end == at_ || equals >= text_.size() || text_[equals] != '=') return;
    at_ = equals + 1;
    skip();
  }

  /// True for members without braces, such as "\"fp16\": {…}" copied from a file.
  bool bare_members() {
    if (peek() != '"' && peek() != '\'') return false;
    const std::size_t at = at_;
    const int line = line_;
    string();
    skip();
    const bool found = peek() == ':';
    at_ = at;
    line_ = line;
    return found;
  }

  JsonValue parse(int depth) {
    if (depth > kDeepest) fail(fmt::format("nests deeper than {} levels", kDeepest));
    skip();
    JsonValue value;
    value.line = line_;
    const char c = peek();
    if (c == '{') {
      ++at_;
      value.kind = JsonValue::Kind::object;
      members(value, depth, '}');
    } else if (c == '[' || c == '(') {
      ++at_;
      value.kind = JsonValue::Kind::array;
      elements(value, depth, c == '[' ? ']' : ')');
    } else if (c == '"' || c == '\'') {
      value.kind = JsonValue::Kind::text;
      value.text = string();
    } else if (begins_number(c)) {
      number(value);
    } else {
      word(value);
    }
    return value;
  }

  /// Reads the comma or `close` after a member or an element. Returns true for `close`. `open` is the line of
  /// the opening bracket.
  bool closed(char close, int open) {
    skip();
    const bool comma = peek() == ',';
    if (comma) {
      ++at_;
      skip();
    }
    if (close == '\0' && at_ >= text_.size()) return true;
    if (close != '\0' && peek() == close) {
      ++at_;
      return true;
    }
    if (at_ >= text_.size()) fail(fmt::format("the bracket on line {} is not closed", open));
    if (!comma) fail(fmt::format("a comma is missing before {}", here()));
    return false;
  }

  void members(JsonValue& value, int depth, char close) {
    const int open = line_;
    skip();
    if (close != '\0' && peek() == close) {
      ++at_;
      return;
    }
    do {
      const int line = line_;
      std::string key = peek() == '"' || peek() == '\'' ? string() : name();
      skip();
      if (peek() != ':') fail(fmt::format("a colon is missing after {}, before {}", in_quotes(key), here()));
      ++at_;
      if (std::ranges::find(value.keys, key) != value.keys.end())
        fail(fmt::format("{} is set twice; keep one", in_quotes(key)), line);
      if (value.keys.size() == kMostMembers)
        fail(fmt::format("an object has more than {} members", kMostMembers));
      value.items.push_back(parse(depth + 1));
      value.keys.push_back(std::move(key));
    } while (!closed(close, open));
  }

  void elements(JsonValue& value, int depth, char close) {
    const int open = line_;
    skip();
    if (peek() == close) {
      ++at_;
      return;
    }
    do {
      value.items.push_back(parse(depth + 1));
    } while (!closed(close, open));
  }

  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) {
      if (at_ >= text_.size()) fail("expected a key, got the end of the file");
      fail(fmt::format("expected a key, got {}", here()));
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string string() {
    const char quote = text_[at_++];
    std::string out;
    while (true) {
      if (at_ >= text_.size() || text_[at_] == '\n') fail("a string is not closed on its line");
      const char c = text_[at_++];
      if (c == quote) return out;
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
  }

  void escape(std::string& out) {
    constexpr std::string_view kLetters = "nrtbf0", kMeanings("\n\r\t\b\f\0", 6);
    const char c = peek();
    if (c == 'u') {
      std::uint32_t code = 0;
      const std::string_view digits = text_.substr(at_ + 1, 4);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      if (error != std::errc() || end != digits.data() + 4) fail("\\u needs four hexadecimal digits");
      const bool surrogate = code >= 0xd800 && code <= 0xdfff;
      append_utf8(out, surrogate ? 0xfffd : code);
      at_ += 5;
    } else if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos && c != '\0') {
      out += kMeanings[letter];
      ++at_;
    } else if (at_ < text_.size() && c != '\n') {
      out += c;
      ++at_;
    }
  }

  void number(JsonValue& value) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '+' || text_[at_] == '-')) ++at_;
    value.kind = JsonValue::Kind::number;
    value.text = text_.substr(begin, at_ - begin);
    std::string plain = value.text;
    std::erase(plain, '_');
    if (plain.starts_with('+')) plain.erase(0, 1);
    const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value.number);
    if (error == std::errc::result_out_of_range && end == plain.data() + plain.size())
      fail(fmt::format("{} is outside the range of f64", in_quotes(value.text)));
    if (error != std::errc() || end != plain.data() + plain.size())
      fail(fmt::format("{} is not a number", in_quotes(value.text)));
    if (!std::isfinite(value.number)) fail(fmt::format("{} is not finite", in_quotes(value.text)));
  }

  void word(JsonValue& value) {
    const std::string found = here();
    if (!is_name(peek())) fail(fmt::format("expected a value, got {}", found));
    const std::string text = name();
    if (text == "true" || text == "True" || text == "false" || text == "False") {
      value.kind = JsonValue::Kind::boolean;
      value.flag = text == "true" || text == "True";
    } else if (text != "null" && text != "None") {
      fail(fmt::format("expected a value, got the name {}; write its value, or a string in quotes", found));
    }
  }

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto found = std::ranges::find(keys, key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

JsonValue parse_relaxed_json(std::string_view text, const std::string& file) {
  if (text.size() > kLongest) throw FileError("{}: is larger than 1 MiB", file);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0 || text[at] == '\0') {
      throw FileError("{}: is not UTF-8 text (byte {})", file, at);
    }
    at += length;
  }
  return Parser(text, file).document();
}

}  // namespace mantissa::compat
