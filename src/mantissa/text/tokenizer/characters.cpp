#include "mantissa/text/tokenizer/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace mantissa::text {
namespace {

struct Range {
  char32_t first, last;
};

constexpr Range kWordRanges[] = {
#include "mantissa/text/tokenizer/word_ranges.inc"
};

// The length of a sequence with this first byte and the smallest code point that needs it. Length 0: not a
// first byte.
struct Lead {
  unsigned length;
  char32_t bits, smallest;
};

Lead lead(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0};
  if ((byte & 0xe0) == 0xc0) return {2, byte & 0x1fu, 0x80};
  if ((byte & 0xf0) == 0xe0) return {3, byte & 0x0fu, 0x800};
  if ((byte & 0xf8) == 0xf0) return {4, byte & 0x07u, 0x10000};
  return {0, 0, 0};
}

// Decodes the sequence at `at` to its code point and length. Returns false for malformed UTF-8.
bool decode(std::string_view text, std::size_t at, char32_t& point, unsigned& length) {
  const Lead first = lead(static_cast<unsigned char>(text[at]));
  if (first.length == 0 || first.length > text.size() - at) return false;
  point = first.bits;
  length = first.length;
  for (unsigned i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if ((byte & 0xc0) != 0x80) return false;
    point = point << 6 | (byte & 0x3fu);
  }
  return point >= first.smallest && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
}

}  // namespace

char32_t decode_utf8(std::string_view text, std::size_t& at) {
  char32_t point = 0;
  unsigned length = 0;
  if (!decode(text, at, point, length)) {
    ++at;
    return kReplacement;
  }
  at += length;
  return point;
}

std::size_t find_invalid_utf8(std::string_view text) {
  char32_t point = 0;
  unsigned length = 0;
  for (std::size_t at = 0; at < text.size(); at += length) {
    if (!decode(text, at, point, length)) return at;
  }
  return std::string_view::npos;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  if (c == U'_') return true;
  const auto* after =
      std::upper_bound(std::begin(kWordRanges), std::end(kWordRanges), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(kWordRanges) && c <= std::prev(after)->last;
}

bool is_letter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

char32_t caseless(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace mantissa::text
