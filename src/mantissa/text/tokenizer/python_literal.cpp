#include "mantissa/text/tokenizer/python_literal.h"

#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<std::string> read() {
    bytes_ = text_.starts_with('b');
    if (bytes_) text_.remove_prefix(1);
    if (text_.size() < 2 || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    const char quote = text_.front();
    if (text_.back() != quote) return std::nullopt;
    text_ = text_.substr(1, text_.size() - 2);
    while (!text_.empty()) {
      const char c = take();
      if (c == quote || c == '\n') return std::nullopt;
      if (c != '\\') {
        if (bytes_ && static_cast<unsigned char>(c) >= 0x80) return std::nullopt;
        out_ += c;
      } else if (!escape()) {
        return std::nullopt;
      }
    }
    std::string repaired;
    const bool is_text = bytes_ || repair_utf8(out_, repaired).data() == out_.data();
    return is_text ? std::optional(out_) : std::nullopt;
  }

 private:
  char take() {
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }

  /// Appends the character or, in b'…', the byte.
  bool put(char32_t value) {
    if (bytes_) {
      if (value > 0xFF) return false;
      out_ += static_cast<char>(value);
      return true;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
    append_utf8(value, out_);
    return true;
  }

  bool hexadecimal(std::size_t digits) {
    if (text_.size() < digits) return false;
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const std::size_t digit = std::string_view("0123456789abcdefABCDEF").find(take());
      if (digit == std::string_view::npos) return false;
      value = value * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    return put(value);
  }

  bool octal(char first) {
    auto value = static_cast<char32_t>(first - '0');
    for (int i = 0; i < 2 && !text_.empty() && text_.front() >= '0' && text_.front() <= '7'; ++i)
      value = value * 8 + static_cast<char32_t>(take() - '0');
    return put(value);
  }

  bool escape() {
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
    if (text_.empty()) return false;
    const char c = take();
    if (const std::size_t at = kNames.find(c); at != std::string_view::npos) {
      out_ += kValues[at];
      return true;
    }
    if (c >= '0' && c <= '7') return octal(c);
    if (c == 'x') return hexadecimal(2);
    if (c == 'u' && !bytes_) return hexadecimal(4);
    return c == 'U' && !bytes_ && hexadecimal(8);
  }

  std::string_view text_;
  bool bytes_ = false;
  std::string out_;
};

}  // namespace

std::optional<std::string> bytes_of_literal(std::string_view literal) {
  return LiteralReader(literal).read();
}

}  // namespace mantissa::tokenizer
