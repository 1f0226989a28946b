#include "mantissa/text/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace mantissa::tokenizer {
namespace {

// The length of the well-formed sequence at `at`, or of the longest prefix of one (at least 1) with ok =
// false (Unicode standard, table 3-7).
std::size_t sequence(std::string_view text, std::size_t at, bool& ok) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  ok = true;
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned low = 0x80, high = 0xBF;  // of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) < low || byte(i) > high) {
      ok = false;
      return i;
    }
    low = 0x80;
    high = 0xBF;
  }
  ok = length > 0;
  return ok ? length : 1;
}

// The first byte that is not part of a well-formed sequence, or the size.
std::size_t first_fault(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080U) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    bool ok = true;
    const std::size_t length = sequence(text, at, ok);
    if (!ok) return at;
    at += length;
  }
  return at;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t first = byte(0);
  const std::size_t length = utf8_length(text[at]);
  if (length == 1) {
    ++at;
    return first;
  }
  char32_t point = length == 2 ? first & 0x1F : length == 3 ? first & 0x0F : first & 0x07;
  for (std::size_t i = 1; i < length; ++i) point = point << 6 | (byte(i) & 0x3F);
  at += length;
  return point;
}

void append_utf8(char32_t point, std::string& text) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const std::size_t at = text.size() - bytes;
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0xC0) continue;
    if (first < 0xC2 || first > 0xF4) return 0;  // begins no code point
    bool complete = true;
    return sequence(text, at, complete) == bytes && !complete && utf8_length(text[at]) > bytes ? bytes : 0;
  }
  return 0;
}

std::string_view repair_utf8(std::string_view text, std::string& repaired) {
  std::size_t at = first_fault(text);
  if (at == text.size()) return text;
  repaired.assign(text.substr(0, at));
  while (at < text.size()) {
    bool ok = true;
    const std::size_t length = sequence(text, at, ok);
    repaired += ok ? text.substr(at, length) : kReplacement;
    at += length;
  }
  return repaired;
}

}  // namespace mantissa::tokenizer
