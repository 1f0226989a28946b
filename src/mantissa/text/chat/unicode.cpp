#include "mantissa/text/chat/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace mantissa::chat::unicode {

namespace {

bool continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

struct CodeRange {
  char32_t first, last;
};

template <std::size_t N>
bool within(const CodeRange (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](CodeRange r) { return r.first <= c && c <= r.last; });
}

// Numeric_Type=Digit: digits in superscripts, circles and old scripts, which are not decimal digits.
constexpr CodeRange kDigits[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Letters without a case pair in utf8proc's lower and upper properties that still count as lower or upper
// case.
bool is_cased(char32_t c) {
  return is_lower(c) || is_upper(c) || is_title(c);
}

// Case_Ignorable, as far as the final sigma needs it: marks, modifiers, formats and some punctuation.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 ||
             c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 ||
             c == 0xFE55 || c == 0xFF07 || c == 0xFF0E || c == 0xFF1A;
  }
}

// A sigma at the end of a word is written otherwise (SpecialCasing.txt, Final_Sigma).
bool is_final_sigma(const std::vector<char32_t>& text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::string& out, const std::vector<char32_t>& text, std::size_t at) {
  const char32_t c = text[at];
  if (c == 0x3A3) {
    append(out, is_final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {
    out += "i\u0307";
  } else {
    append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->upper;
  } else {
    append(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->title;
  } else if ((c >= 0x10D0 && c <= 0x10FA) || (c >= 0x10FD && c <= 0x10FF)) {
    append(out, c);  // Georgian has capitals, but no titlecase
  } else {
    append(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

bool valid(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    utf8proc_int32_t c;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data() + at),
                                    static_cast<utf8proc_ssize_t>(bytes.size() - at), &c);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

std::size_t length(std::string_view bytes) {
  std::size_t n = 0;
  for (const char c : bytes) n += !continuation(c);
  return n;
}

std::size_t size_at(std::string_view bytes, std::size_t at) {
  const auto first = static_cast<unsigned char>(bytes[at]);
  const std::size_t n = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return std::min(n, bytes.size() - at);
}

char32_t code_point_at(std::string_view bytes, std::size_t at) {
  utf8proc_int32_t c = 0xFFFD;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data() + at),
                   static_cast<utf8proc_ssize_t>(bytes.size() - at), &c);
  return static_cast<char32_t>(c);
}

void append(std::string& bytes, char32_t c) {
  utf8proc_uint8_t buffer[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  bytes.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(n));
}

std::vector<char32_t> code_points(std::string_view bytes) {
  std::vector<char32_t> result;
  result.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += size_at(bytes, at))
    result.push_back(code_point_at(bytes, at));
  return result;
}

std::size_t offset(std::string_view bytes, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < bytes.size(); --index) at += size_at(bytes, at);
  return at;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  return is_decimal(c) || within(kDigits, c);
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool is_lower(char32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_upper(char32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

std::string lower(std::string_view bytes) {
  const std::vector<char32_t> text = code_points(bytes);
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < text.size(); ++i) append_lower(out, text, i);
  return out;
}

std::string upper(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char32_t c : code_points(bytes)) append_upper(out, c);
  return out;
}

std::string fold(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += size_at(bytes, at)) {
    utf8proc_int32_t folded[8];
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point_at(bytes, at)), folded, 8,
                                           UTF8PROC_CASEFOLD, nullptr);
    for (utf8proc_ssize_t i = 0; i < n; ++i) append(out, static_cast<char32_t>(folded[i]));
  }
  return out;
}

std::string title(std::string_view bytes) {
  const std::vector<char32_t> text = code_points(bytes);
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    inside ? append_lower(out, text, i) : append_title(out, text[i]);
    inside = is_cased(text[i]);
  }
  return out;
}

std::string capitalize(std::string_view bytes) {
  const std::vector<char32_t> text = code_points(bytes);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    i == 0 ? append_title(out, text[i]) : append_lower(out, text, i);
  return out;
}

std::string swapcase(std::string_view bytes) {
  const std::vector<char32_t> text = code_points(bytes);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_upper(text[i])) {
      append_lower(out, text, i);
    } else if (is_lower(text[i])) {
      append_upper(out, text[i]);
    } else {
      append(out, text[i]);
    }
  }
  return out;
}

}  // namespace mantissa::chat::unicode
