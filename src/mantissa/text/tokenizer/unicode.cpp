#include "mantissa/text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace mantissa::tokenizer {
namespace {

struct Range {
  char32_t first, last;
};

constexpr NewerCategory kNewer[] = {
#include "mantissa/text/tokenizer/unicode_newer.inc"
};
constexpr Range kLaterPunctuation[] = {
#include "mantissa/text/tokenizer/unicode_later_punctuation.inc"
};
constexpr Range kLaterMarks[] = {
#include "mantissa/text/tokenizer/unicode_later_marks.inc"
};
constexpr Range kLaterNonspacing[] = {
#include "mantissa/text/tokenizer/unicode_later_nonspacing.inc"
};
constexpr Range kLaterForms[] = {
#include "mantissa/text/tokenizer/unicode_later_forms.inc"
};

// The range that contains `point`, or null. The ranges are in order.
template <class T, std::size_t N>
const T* find(const T (&ranges)[N], char32_t point) {
  const T* range = std::upper_bound(std::begin(ranges), std::end(ranges), point,
                                    [](char32_t value, const T& each) { return value < each.first; });
  if (range == std::begin(ranges)) return nullptr;
  --range;
  return point <= range->last ? range : nullptr;
}

// Lower case that utf8proc lacks, as it is newer: first, last, distance.
struct LowerRange {
  char32_t first, last;
  std::int32_t distance;
};
constexpr LowerRange kNewerLower[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                                      {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                                      {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                                      {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                                      {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};

}  // namespace

std::span<const NewerCategory> newer_categories() {
  return kNewer;
}

std::string_view category(char32_t point) {
  if (const NewerCategory* newer = find(kNewer, point)) return newer->category;
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(point));
}

bool is_space(char32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13);
  return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
         point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

bool is_number(char32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  return category(point)[0] == 'N' || (point >= 0x11de0 && point <= 0x11de9) ||
         (point >= 0x16ff4 && point <= 0x16ff6);
}

bool is_punctuation(char32_t point) {
  if (point < 0x80)
    return (point > ' ' && point < '0') || (point > '9' && point < 'A') || (point > 'Z' && point < 'a') ||
           (point > 'z' && point < 0x7f);
  if (point == 0x166d || point == 0x111c9) return true;
  return category(point)[0] == 'P' && !find(kLaterPunctuation, point);
}

bool is_mark(char32_t point) {
  if (point == 0x1cf2 || point == 0x1cf3) return true;
  return point >= 0x300 && category(point)[0] == 'M' && !find(kLaterMarks, point);
}

bool is_nonspacing_mark(char32_t point) {
  if (point == 0x1734 || point == 0x1171e) return true;
  return point >= 0x300 && category(point) == "Mn" && !find(kLaterNonspacing, point);
}

bool is_control(char32_t point) {
  // Format characters that are newer than the tables of Rust's crate.
  const bool later = point == 0x890 || point == 0x891 || point == 0x8e2 || point == 0x110cd ||
                     (point >= 0x13430 && point <= 0x1343f);
  const std::string_view name = category(point);
  return !later && (name == "Cc" || name == "Cf" || name == "Co");
}

bool is_later_than_forms(char32_t point) {
  return find(kLaterForms, point) != nullptr;
}

char32_t to_lower(char32_t point) {
  if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 0x20 : point;
  if (const LowerRange* range = find(kNewerLower, point))
    return static_cast<char32_t>(static_cast<std::int32_t>(point) + range->distance);
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

}  // namespace mantissa::tokenizer
