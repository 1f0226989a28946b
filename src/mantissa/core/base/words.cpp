#include "mantissa/core/base/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/suggest.h"

namespace mantissa {
namespace {

constexpr std::size_t kLongestQuote = 60;
constexpr std::string_view kSpace = " \t\r\n\v\f";

}  // namespace

std::string in_quotes(std::string_view text) {
  std::size_t length = std::min(text.size(), kLongestQuote);
  while (length < text.size() && length > 0 && (text[length] & 0xc0) == 0x80)
    --length;  // whole UTF-8 characters
  return '"' + printable(text.substr(0, length)) + (length < text.size() ? "…\"" : "\"");
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::optional<std::string> near = nearest(word.substr(0, kLongestQuote), candidates);
  return near ? fmt::format("; did you mean \"{}\"?", *near) : "";
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string_view unquoted(std::string_view text) {
  text = trimmed(text);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return trimmed(text.substr(1, text.size() - 2));
  return text;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::vector<std::string_view> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  std::size_t begin = text.find_first_not_of(separators);
  while (begin != std::string_view::npos) {
    const std::size_t end = text.find_first_of(separators, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(separators, end);
  }
  return words;
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string out;
  std::size_t width = 0;  // of the current line
  bool begun = false;     // the line has a word
  for (std::size_t at = 0; at < text.size();) {
    // A word with its leading spaces.
    const std::size_t word = std::min(text.find_first_not_of(' ', at), text.size());
    const std::size_t end = std::min(text.find(' ', word), text.size());
    const std::size_t size = width_of(text.substr(at, end - at));
    if (begun && width + size > columns) {
      out += '\n' + std::string(indent, ' ');
      at = word;
      width = indent;
    }
    out += text.substr(at, end - at);
    width += width_of(text.substr(at, end - at));
    begun = true;
    at = end;
  }
  return out;
}

namespace {

/// Returns `word` as $'…', in which every byte beyond printable ASCII has an escape sequence.
std::string ansi_c_word(std::string_view word) {
  std::string text = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '\'' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text + "'";
}

}  // namespace

std::string shell_words(std::span<const std::string> words) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    if (printable(word) != word) {
      text += ansi_c_word(word);
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::string list_of(std::span<const std::string> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string last_name(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace mantissa
