// The statements of the people in a Knights and Knaves puzzle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::text {

inline constexpr int kKkMostPeople = 8;

/// A statement: a tree whose leaves are each about one person.
struct KkStatement {
  enum class Kind : std::uint8_t {
    knight,
    knave,
    negation,
    conjunction,
    disjunction,
    implication,
    equivalence
  };

  Kind kind = Kind::knight;
  int person = 0;                  // of a leaf
  std::vector<KkStatement> parts;  // one of a negation, two of the others; none of a leaf

  /// True if the statement holds when bit i of `knights` makes person i a knight.
  bool holds(std::uint32_t knights) const;
  /// Returns the people that the statement is about, one bit each.
  std::uint32_t people() const;
  /// Formats the statement, for example "Oliver is a knave or Zoey is a knight". Nested joins are in
  /// parentheses.
  std::string words(const std::vector<std::string>& names) const;
  /// Formats the statement as in Logic-RL's rows: "('or', ('lying', 1), ('telling-truth', 0))".
  std::string tuple() const;
  bool operator==(const KkStatement&) const = default;
};

/// True if bit `person` of `knights` is set.
inline bool is_knight(std::uint32_t knights, int person) {
  return (knights >> static_cast<unsigned>(person) & 1U) != 0;
}

/// Returns all consistent assignments by exhaustive search: person i is a knight exactly if statement i
/// holds. Each is a set of knights, one bit each, in ascending order.
std::vector<std::uint32_t> kk_solutions(const std::vector<KkStatement>& statements);

}  // namespace mantissa::text
