// Searches in strings, in time that grows with the text, not with text times pattern.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::chat {

/// Returns the offset of the first occurrence at or after `from`, or npos.
std::size_t find_text(std::string_view text, std::string_view pattern, std::size_t from = 0);
/// Returns the offset of the last occurrence, or npos.
std::size_t find_last(std::string_view text, std::string_view pattern);
/// Returns the number of occurrences that do not overlap. The pattern is not empty.
std::size_t count_text(std::string_view text, std::string_view pattern);
/// Replaces the first `most` occurrences; a negative `most` means all. An empty pattern occurs around every
/// character.
std::string replace_text(std::string_view text, std::string_view pattern, std::string_view by,
                         std::int64_t most);
/// Returns the size of the result of replace_text.
std::size_t replaced_size(std::string_view text, std::string_view pattern, std::string_view by,
                          std::int64_t most);
/// str.split and str.rsplit with a separator. A negative `most` means all.
std::vector<std::string> split_text(std::string_view text, std::string_view separator, std::int64_t most,
                                    bool from_right);
/// str.split and str.rsplit at white space.
std::vector<std::string> split_words(std::string_view text, std::int64_t most, bool from_right);
/// str.splitlines.
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
/// str.strip with a set of characters, or white space without one.
std::string_view strip_text(std::string_view text, const std::string* characters, bool left, bool right);

}  // namespace mantissa::chat
