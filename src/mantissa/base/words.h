// How the policy language talks about words it does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

/// `text` in double quotes, control characters escaped, cut after 60 characters: safe to put into a message
/// whatever it is.
std::string in_quotes(std::string_view text);

/// "; did you mean \"bf16\"?" where a candidate is near `word`, else "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// `text` without white space at its ends.
std::string_view trimmed(std::string_view text);

/// `text` without the quotes, of one kind, around it.
std::string_view unquoted(std::string_view text);

/// `text` with ASCII letters in lower case.
std::string lowered(std::string_view text);

/// The pieces of `text` between any of `separators`; empty pieces are left out.
std::vector<std::string_view> split_words(std::string_view text, std::string_view separators);

/// "a, b, c".
std::string list_of(std::span<const std::string> words);

/// Characters of `text`, which is UTF-8.
std::size_t width_of(std::string_view text);

/// `text` in lines of at most `columns` characters, broken at single spaces; the lines behind the first begin
/// with `indent` spaces. A word longer than a line stays whole.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

/// The words as a POSIX shell reads them: one that holds more than letters, digits and a few signs is quoted.
std::string shell_words(std::span<const std::string> words);

}  // namespace mantissa
