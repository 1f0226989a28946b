#include "mantissa/text/puzzles/kk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/text/puzzles/kk_words.h"

namespace mantissa::text {
namespace {

using Kind = KkStatement::Kind;

// Each name begins with a different letter, and no other word of a puzzle begins with it. One letter
// identifies a person, which small models learn early.
constexpr std::array kNames = {"Ben", "Carl", "Dora", "Emil", "Finn", "Gus",  "Hana", "Jack", "Kim",  "Leo",
                               "Max", "Nora", "Otto", "Paul", "Rosa", "Theo", "Uma",  "Vera", "Yuri", "Zoe"};
constexpr int kMostDepth = 3;
constexpr std::uint64_t kTestShare = 8;  // one puzzle in eight

/// The random numbers of one puzzle, in order.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t number) : stream_(seed, RandomUse::data, hash_name("kk"), number) {}

  /// Returns a number in [0, n) by multiplication. With 32 random bits and a few choices the bias is below
  /// 1e-8.
  int below(int n) {
    if (next_ % 4 == 0) block_ = stream_.block(next_ / 4);
    return static_cast<int>((std::uint64_t{block_[next_++ % 4]} * static_cast<std::uint64_t>(n)) >> 32U);
  }

 private:
  RandomStream stream_;
  PhiloxBlock block_{};
  std::uint64_t next_ = 0;
};

/// The people that a statement may be about. The two people of a join always differ.
struct Listeners {
  int people;
  int speaker;

  /// Returns anybody except the speaker and `not_this`.
  int pick(Draws& draws, int not_this) const {
    for (;;) {
      const int p = draws.below(people);
      if (p != speaker && p != not_this) return p;
    }
  }

  /// Returns two people. In puzzles of two the speaker is one of them; otherwise such puzzles have no unique
  /// solution.
  std::pair<int, int> pick_two(Draws& draws) const {
    if (people == 2) {
      const int first = draws.below(2);
      return {first, 1 - first};
    }
    const int first = pick(draws, speaker);
    return {first, pick(draws, first)};
  }
};

KkStatement leaf(Draws& draws, int person) {
  return {draws.below(2) == 0 ? Kind::knight : Kind::knave, person, {}};
}

/// Draws one of six shapes with equal probability: a leaf, its negation, and the four joins. Parts are
/// leaves, or at depth above 1, with probability 1/2, statements of their own.
KkStatement draw_statement(Draws& draws, const Listeners& listeners, int depth) {
  static constexpr Kind kJoins[] = {Kind::conjunction, Kind::disjunction, Kind::implication,
                                    Kind::equivalence};
  const auto part = [&](int person) {
    return depth > 1 && draws.below(2) == 0 ? draw_statement(draws, listeners, depth - 1)
                                            : leaf(draws, person);
  };
  const int shape = draws.below(6);
  if (shape == 0) return leaf(draws, listeners.pick(draws, listeners.speaker));
  if (shape == 1) return {Kind::negation, 0, {part(listeners.pick(draws, listeners.speaker))}};
  const auto [first, second] = listeners.pick_two(draws);
  KkStatement join{kJoins[shape - 2], 0, {}};
  join.parts.push_back(part(first));
  join.parts.push_back(part(second));
  return join;
}

std::vector<std::string> draw_names(Draws& draws, int people) {
  std::array<const char*, kNames.size()> pool = kNames;
  std::vector<std::string> names;
  for (int i = 0; i < people; ++i) {
    const int pick = i + draws.below(static_cast<int>(pool.size()) - i);
    std::swap(pool[static_cast<std::size_t>(i)], pool[static_cast<std::size_t>(pick)]);
    names.emplace_back(pool[static_cast<std::size_t>(i)]);
  }
  return names;
}

std::string tuple(const std::vector<KkStatement>& statements) {
  std::string text;
  for (const KkStatement& statement : statements) text += (text.empty() ? "(" : ", ") + statement.tuple();
  return text + ")";
}

/// Appends the tree in prefix order, one byte per node, as a short key to hash.
void append_code(const KkStatement& statement, std::string& code) {
  code += static_cast<char>(static_cast<int>(statement.kind) * kKkMostPeople + statement.person);
  for (const KkStatement& part : statement.parts) append_code(part, code);
}

KkSplit split_of(const std::vector<KkStatement>& statements) {
  std::string code;
  for (const KkStatement& statement : statements) append_code(statement, code);
  return hash_name(code) % kTestShare == 0 ? KkSplit::test : KkSplit::train;
}

/// Draws statements with exactly one solution that belong to the split, and sets the solution.
std::vector<KkStatement> draw_statements(Draws& draws, int people, const KkOptions& options,
                                         std::uint32_t& knights) {
  for (;;) {
    std::vector<KkStatement> statements;
    for (int speaker = 0; speaker < people; ++speaker) {
      statements.push_back(draw_statement(draws, {people, speaker}, options.depth));
    }
    const std::vector<std::uint32_t> solutions = kk_solutions(statements);
    if (solutions.size() != 1 || split_of(statements) != options.split) continue;
    knights = solutions.front();
    return statements;
  }
}

KkPuzzle draw_puzzle(const KkOptions& options, std::int64_t number) {
  Draws draws(options.seed, static_cast<std::uint64_t>(number));
  const int people = options.people_min + draws.below(options.people_max - options.people_min + 1);
  KkPuzzle puzzle;
  puzzle.statements = draw_statements(draws, people, options, puzzle.knights);
  puzzle.names = draw_names(draws, people);
  put_into_words(puzzle, options.style, [&](int n) { return draws.below(n); });
  return puzzle;
}

void check(const KkOptions& options) {
  if (options.people_min < 2 || options.people_max > kKkMostPeople ||
      options.people_min > options.people_max) {
    throw ConfigError("puzzles of {} to {} people are not supported; choose puzzles of 2 to {}",
                      options.people_min, options.people_max, kKkMostPeople);
  }
  if (options.count < 0) throw ConfigError("count {} is negative; give a count from 0", options.count);
  if (options.depth < 1 || options.depth > kMostDepth) {
    throw ConfigError("depth {} of statements is not supported; choose depths of 1 to {}", options.depth,
                      kMostDepth);
  }
}

}  // namespace

std::string KkPuzzle::text() const {
  return fmt::format("{} <think>{}</think> <answer>{}</answer>", prompt, fmt::join(reasoning, " "), answer);
}

KkStyle parse_kk_style(const std::string& name) {
  if (name == "short") return KkStyle::brief;
  if (name == "logic-rl") return KkStyle::logic_rl;
  throw ConfigError("unknown puzzle style \"{}\"; choose short or logic-rl", name);
}

std::vector<KkPuzzle> generate(const KkOptions& options) {
  check(options);
  std::vector<KkPuzzle> puzzles;
  for (std::int64_t number = 0; number < options.count; ++number)
    puzzles.push_back(draw_puzzle(options, number));
  return puzzles;
}

KkPuzzle generate_one(const KkOptions& options, std::int64_t number) {
  check(options);
  return draw_puzzle(options, number);
}

std::string to_jsonl_row(const KkPuzzle& puzzle) {
  const std::size_t people = puzzle.names.size();
  std::vector<bool> solution;
  std::string told;
  for (std::size_t i = 0; i < people; ++i) {
    solution.push_back(is_knight(puzzle.knights, static_cast<int>(i)));
    const char* before = i == 0 ? "" : i + 1 < people ? ", " : people == 2 ? " and " : ", and ";
    told += before + role_words(puzzle, i);
  }
  const std::string statements = tuple(puzzle.statements);
  nlohmann::ordered_json row = nlohmann::ordered_json::object();
  row["quiz"] = puzzle.quiz;
  row["names"] = puzzle.names;
  row["solution"] = solution;
  row["solution_text"] = told + ".";
  row["solution_text_format"] = puzzle.answer;
  row["cot_repeat_steps"] = puzzle.reasoning;
  row["statements"] = statements;
  row["prompt"] = {{{"content", puzzle.prompt}, {"role", "user"}}};
  row["reward_model"] = {
      {"ground_truth", {{"solution_text_format", puzzle.answer}, {"statements", statements}}},
      {"style", "rule"}};
  row["difficulty"] = fmt::format("{}ppl", people);
  row["prompt_text"] = puzzle.prompt;
  row["text"] = puzzle.text();
  return row.dump();
}

}  // namespace mantissa::text
