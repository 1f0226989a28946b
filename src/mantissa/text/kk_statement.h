// What the people of a Knights-and-Knaves puzzle say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::text {

inline constexpr int kKkMostPeople = 8;

/// A statement: a tree whose leaves speak of one person.
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

  /// Whether it holds where bit i of `knights` says that person i is a knight.
  bool holds(std::uint32_t knights) const;
  /// The people it speaks of, a bit each.
  std::uint32_t people() const;
  /// "Oliver is a knave or Zoey is a knight"; a part that has parts stands in parentheses.
  std::string words(const std::vector<std::string>& names) const;
  /// "('or', ('lying', 1), ('telling-truth', 0))", as Logic-RL's rows have it.
  std::string tuple() const;
  bool operator==(const KkStatement&) const = default;
};

/// Whether bit `person` of `knights` is set.
inline bool is_knight(std::uint32_t knights, int person) {
  return (knights >> static_cast<unsigned>(person) & 1U) != 0;
}

/// All roles that fit, by exhaustive search: person i is a knight exactly where statement i holds. Sets of
/// knights, a bit each, in ascending order.
std::vector<std::uint32_t> kk_solutions(const std::vector<KkStatement>& statements);

}  // namespace mantissa::text
