#include "mantissa/text/puzzles/kk_reasoning.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <optional>

namespace mantissa::text {
namespace {

/// A set of assignments of roles: bit w stands for the one whose knights are the set bits of w.
using Worlds = std::bitset<std::size_t{1} << kKkMostPeople>;
/// A set of people, one bit each.
using People = std::uint32_t;

People only(int person) {
  return People{1} << static_cast<unsigned>(person);
}

struct Step;

/// The kinds of contradiction: a knight's words are false, a knave's are true, or the speaker can have
/// neither role.
enum class Misfit : std::uint8_t { knight_lies, knave_tells_truth, neither_role };

/// The consequences of an assumed role, up to words that contradict it.
struct Refutation {
  int person = 0;  // assumed to be a knight or a knave
  bool knight = false;
  std::vector<Step> steps;
  int speaker = 0;  // whose words are contradictory
  Misfit misfit = Misfit::neither_role;
  People needs = 0;  // the people whose known roles it uses
};

/// A role that follows from other roles.
struct Step {
  int person = 0;
  bool knight = false;
  People needs = 0;             // the people whose roles it follows from
  std::vector<Refutation> why;  // empty, or the one refutation of the other role
};

/// The roles known at a point of the reasoning.
struct State {
  People known = 0;
  People knights = 0;
  Worlds worlds;  // the worlds in which the known people have these roles

  bool knows(int person) const { return (known & only(person)) != 0; }
};

class Reasoner {
 public:
  Reasoner(const std::vector<KkStatement>& statements, const std::vector<std::string>& names)
      : names_(names), people_(static_cast<int>(statements.size())) {
    for (People world = 0; world < only(people_); ++world) all_.set(world);
    for (int p = 0; p < people_; ++p) {
      const KkStatement& said = statements[static_cast<std::size_t>(p)];
      Worlds knight, fits;
      for (People world = 0; world < only(people_); ++world) {
        knight[world] = is_knight(world, p);
        fits[world] = said.holds(world) == is_knight(world, p);
      }
      knight_.push_back(knight);
      fits_.push_back(fits);
      scope_.push_back(said.people() | only(p));
    }
  }

  std::vector<std::string> solve(People knights) const {
    std::vector<std::string> sentences;
    State state{.known = 0, .knights = 0, .worlds = all_};
    while (state.known != only(people_) - 1) {
      const Refutation found = first_refutation(state, knights);
      std::string sentence =
          fmt::format("If {}. So {}", words(found), role_words(found.person, !found.knight));
      learn(state, found.person, !found.knight);
      while (const std::optional<Step> next = consequence(state)) {
        learn(state, next->person, next->knight);
        sentence += ", " + role_words(next->person, next->knight);
      }
      sentences.push_back(sentence + ".");
    }
    return sentences;
  }

 private:
  const Worlds& fits(int p) const { return fits_[static_cast<std::size_t>(p)]; }
  People scope(int p) const { return scope_[static_cast<std::size_t>(p)]; }
  Worlds having(int p, bool knight) const {
    const Worlds& worlds = knight_[static_cast<std::size_t>(p)];
    return knight ? worlds : all_ & ~worlds;
  }

  void learn(State& state, int person, bool knight) const {
    state.known |= only(person);
    if (knight) state.knights |= only(person);
    state.worlds &= having(person, knight);
  }

  /// Returns a smallest set of the known people of `scope` whose roles alone leave no world in `possible`.
  People reasons(const State& state, People scope, const Worlds& possible) const {
    People needed = state.known & scope;
    for (int dropped = 0; dropped < people_; ++dropped) {
      if ((needed & only(dropped)) == 0) continue;
      Worlds left = possible;
      for (int p = 0; p < people_; ++p) {
        if (p != dropped && (needed & only(p)) != 0) left &= having(p, is_knight(state.knights, p));
      }
      if (left.none()) needed &= ~only(dropped);
    }
    return needed;
  }

  /// Returns a person whose words contradict the known roles.
  std::optional<int> contradiction(const State& state) const {
    for (int speaker = 0; speaker < people_; ++speaker) {
      if ((fits(speaker) & state.worlds).none()) return speaker;
    }
    return std::nullopt;
  }

  static Misfit misfit(const State& state, int speaker) {
    if (!state.knows(speaker)) return Misfit::neither_role;
    return is_knight(state.knights, speaker) ? Misfit::knight_lies : Misfit::knave_tells_truth;
  }

  /// Returns a role that follows from the known ones and one person's words.
  std::optional<Step> consequence(const State& state) const {
    for (int speaker = 0; speaker < people_; ++speaker) {
      const Worlds possible = fits(speaker) & state.worlds;
      for (int p = 0; p < people_; ++p) {
        if (state.knows(p) || (scope(speaker) & only(p)) == 0) continue;
        for (const bool knight : {true, false}) {
          if ((possible & having(p, !knight)).any()) continue;
          const Worlds otherwise = fits(speaker) & having(p, !knight);
          return Step{
              .person = p, .knight = knight, .needs = reasons(state, scope(speaker), otherwise), .why = {}};
        }
      }
    }
    return std::nullopt;
  }

  /// Returns a role that follows because refutations at most `depth` deep refute the other one.
  std::optional<Step> refuted_role(const State& state, int depth) const {
    for (int p = 0; p < people_; ++p) {
      if (state.knows(p)) continue;
      for (const bool knight : {true, false}) {
        const std::optional<Refutation> why = refute(state, p, knight, depth);
        if (why) return Step{.person = p, .knight = !knight, .needs = why->needs, .why = {*why}};
      }
    }
    return std::nullopt;
  }

  /// Shows that `person` cannot have this role, with nested refutations at most `depth` deep. Returns null if
  /// that depth does not suffice.
  std::optional<Refutation> refute(State state, int person, bool knight, int depth) const {
    const People before = state.known;
    Refutation found;
    found.person = person;
    found.knight = knight;
    learn(state, person, knight);
    for (;;) {
      if (const std::optional<int> speaker = contradiction(state)) {
        found.speaker = *speaker;
        found.misfit = misfit(state, *speaker);
        found.needs = keep_needed(found.steps, reasons(state, scope(*speaker), fits(*speaker))) & before;
        return found;
      }
      std::optional<Step> next = consequence(state);
      if (!next && depth > 0) next = refuted_role(state, depth - 1);
      if (!next) return std::nullopt;
      learn(state, next->person, next->knight);
      found.steps.push_back(*next);
    }
  }

  /// Drops the steps that `needed` does not depend on. Returns all people whose roles are used.
  static People keep_needed(std::vector<Step>& steps, People needed) {
    std::vector<Step> kept;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      if ((needed & only(step->person)) == 0) continue;
      needed |= step->needs;
      kept.push_back(*step);
    }
    steps.assign(kept.rbegin(), kept.rend());
    return needed;
  }

  /// Refutes the wrong role of the first possible person, with the least possible nesting.
  Refutation first_refutation(const State& state, People knights) const {
    // Nested refutations as deep as the number of people distinguish all cases.
    for (int depth = 0;; ++depth) {
      for (int p = 0; p < people_; ++p) {
        if (state.knows(p)) continue;
        const std::optional<Refutation> found = refute(state, p, !is_knight(knights, p), depth);
        if (found) return *found;
      }
    }
  }

  const std::string& name(int person) const { return names_[static_cast<std::size_t>(person)]; }

  std::string role_words(int person, bool knight) const {
    return fmt::format("{} is a {}", name(person), knight ? "knight" : "knave");
  }

  /// "Zoe is a knight, then Max is a knave, but Max's words are true"
  std::string words(const Refutation& refutation) const {
    std::string text = role_words(refutation.person, refutation.knight);
    const char* before = ", then ";
    for (const Step& step : refutation.steps) {
      text += before + role_words(step.person, step.knight);
      if (!step.why.empty()) text += fmt::format(" (if {})", words(step.why[0]));
      before = ", ";
    }
    text += refutation.steps.empty() ? ", " : ", but ";
    const std::string& speaker = name(refutation.speaker);
    switch (refutation.misfit) {
      case Misfit::knight_lies:
        return text + speaker + "'s words are false";
      case Misfit::knave_tells_truth:
        return text + speaker + "'s words are true";
      case Misfit::neither_role:
        break;
    }
    return text + speaker + " can be neither";
  }

  const std::vector<std::string>& names_;
  int people_;
  Worlds all_;                  // all worlds of these people
  std::vector<Worlds> knight_;  // the worlds in which this person is a knight
  std::vector<Worlds> fits_;    // the worlds in which this person's words fit the role
  std::vector<People> scope_;   // the speaker and the people that the statement is about
};

}  // namespace

std::vector<std::string> kk_reasoning(const std::vector<KkStatement>& statements,
                                      const std::vector<std::string>& names, std::uint32_t knights) {
  return Reasoner(statements, names).solve(knights);
}

}  // namespace mantissa::text
