#include "mantissa/precision/policy/glob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {
namespace {

constexpr std::size_t kDeepestBraces = 8;

/// The positions of the text, [length + 1] flags, up to which a part of the pattern can match. All
/// alternatives advance together, so the time is at most the product of the two lengths for any pattern.
using Places = std::vector<char>;

/// Returns the position after the bracket that closes the one at `open`, or npos.
std::size_t end_of_group(std::string_view pattern, std::size_t open) {
  if (pattern[open] == '[') {
    // A "]" in first place is a member of the set.
    std::size_t first = open + 1;
    if (first < pattern.size() && (pattern[first] == '!' || pattern[first] == '^')) ++first;
    const std::size_t close = pattern.find(']', first + 1);
    return close == std::string_view::npos ? close : close + 1;
  }
  std::size_t depth = 0;
  for (std::size_t i = open; i < pattern.size(); ++i) {
    if (pattern[i] == '{') ++depth;
    if (pattern[i] == '}' && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

/// True if `c` is in the set with the contents `set` ("0-3", "!x").
bool in_set(std::string_view set, char c) {
  const bool negated = !set.empty() && (set[0] == '!' || set[0] == '^');
  if (negated) set.remove_prefix(1);
  bool found = false;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found = found || (set[i] <= c && c <= set[i + 2]);
      i += 2;
    } else {
      found = found || set[i] == c;
    }
  }
  return found != negated;
}

template <class Accept>
Places consume_one(const Places& at, std::string_view text, Accept accept) {
  Places next(at.size(), 0);
  for (std::size_t i = 0; i < text.size(); ++i) next[i + 1] = at[i] && accept(text[i]);
  return next;
}

/// True if `text` is a number of at most nine digits.
bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == text.npos;
}

std::int64_t number(std::string_view digits) {
  std::int64_t value = 0;
  for (const char c : digits) value = value * 10 + (c - '0');
  return value;
}

/// Consumes the numbers from `first` to `last`, written as in scopes, without leading zeros.
Places consume_number(const Places& at, std::string_view text, std::int64_t first, std::int64_t last) {
  Places next(at.size(), 0);
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t n = 1; at[begin] && is_number(text.substr(begin, n)) && begin + n < at.size(); ++n) {
      const std::int64_t value = number(text.substr(begin, n));
      if (first <= value && value <= last) next[begin + n] = 1;
      if (value == 0) break;  // a leading zero ends the number
    }
  }
  return next;
}

Places advance(std::string_view pattern, std::string_view text, Places at);

/// Consumes one alternative of a brace group: a pattern, or a range of numbers such as "2-11".
Places advance_one(std::string_view alternative, std::string_view text, const Places& at) {
  const std::size_t dash = std::min(alternative.find('-'), alternative.size());
  const std::string_view first = alternative.substr(0, dash);
  const std::string_view last = alternative.substr(std::min(dash + 1, alternative.size()));
  if (!is_number(first) || !is_number(last)) return advance(alternative, text, at);
  return consume_number(at, text, number(first), number(last));
}

/// The union over the alternatives of a brace group with the contents `group`.
Places advance_any(std::string_view group, std::string_view text, const Places& at) {
  Places next(at.size(), 0);
  std::size_t begin = 0;
  std::size_t depth = 0;
  for (std::size_t i = 0; i <= group.size(); ++i) {
    if (i < group.size() && group[i] == '{') ++depth;
    if (i < group.size() && group[i] == '}') --depth;
    if (i < group.size() && (group[i] != ',' || depth > 0)) continue;
    const Places reached = advance_one(group.substr(begin, i - begin), text, at);
    for (std::size_t p = 0; p < next.size(); ++p) next[p] = next[p] || reached[p];
    begin = i + 1;
  }
  return next;
}

Places advance(std::string_view pattern, std::string_view text, Places at) {
  for (std::size_t i = 0; i < pattern.size();) {
    const char c = pattern[i];
    const std::size_t end = c == '[' || c == '{' ? end_of_group(pattern, i) : std::string_view::npos;
    if (c == '*') {
      for (std::size_t p = 1; p < at.size(); ++p) at[p] = at[p] || at[p - 1];
      ++i;
    } else if (end == std::string_view::npos) {  // "?", a character, or an unclosed bracket
      at = consume_one(at, text, [c](char x) { return c == '?' || x == c; });
      ++i;
    } else {
      const std::string_view inside = pattern.substr(i + 1, end - i - 2);
      at = c == '{' ? advance_any(inside, text, at)
                    : consume_one(at, text, [inside](char x) { return in_set(inside, x); });
      i = end;
    }
  }
  return at;
}

Places places_after(std::string_view pattern, std::string_view text) {
  Places start(text.size() + 1, 0);
  start[0] = 1;
  return advance(pattern, text, std::move(start));
}

/// True for the last words of parameters that are not names of their own.
bool is_common_word(std::string_view word) {
  return word == "weight" || word == "bias";
}

bool in_scopes(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '/';
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view scope) {
  return places_after(pattern, scope).back() != 0;
}

bool scope_match(std::string_view pattern, std::string_view scope) {
  const Places places = places_after(pattern, scope);
  for (std::size_t i = 0; i < scope.size(); ++i) {
    if (places[i] && scope[i] == '.') return true;
  }
  return places.back() != 0;
}

bool tensor_match(std::string_view pattern, std::string_view name) {
  // A character that no pattern contains stands for a part of the name that only a wildcard can match.
  constexpr char kOther = '\x01';
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !glob_match(pattern, name)) return false;
  const std::string scope(name.substr(0, dot + 1));
  const std::string_view word = name.substr(dot + 1);
  const auto matches = [&](std::string last) { return glob_match(pattern, scope + std::move(last)); };
  if (matches(std::string(word.size() + 1, kOther))) return false;
  if (!is_common_word(word)) return true;
  for (std::size_t i = 0; i <= word.size(); ++i) {
    std::string longer(word);
    if (matches(longer.insert(i, 1, kOther))) return false;
  }
  return true;
}

std::string_view rule_scope(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return name;
  return is_common_word(name.substr(dot + 1)) ? name.substr(0, dot) : name;
}

void check_glob(std::string_view pattern) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("scope pattern {}: {}", in_quotes(pattern), why);
  };
  if (pattern.empty()) refuse("is empty; write * for every scope");
  std::size_t depth = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '[') {
      const std::size_t end = end_of_group(pattern, i);
      if (end == std::string_view::npos) refuse("\"[\" is never closed; write a set as [0-3]");
      for (const char x : pattern.substr(i + 1, end - i - 2)) {
        if (!in_scopes(x) && x != '!' && x != '^')
          refuse(fmt::format("{} is not allowed in a set", in_quotes({&x, 1})));
      }
      i = end - 1;
    } else if (c == '{') {
      if (++depth > kDeepestBraces)
        refuse(fmt::format("braces are nested more than {} deep", kDeepestBraces));
    } else if (c == '}') {
      if (depth-- == 0) refuse("\"}\" has no \"{\" before it; write alternatives as {a,b}");
    } else if (!in_scopes(c) && c != '*' && c != '?' && !(c == ',' && depth > 0)) {
      refuse(fmt::format("no scope contains {}; patterns are made of names, dots, * ? [0-3] {{a,b}}",
                         in_quotes({&c, 1})));
    }
  }
  if (depth > 0) refuse("\"{\" is never closed; write alternatives as {a,b}");
}

}  // namespace mantissa::precision
