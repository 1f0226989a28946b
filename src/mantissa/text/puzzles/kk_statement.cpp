#include "mantissa/text/puzzles/kk_statement.h"

#include <fmt/format.h>

namespace mantissa::text {
namespace {

using Kind = KkStatement::Kind;

const char* role_word(Kind leaf) {
  return leaf == Kind::knight ? "knight" : "knave";
}

std::string part_words(const KkStatement& part, const std::vector<std::string>& names) {
  return part.parts.empty() ? part.words(names) : fmt::format("({})", part.words(names));
}

}  // namespace

bool KkStatement::holds(std::uint32_t knights) const {
  const auto part = [&](std::size_t i) { return parts[i].holds(knights); };
  switch (kind) {
    case Kind::knight:
      return is_knight(knights, person);
    case Kind::knave:
      return !is_knight(knights, person);
    case Kind::negation:
      return !part(0);
    case Kind::conjunction:
      return part(0) && part(1);
    case Kind::disjunction:
      return part(0) || part(1);
    case Kind::implication:
      return !part(0) || part(1);
    case Kind::equivalence:
      break;
  }
  return part(0) == part(1);
}

std::uint32_t KkStatement::people() const {
  if (parts.empty()) return 1U << static_cast<unsigned>(person);
  std::uint32_t all = 0;
  for (const KkStatement& part : parts) all |= part.people();
  return all;
}

std::string KkStatement::words(const std::vector<std::string>& names) const {
  const auto part = [&](std::size_t i) { return part_words(parts[i], names); };
  switch (kind) {
    case Kind::knight:
    case Kind::knave:
      return fmt::format("{} is a {}", names[static_cast<std::size_t>(person)], role_word(kind));
    case Kind::negation:
      if (!parts[0].parts.empty()) return fmt::format("it is not so that {}", part(0));
      return fmt::format("{} is not a {}", names[static_cast<std::size_t>(parts[0].person)],
                         role_word(parts[0].kind));
    case Kind::conjunction:
      return fmt::format("{} and {}", part(0), part(1));
    case Kind::disjunction:
      return fmt::format("{} or {}", part(0), part(1));
    case Kind::implication:
      return fmt::format("if {} then {}", part(0), part(1));
    case Kind::equivalence:
      break;
  }
  return fmt::format("{} if and only if {}", part(0), part(1));
}

std::string KkStatement::tuple() const {
  const auto pair = [&](const char* op) {
    return fmt::format("('{}', {}, {})", op, parts[0].tuple(), parts[1].tuple());
  };
  switch (kind) {
    case Kind::knight:
      return fmt::format("('telling-truth', {})", person);
    case Kind::knave:
      return fmt::format("('lying', {})", person);
    case Kind::negation:
      return fmt::format("('not', {})", parts[0].tuple());
    case Kind::conjunction:
      return pair("and");
    case Kind::disjunction:
      return pair("or");
    case Kind::implication:
      return pair("->");
    case Kind::equivalence:
      break;
  }
  return pair("<=>");
}

std::vector<std::uint32_t> kk_solutions(const std::vector<KkStatement>& statements) {
  std::vector<std::uint32_t> found;
  const int people = static_cast<int>(statements.size());
  for (std::uint32_t knights = 0; knights < (1U << static_cast<unsigned>(people)); ++knights) {
    int fitting = 0;
    while (fitting < people &&
           statements[static_cast<std::size_t>(fitting)].holds(knights) == is_knight(knights, fitting)) {
      ++fitting;
    }
    if (fitting == people) found.push_back(knights);
  }
  return found;
}

}  // namespace mantissa::text
