// The characters and escapes of a regular expression in Oniguruma's syntax.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "mantissa/text/tokenizer/onig_classes.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {

/// A place in an expression. Throws std::invalid_argument for what is unsupported.
class OnigReader {
 protected:
  explicit OnigReader(std::string_view pattern) : in_(pattern) {}

  bool more() const { return at_ < in_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool take(std::string_view text) {
    if (!in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw std::invalid_argument(fmt::format("{} at byte {}", what, at_));
  }

  // A code point written with an escape that means the same in and out of classes, after the backslash.
  std::optional<char32_t> escaped_point() {
    const char c = peek();
    const auto digits = [&](int base, std::size_t most) {
      const std::size_t start = at_;
      while (at_ < in_.size() && at_ - start < most && std::isxdigit(static_cast<unsigned char>(in_[at_])) &&
             (base == 16 || in_[at_] < '8'))
        ++at_;
      if (at_ == start) return char32_t{0};
      return static_cast<char32_t>(std::stoul(std::string(in_.substr(start, at_ - start)), nullptr, base));
    };
    constexpr std::string_view kLetters = "tnrfvae", kPoints = "\t\n\r\f\v\a\x1b";
    if (const std::size_t i = kLetters.find(c); i != kLetters.npos) {
      ++at_;
      return static_cast<char32_t>(kPoints[i]);
    }
    if (take("x{")) {
      const char32_t point = digits(16, 8);
      if (!take("}") || point > 0x10FFFF) fail("a wrong \\x{…}");
      return point;
    }
    if (take("x")) return digits(16, 2);
    if (take("u")) return digits(16, 4);
    if (c == '0') return digits(8, 3);
    if (!std::isalnum(static_cast<unsigned char>(c))) return next_code_point(in_, at_);
    return std::nullopt;
  }

  // \s, \p{…} and the like, after the backslash.
  std::optional<ClassItems> escaped_class() {
    const char c = peek();
    if (std::string_view("sSwWdDhH").find(c) != std::string_view::npos && c != '\0') {
      ++at_;
      return shorthand(c);
    }
    if ((c == 'p' || c == 'P') && peek(1) == '{') {
      const std::size_t end = in_.find('}', at_);
      if (end == in_.npos) fail("a property without }");
      ClassItems items = property(in_.substr(at_ + 2, end - at_ - 2));
      at_ = end + 1;
      if (c == 'P') items.negated = !items.negated;
      return items;
    }
    return std::nullopt;
  }

  std::string_view in_;
  std::size_t at_ = 0;
};

}  // namespace mantissa::tokenizer
