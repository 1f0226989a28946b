#include "mantissa/text/kk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/numeric/philox.h"

namespace mantissa::text {
namespace {

using Kind = KkStatement::Kind;

constexpr std::array kNames = {"Ada", "Alan", "Amy",  "Ben",  "Carl", "Dora", "Emil", "Eva",  "Finn",
                               "Gus", "Hana", "Ida",  "Ivan", "Jack", "Jill", "Kim",  "Leo",  "Lily",
                               "Max", "Mia",  "Nora", "Olaf", "Omar", "Otto", "Paul", "Rosa", "Ruth",
                               "Sam", "Tara", "Theo", "Una",  "Vera", "Zoe"};
constexpr int kMostPeople = 8;

/// Numbers of one puzzle, drawn one after the other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t attempt)
      : stream_(seed, RandomUse::data, hash_name("kk"), attempt) {}
  /// In [0, n), by multiplication: the bias of 32 bits over a handful of choices is below 1e-8.
  int below(int n) {
    return static_cast<int>((std::uint64_t{stream_.bits(next_++)} * static_cast<std::uint64_t>(n)) >> 32U);
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

/// Somebody other than `speaker`, and other than `not_this` where there are enough people.
int other_person(Draws& draws, int people, int speaker, int not_this) {
  for (;;) {
    const int p = draws.below(people);
    if (p != speaker && (p != not_this || people == 2)) return p;
  }
}

KkStatement leaf(Draws& draws, int person) {
  return {draws.below(2) == 0 ? Kind::knight : Kind::knave, person, {}};
}

KkStatement draw_statement(Draws& draws, int people, int speaker) {
  static constexpr Kind kPairs[] = {Kind::conjunction, Kind::disjunction, Kind::implication,
                                    Kind::equivalence};
  const int shape = draws.below(8);
  const int first = other_person(draws, people, speaker, -1);
  if (shape < 3) return leaf(draws, first);
  if (shape == 3) return {Kind::negation, 0, {leaf(draws, first)}};
  // With two people the second part speaks of the speaker.
  const int second = people == 2 ? speaker : other_person(draws, people, speaker, first);
  return {kPairs[shape - 4], 0, {leaf(draws, first), leaf(draws, second)}};
}

std::uint32_t mask_of(const KkStatement& s) {
  if (s.parts.empty()) return 1U << static_cast<unsigned>(s.person);
  std::uint32_t mask = 0;
  for (const KkStatement& part : s.parts) mask |= mask_of(part);
  return mask;
}

bool is_knight(std::uint32_t knights, int person) {
  return (knights >> static_cast<unsigned>(person) & 1U) != 0;
}

/// Depth-first search over roles in the order of the names, knights first, told as it goes; stops at the
/// solution.
class Reasoning {
 public:
  explicit Reasoning(const KkPuzzle& puzzle) : puzzle_(puzzle) {}

  std::string tell() {
    descend(0, 0);
    return text_;
  }

 private:
  static constexpr std::size_t kNobody = kMostPeople;

  /// The first speaker whose words do not fit their role, where everybody that matters has one.
  std::size_t contradicted(int assigned, std::uint32_t knights) const {
    const std::uint32_t known = (1U << static_cast<unsigned>(assigned)) - 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(assigned); ++i) {
      const KkStatement& s = puzzle_.statements[i];
      if ((mask_of(s) & ~known) == 0 && s.holds(knights) != is_knight(knights, static_cast<int>(i))) return i;
    }
    return kNobody;
  }

  void say(int assigned, std::uint32_t knights, const std::string& outcome) {
    std::string line;
    for (int i = 0; i < assigned; ++i) {
      line += fmt::format("{}{} {}", i == 0 ? "" : ", ", puzzle_.names[static_cast<std::size_t>(i)],
                          is_knight(knights, i) ? "knight" : "knave");
    }
    text_ += fmt::format("{}{}: {}.", text_.empty() ? "" : " ", line, outcome);
  }

  bool descend(int assigned, std::uint32_t knights) {
    if (assigned > 0) {
      const std::size_t who = contradicted(assigned, knights);
      if (who != kNobody) {
        const bool knight = is_knight(knights, static_cast<int>(who));
        say(assigned, knights,
            fmt::format("{} would {}", puzzle_.names[who], knight ? "lie" : "tell the truth"));
        return false;
      }
    }
    if (assigned == static_cast<int>(puzzle_.names.size())) {
      say(assigned, knights, "all fits");
      return true;
    }
    const std::uint32_t bit = 1U << static_cast<unsigned>(assigned);
    return descend(assigned + 1, knights | bit) || descend(assigned + 1, knights);
  }

  const KkPuzzle& puzzle_;
  std::string text_;
};

/// "Ada, Ben and Carl"
std::string list_names(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return out;
}

void put_into_words(KkPuzzle& p, KkStyle style) {
  std::string said;
  for (std::size_t i = 0; i < p.names.size(); ++i) {
    said += fmt::format("{} said: {}. ", p.names[i], p.statements[i].words(p.names));
    p.answer += fmt::format("{}({}) {} is a {}", i == 0 ? "" : "\n", i + 1, p.names[i],
                            is_knight(p.knights, static_cast<int>(i)) ? "knight" : "knave");
  }
  p.quiz = said + "Who is who?";
  if (style == KkStyle::logic_rl) {
    p.quiz = fmt::format(
        "On an island everyone is a knight, who always tells the truth, or a knave, who always lies. You "
        "meet {}. {}So who is "
        "a knight and who is a knave?",
        list_names(p.names), said);
  }
  p.prompt = p.quiz + "\nAssistant:";
  if (style == KkStyle::logic_rl) {
    p.prompt = fmt::format(
        "Think about the puzzle first, inside <think> </think>, then name the role of each person, one to a "
        "line, inside "
        "<answer> </answer>.\nUser: {}\nAssistant:",
        p.quiz);
  }
  p.reasoning = Reasoning(p).tell();
}

/// The puzzle of one attempt; false where it has not exactly one solution.
bool draw(std::uint64_t seed, std::uint64_t attempt, const KkOptions& o, KkPuzzle& p) {
  Draws draws(seed, attempt);
  const int people = o.people_min + draws.below(o.people_max - o.people_min + 1);
  std::array<const char*, kNames.size()> pool = kNames;
  for (int i = 0; i < people; ++i) {
    const int pick = i + draws.below(static_cast<int>(pool.size()) - i);
    std::swap(pool[static_cast<std::size_t>(i)], pool[static_cast<std::size_t>(pick)]);
    p.names.emplace_back(pool[static_cast<std::size_t>(i)]);
  }
  for (int i = 0; i < people; ++i) p.statements.push_back(draw_statement(draws, people, i));
  const std::vector<std::uint32_t> all = solutions(p.statements);
  if (all.size() != 1) return false;
  p.knights = all.front();
  return true;
}

/// One in eight puzzles, whatever the seed that drew them.
bool is_test(const KkPuzzle& p) {
  std::string canonical;
  for (std::size_t i = 0; i < p.names.size(); ++i) canonical += p.names[i] + p.statements[i].tuple();
  return hash_name(canonical) % 8 == 0;
}

std::string tuples(const KkPuzzle& p) {
  std::string out = "(";
  for (std::size_t i = 0; i < p.statements.size(); ++i) out += (i == 0 ? "" : ", ") + p.statements[i].tuple();
  return out + ")";
}

}  // namespace

bool KkStatement::holds(std::uint32_t knights) const {
  switch (kind) {
    case Kind::knight:
      return is_knight(knights, person);
    case Kind::knave:
      return !is_knight(knights, person);
    case Kind::negation:
      return !parts[0].holds(knights);
    case Kind::conjunction:
      return parts[0].holds(knights) && parts[1].holds(knights);
    case Kind::disjunction:
      return parts[0].holds(knights) || parts[1].holds(knights);
    case Kind::implication:
      return !parts[0].holds(knights) || parts[1].holds(knights);
    case Kind::equivalence:
      return parts[0].holds(knights) == parts[1].holds(knights);
  }
  return false;
}

std::string KkStatement::words(const std::vector<std::string>& names) const {
  const auto part = [&](std::size_t i) { return parts[i].words(names); };
  switch (kind) {
    case Kind::knight:
      return names[static_cast<std::size_t>(person)] + " is a knight";
    case Kind::knave:
      return names[static_cast<std::size_t>(person)] + " is a knave";
    case Kind::negation:
      return fmt::format("{} is not a {}", names[static_cast<std::size_t>(parts[0].person)],
                         parts[0].kind == Kind::knight ? "knight" : "knave");
    case Kind::conjunction:
      return part(0) + " and " + part(1);
    case Kind::disjunction:
      return part(0) + " or " + part(1);
    case Kind::implication:
      return "if " + part(0) + " then " + part(1);
    case Kind::equivalence:
      return part(0) + " if and only if " + part(1);
  }
  return {};
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
      return pair("<=>");
  }
  return {};
}

std::string KkPuzzle::text() const {
  return fmt::format("{} <think>{}</think> <answer>{}</answer>\n", prompt, reasoning, answer);
}

KkStyle parse_kk_style(const std::string& name) {
  if (name == "short") return KkStyle::brief;
  if (name == "logic-rl") return KkStyle::logic_rl;
  throw ConfigError(fmt::format("style \"{}\" of puzzles is unknown; one of short, logic-rl", name));
}

std::vector<std::uint32_t> solutions(const std::vector<KkStatement>& statements) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t knights = 0; knights < (1U << statements.size()); ++knights) {
    bool fits = true;
    for (std::size_t i = 0; fits && i < statements.size(); ++i) {
      fits = statements[i].holds(knights) == is_knight(knights, static_cast<int>(i));
    }
    if (fits) found.push_back(knights);
  }
  return found;
}

std::vector<KkPuzzle> generate(const KkOptions& o) {
  if (o.people_min < 2 || o.people_max > kMostPeople || o.people_min > o.people_max) {
    throw ConfigError(fmt::format("puzzles of {} to {} people: there are puzzles of 2 to {}", o.people_min,
                                  o.people_max, kMostPeople));
  }
  if (o.count < 0) throw ConfigError(fmt::format("{} puzzles: the count must not be negative", o.count));
  std::vector<KkPuzzle> puzzles;
  puzzles.reserve(static_cast<std::size_t>(std::min<std::int64_t>(o.count, 1 << 20)));
  for (std::uint64_t attempt = 0; static_cast<std::int64_t>(puzzles.size()) < o.count; ++attempt) {
    KkPuzzle p;
    if (!draw(o.seed, attempt, o, p) || is_test(p) != (o.split == KkSplit::test)) continue;
    put_into_words(p, o.style);
    puzzles.push_back(std::move(p));
  }
  return puzzles;
}

std::string to_jsonl_row(const KkPuzzle& p) {
  nlohmann::ordered_json row;
  std::vector<bool> solution;
  std::string solution_text;
  for (std::size_t i = 0; i < p.names.size(); ++i) {
    const bool knight = is_knight(p.knights, static_cast<int>(i));
    solution.push_back(knight);
    solution_text +=
        fmt::format("{}{}{} is a {}", i == 0 ? "" : ", ", i > 0 && i + 1 == p.names.size() ? "and " : "",
                    p.names[i], knight ? "knight" : "knave");
  }
  row["quiz"] = p.quiz;
  row["names"] = p.names;
  row["solution"] = solution;
  row["solution_text"] = solution_text + ".";
  row["solution_text_format"] = p.answer;
  row["statements"] = tuples(p);
  row["prompt"] = nlohmann::ordered_json::array({{{"role", "user"}, {"content", p.quiz}}});
  row["prompt_text"] = p.prompt;
  row["reward_model"] = {{"style", "rule"},
                         {"ground_truth", {{"solution_text_format", p.answer}, {"statements", tuples(p)}}}};
  row["difficulty"] = fmt::format("{}ppl", p.names.size());
  row["text"] = p.text();
  return row.dump();
}

}  // namespace mantissa::text
