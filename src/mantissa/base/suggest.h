// "Did you mean …": the known word that a misspelt one is nearest to.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mantissa {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (no part edited
/// twice).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest edit distance to `word`, the first of equals; none where even that one
/// differs in more than a third of the longer word's letters (at least one edit is always allowed).
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace mantissa
