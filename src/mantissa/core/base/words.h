// Text helpers for parsers and their error messages.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

/// Returns `text` in double quotes, printable and cut after 60 bytes at a UTF-8 character boundary. Any text
/// is safe to put into a message this way.
std::string in_quotes(std::string_view text);

/// Returns "; did you mean \"bf16\"?" if a candidate is near `word`, else "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// Returns `text` without leading and trailing white space.
std::string_view trimmed(std::string_view text);

/// Returns `text` without white space and without one pair of equal quotes around it.
std::string_view unquoted(std::string_view text);

/// Returns `text` with ASCII letters in lower case.
std::string lowered(std::string_view text);

/// Splits `text` at any of `separators` and drops empty pieces.
std::vector<std::string_view> split_words(std::string_view text, std::string_view separators);

/// Returns "a, b, c".
std::string list_of(std::span<const std::string> words);

/// Returns the name of each element: a member, or the result of a function.
template <class Range, class Name>
std::vector<std::string> names_of(const Range& range, Name name) {
  std::vector<std::string> names;
  for (const auto& element : range) names.emplace_back(std::invoke(name, element));
  return names;
}

/// Returns the number of characters of the UTF-8 text.
std::size_t width_of(std::string_view text);

/// Breaks `text` at single spaces into lines of at most `columns` characters. Lines after the first begin
/// with `indent` spaces. A word longer than a line is not broken.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

/// Joins the words for a POSIX shell. Words with characters other than letters, digits and a few signs are
/// quoted.
std::string shell_words(std::span<const std::string> words);

/// Returns the last part of a path: "r" for "runs/r" and for "runs/r/", the folder's own name for ".".
std::string last_name(const std::filesystem::path& path);

}  // namespace mantissa
