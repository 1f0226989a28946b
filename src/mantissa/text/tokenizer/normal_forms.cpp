#include "mantissa/text/tokenizer/normal_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "mantissa/text/tokenizer/unicode.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// The longest decomposition of one code point, U+FDFA, has 18.
constexpr int kLongest = 32;

// U+11A7 is one before the first trailing consonant of Hangul. utf8proc composes it, and thereby removes it.
constexpr char32_t kBeforeTrailing = 0x11A7;

int combining_class(utf8proc_int32_t point) {
  if (point < 0x300 || is_later_than_forms(static_cast<char32_t>(point))) return 0;
  return utf8proc_get_property(point)->combining_class;
}

// Below this code point, a text is its own normal form. Latin letters with accents are composed already.
char32_t first_affected(bool compose, bool compatibility) {
  return compatibility ? 0xA0 : compose ? 0x300 : 0xC0;
}

// Sorts the marks after each base by their class, keeping the order of equal ones.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto is_base = [](utf8proc_int32_t point) { return combining_class(point) == 0; };
  for (auto at = points.begin(); at != points.end();) {
    at = std::find_if_not(at, points.end(), is_base);
    const auto end = std::find_if(at, points.end(), is_base);
    std::stable_sort(at, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    at = end;
  }
}

// Composes [from, to), which holds no later code points, and appends it.
void append_composed(std::vector<utf8proc_int32_t>& points, std::size_t from, std::size_t to, bool compose,
                     std::string& text) {
  auto length = static_cast<utf8proc_ssize_t>(to - from);
  if (compose) {
    length = utf8proc_normalize_utf32(points.data() + from, length,
                                      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  for (std::size_t i = from; i < from + static_cast<std::size_t>(length); ++i)
    append_utf8(static_cast<char32_t>(points[i]), text);
}

}  // namespace

std::string normal_form(std::string_view text, bool compose, bool compatibility) {
  const char32_t limit = first_affected(compose, compatibility);
  bool affected = false;
  for (std::size_t at = 0; at < text.size() && !affected;) affected = next_code_point(text, at) >= limit;
  if (!affected) return std::string(text);

  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    const auto value = static_cast<utf8proc_int32_t>(point);
    if (point < 0xA0 || is_later_than_forms(point)) {
      points.push_back(value);
      continue;
    }
    utf8proc_int32_t parts[kLongest];
    int last_boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(value, parts, kLongest, options, &last_boundary);
    if (count <= 0 || count > kLongest)
      points.push_back(value);
    else
      points.insert(points.end(), parts, parts + count);
  }
  order_marks(points);
  std::string result;
  result.reserve(text.size());
  std::size_t from = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto point = static_cast<char32_t>(points[i]);
    if (point != kBeforeTrailing && (point < 0x300 || !is_later_than_forms(point))) continue;
    append_composed(points, from, i, compose, result);
    append_utf8(point, result);
    from = i + 1;
  }
  append_composed(points, from, points.size(), compose, result);
  return result;
}

}  // namespace mantissa::tokenizer
