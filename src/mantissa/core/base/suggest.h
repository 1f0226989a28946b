// "Did you mean …": finds the known word nearest to a misspelt one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mantissa {

/// Returns the number of insertions, deletions, substitutions and swaps of neighbouring letters that turn `a`
/// into `b`, where no substring is edited twice (optimal string alignment distance).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate with the smallest edit distance to `word`, the first one among equals. Returns null
/// if that distance exceeds a third of the longer word's length; one edit is always allowed.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace mantissa
