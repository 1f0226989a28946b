#include "mantissa/files/gguf/rwkv_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::gguf {
namespace {

bool is_plain(char c) {
  return c >= ' ' && c <= '~';
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string escaped_token(std::string_view bytes) {
  // Python puts bytes in double quotes if they contain a single one, and escapes it if they contain both.
  const bool both = bytes.find('\'') != std::string_view::npos && bytes.find('"') != std::string_view::npos;
  std::string out;
  for (const char c : bytes) {
    if (c == '\t') {
      out += "\\t";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\\' || (c == '\'' && both)) {
      out += '\\';
      out += c;
    } else if (is_plain(c)) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::optional<std::string> token_bytes(std::string_view escaped) {
  std::string out;
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] != '\\') {
      out += escaped[i];
      continue;
    }
    if (++i == escaped.size()) return std::nullopt;
    switch (escaped[i]) {
      case 't':
        out += '\t';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 'x': {
        if (escaped.size() - i < 3) return std::nullopt;
        const int high = digit_of(escaped[i + 1]), low = digit_of(escaped[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        out += static_cast<char>(high * 16 + low);
        i += 2;
        break;
      }
      default:
        out += escaped[i];
    }
  }
  return out;
}

std::string vocabulary_line(std::size_t id, std::string_view bytes) {
  const bool text = std::ranges::all_of(bytes, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  std::string escaped = escaped_token(bytes);
  const char quote =
      bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  return fmt::format("{} {}{}{}{} {}\n", id, text ? "" : "b", quote, escaped, quote, bytes.size());
}

}  // namespace mantissa::gguf
