#include "mantissa/app/cli/eval_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kTableColumns = 80, kName = 24;
constexpr const char* kNone = "–";

double word_perplexity(const api::Evaluation& e) {
  return std::exp(e.loss * static_cast<double>(e.tokens) / static_cast<double>(e.words));
}

/// Returns true if the reward rule says which responses are right.
bool is_judged(const api::Evaluation& e) {
  return std::ranges::any_of(e.responses, [](const api::ScoredResponse& r) { return r.right.has_value(); });
}

json responses_json(const api::Evaluation& e) {
  json responses = json::array(), by_people = json::array();
  for (const api::ScoredResponse& r : e.responses) {
    json of = {{"prompt", r.prompt},
               {"response", r.text},
               {"reward", r.reward},
               {"tokens", r.tokens},
               {"truncated", r.truncated}};
    if (r.right) of["right"] = *r.right;
    if (r.people > 0) of["people"] = r.people;
    responses.push_back(std::move(of));
  }
  for (const api::PeopleScore& p : e.by_people)
    by_people.push_back({{"people", p.people}, {"puzzles", p.puzzles}, {"right", p.right}});
  json out = {{"prompts", e.responses.size()}, {"reward", e.reward}, {"responses", responses}};
  if (is_judged(e)) out["accuracy"] = e.accuracy;
  if (!e.by_people.empty()) out["by_people"] = by_people;
  return out;
}

/// Returns the standard error of a share of `count`.
double share_error(double share, std::int64_t count) {
  return count < 2 ? 0 : std::sqrt(share * (1 - share) / static_cast<double>(count - 1));
}

/// Times are only in the JSON of several policies: that of one is the same in every run.
json to_json(const api::Evaluation& e) {
  json out = json::object();
  if (e.tokens > 0) out = {{"tokens", e.tokens}, {"loss", e.loss}, {"perplexity", e.perplexity}};
  if (e.bytes > 0) out.update({{"bytes", e.bytes}, {"bits_per_byte", e.bits_per_byte}});
  if (e.words > 0) {
    out.update({{"words", e.words},
                {"word_perplexity", word_perplexity(e)},
                {"byte_perplexity", std::exp2(e.bits_per_byte)}});
  }
  if (!e.last_words.empty()) {
    json right = json::array(), log_probs = json::array();
    for (const api::LastWord& word : e.last_words) {
      right.push_back(word.right);
      log_probs.push_back(word.log_prob);
    }
    out["last_words"] = {{"passages", e.last_words.size()},
                         {"accuracy", e.last_word_accuracy},
                         {"perplexity", e.last_word_perplexity},
                         {"right", right},
                         {"log_probs", log_probs}};
  }
  if (!e.choices.empty()) {
    json chosen = json::array(), log_probs = json::array();
    for (const api::ChoiceAnswer& answer : e.choices) {
      chosen.push_back(answer.chosen);
      log_probs.push_back(answer.log_probs);
    }
    out["multiple_choice"] = {{"questions", e.choices.size()},
                              {"acc", e.choice_accuracy},
                              {"acc_stderr", e.choice_error},
                              {"acc_norm", e.choice_accuracy_norm},
                              {"acc_norm_stderr", e.choice_error_norm},
                              {"acc_bytes", e.choice_accuracy_bytes},
                              {"chosen", chosen},
                              {"log_probs", log_probs}};
  }
  if (e.puzzles > 0) {
    json by_people = json::array(), answers = json::array();
    for (const api::PuzzleAnswer& a : e.answers)
      answers.push_back(
          {{"people", a.people}, {"well_formed", a.well_formed}, {"right", a.right}, {"text", a.text}});
    for (const api::PeopleScore& p : e.by_people) {
      by_people.push_back(
          {{"people", p.people}, {"puzzles", p.puzzles}, {"well_formed", p.well_formed}, {"right", p.right}});
    }
    out.update({{"puzzles", e.puzzles},
                {"well_formed", e.well_formed},
                {"accuracy", e.accuracy},
                {"by_people", by_people},
                {"answers", answers}});
  }
  if (!e.responses.empty()) out.update(responses_json(e));
  out["weight_bytes"] = e.weight_bytes;
  if (e.interrupted) out["interrupted"] = true;
  return out;
}

json to_json(const api::PairedMean& mean) {
  return {{"difference", mean.difference},
          {"standard_error", mean.standard_error ? json(*mean.standard_error) : json()},
          {"pairs", mean.pairs}};
}

json to_json(const api::PairedChange& change) {
  json out = json::object();
  if (change.loss) out["loss"] = to_json(*change.loss);
  if (!change.accuracy) return out;
  out["last_word_accuracy"] = to_json(*change.accuracy);
  out["last_word_log_prob"] = to_json(*change.word_log_prob);
  out["gained"] = change.gained;
  out["lost"] = change.lost;
  return out;
}

/// Returns the standard error of the share of right puzzles.
double puzzle_error(const api::Evaluation& e) {
  return share_error(e.accuracy, e.puzzles);
}

/// Returns the word perplexity in at most 8 characters.
std::string perplexity_text(double value) {
  constexpr double kMostDigits = 1e5;
  return value < kMostDigits ? fmt::format("{:.2f}", value) : fmt::format("{:.2g}", value);
}

/// Returns "+0.10 ± 0.02" with `digits` digits.
std::string mean_text(const api::PairedMean& mean, double factor, int digits) {
  const std::string error =
      mean.standard_error ? fmt::format("{:.{}f}", factor * *mean.standard_error, digits) : kNone;
  return fmt::format("{:+.{}f} ± {}", factor * mean.difference, digits, error);
}

/// Returns the column of a policy's name of `width`, or its own line and an empty column.
std::string name_text(const std::string& name, std::size_t width = kName) {
  if (width_of(name) <= width) return fmt::format("{:<{}}", name, width);
  return fmt::format("{}\n{:{}}", wrapped(name, 2, kTableColumns), "", width);
}

/// Returns true if any evaluation has what `has` asks for.
template <class Has>
bool any(const std::vector<PolicyResult>& results, const Has& has) {
  for (const PolicyResult& r : results) {
    if (r.evaluation && has(*r.evaluation)) return true;
  }
  return false;
}

/// The columns of the table: those that any policy has.
struct Columns {
  explicit Columns(const std::vector<PolicyResult>& results)
      : loss(any(results, [](const api::Evaluation& e) { return e.tokens > 0; })),
        bytes(any(results, [](const api::Evaluation& e) { return e.bytes > 0; })),
        words(any(results, [](const api::Evaluation& e) { return !e.last_words.empty(); })),
        choices(any(results, [](const api::Evaluation& e) { return !e.choices.empty(); })),
        puzzles(any(results, [](const api::Evaluation& e) { return e.puzzles > 0; })),
        reward(any(results, [](const api::Evaluation& e) { return !e.responses.empty(); })),
        right(any(results, is_judged)) {}

  std::string head() const {
    std::string text;
    if (loss) text += fmt::format("{:>8}", "loss");
    if (bytes) text += fmt::format("{:>11}", "bits/byte");
    if (words) text += fmt::format("{:>12}{:>9}", "last words", "ppl");
    if (choices) text += fmt::format("{:>9}{:>10}", "acc", "acc_norm");
    if (puzzles) text += fmt::format("{:>9}", "puzzles");
    if (reward) text += fmt::format("{:>9}", "reward");
    if (right) text += fmt::format("{:>9}", "right");
    return text + fmt::format("{:>9}{:>7}", "weights", "tok/s");
  }

  /// Returns the width that is left for the names.
  std::size_t name_width() const { return std::min(kName, kTableColumns - width_of(head())); }

  std::string row(const PolicyResult& r) const {
    std::string text = name_text(r.name, name_width());
    if (!r.evaluation) return text + "  stopped\n";
    const api::Evaluation& e = *r.evaluation;
    if (loss) text += e.tokens > 0 ? fmt::format("{:>8.4f}", e.loss) : fmt::format("{:>8}", kNone);
    if (bytes) text += e.bytes > 0 ? fmt::format("{:>11.4f}", e.bits_per_byte) : fmt::format("{:>11}", kNone);
    if (words && !e.last_words.empty()) {
      text += fmt::format("{:>10.1f} %{:>9}", 100 * e.last_word_accuracy,
                          perplexity_text(e.last_word_perplexity));
    } else if (words) {
      text += fmt::format("{:>12}{:>9}", kNone, kNone);
    }
    if (choices && !e.choices.empty()) {
      text += fmt::format("{:>7.1f} %{:>8.1f} %", 100 * e.choice_accuracy, 100 * e.choice_accuracy_norm);
    } else if (choices) {
      text += fmt::format("{:>9}{:>10}", kNone, kNone);
    }
    if (puzzles) text += fmt::format("{:>7.0f} %", 100 * e.accuracy);
    if (reward) text += fmt::format("{:>9.4g}", e.reward);
    if (right) text += fmt::format("{:>7.0f} %", 100 * e.accuracy);
    text +=
        fmt::format("{:>9}{:>7.0f}\n", human_bytes(static_cast<double>(e.weight_bytes)), e.tokens_per_second);
    return e.interrupted ? text + "  (interrupted)\n" : text;
  }

  bool loss, bytes, words, choices, puzzles, reward, right;
};

/// Returns a table of the right answers by number of people, if there are several numbers.
std::string by_people_text(const std::vector<PolicyResult>& results) {
  std::set<std::int64_t> people;
  for (const PolicyResult& r : results) {
    if (!r.evaluation) continue;
    for (const api::PeopleScore& p : r.evaluation->by_people) people.insert(p.people);
  }
  if (people.size() < 2) return "";
  std::string text = "\n" + name_text("right, by people");
  for (const std::int64_t n : people) text += fmt::format("{:>8}", n);
  text += '\n';
  for (const PolicyResult& r : results) {
    if (!r.evaluation || r.evaluation->by_people.empty()) continue;
    text += name_text(r.name);
    std::map<std::int64_t, std::string> shares;
    for (const api::PeopleScore& p : r.evaluation->by_people) {
      shares[p.people] =
          fmt::format("{:.0f} %", 100 * static_cast<double>(p.right) / static_cast<double>(p.puzzles));
    }
    for (const std::int64_t n : people) text += fmt::format("{:>8}", shares.contains(n) ? shares[n] : kNone);
    text += '\n';
  }
  return text;
}

std::string changes_text(const std::vector<PolicyResult>& results, const Columns& columns) {
  constexpr int kLossDigits = 5;
  const PolicyResult& first = results.front();
  std::string text = "\n" + name_text("change from " + first.name);
  if (columns.loss) text += fmt::format("{:>22}", "loss");
  if (columns.words) text += fmt::format("{:>18}{:>8}{:>6}", "last words", "gained", "lost");
  text += '\n';
  for (const PolicyResult& r : results) {
    if (&r == &first || !r.evaluation) continue;
    const api::PairedChange change = api::paired_change(*first.evaluation, *r.evaluation);
    text += name_text(r.name);
    if (columns.loss)
      text += fmt::format("{:>22}", change.loss ? mean_text(*change.loss, 1, kLossDigits) : kNone);
    if (columns.words && change.accuracy) {
      text += fmt::format("{:>18}{:>8}{:>6}", mean_text(*change.accuracy, 100, 1) + " pt", change.gained,
                          change.lost);
    }
    text += '\n';
  }
  return text;
}

/// Returns what was measured, and how to read the table.
std::string explanation(const api::Evaluation& e, const EvaluatedData& data, bool changes) {
  std::string text = "\n";
  const auto add = [&](const std::string& line) { text += wrapped(line, 0, kTableColumns) + "\n"; };
  if (e.tokens > 0) {
    add(fmt::format("loss: nats per token, over {}{} of {}.", counted(e.tokens, "token"),
                    e.bytes > 0 ? fmt::format(" ({})", counted(e.bytes, "byte")) : "", data.rows));
  }
  if (!e.last_words.empty()) {
    add(fmt::format("last words: share of {} of {} whose last word is predicted; ppl: its perplexity.",
                    counted(e.last_words.size(), "passage"), data.passages));
  }
  if (!e.choices.empty()) {
    add(fmt::format(
        "acc, acc_norm: share of {} of {} whose right choice has the largest log-probability, and "
        "the largest per character; standard error {:.1f} points.",
        counted(e.choices.size(), "question"), data.questions, 100 * e.choice_error));
  }
  if (e.puzzles > 0) {
    add(fmt::format("puzzles: share of {} with the right answer; standard error {:.1f} points.",
                    counted(e.puzzles, "puzzle"), 100 * puzzle_error(e)));
  }
  if (!e.responses.empty()) {
    add(fmt::format("reward{}: of the most likely answers to {} of {}{}.", is_judged(e) ? ", right" : "",
                    counted(e.responses.size(), "prompt"), data.rows,
                    is_judged(e) ? fmt::format("; standard error {:.1f} points",
                                               100 * share_error(e.accuracy, std::ssize(e.responses)))
                                 : ""));
  }
  if (changes) {
    add(
        fmt::format("change: mean of the differences of equal {}, ± its standard error{}. A change below two "
                    "standard errors may come from the choice of the text.",
                    e.tokens == 0          ? "passages"
                    : e.last_words.empty() ? "rows"
                                           : "rows and passages",
                    e.last_words.empty() ? "" : "; pt: percentage points"));
  }
  return text;
}

}  // namespace

std::string evaluation_text(const api::Evaluation& e) {
  const char* interrupted = e.interrupted ? " (interrupted)" : "";
  std::string text;
  if (e.tokens > 0) {
    text += fmt::format("loss        {:.4f} over {}{}\nperplexity  {:.3f}\n", e.loss,
                        counted(e.tokens, "token"), interrupted, e.perplexity);
  }
  if (e.bits_per_byte > 0) text += fmt::format("bits/byte   {:.3f}\n", e.bits_per_byte);
  if (e.words > 0) {
    text +=
        fmt::format("words       {}, perplexity {} of each\n", e.words, perplexity_text(word_perplexity(e)));
  }
  if (!e.last_words.empty()) {
    text += fmt::format("last words  {:.1f} % of {} right{}, perplexity {}\n", 100 * e.last_word_accuracy,
                        counted(e.last_words.size(), "passage"), interrupted,
                        perplexity_text(e.last_word_perplexity));
  }
  if (!e.choices.empty()) {
    text += fmt::format("choices     {:.1f} ± {:.1f} % of {} right{}; by length {:.1f} ± {:.1f} %\n",
                        100 * e.choice_accuracy, 100 * e.choice_error, counted(e.choices.size(), "question"),
                        interrupted, 100 * e.choice_accuracy_norm, 100 * e.choice_error_norm);
  }
  if (e.puzzles > 0) {
    text += fmt::format("puzzles     {:.0f} ± {:.0f} % of {} right, {:.0f} % in the right form\n",
                        100 * e.accuracy, 100 * puzzle_error(e), counted(e.puzzles, "puzzle"),
                        100 * e.well_formed);
    for (const api::PeopleScore& p : e.by_people) {
      if (e.by_people.size() < 2) break;
      text += fmt::format("  {} people  {} of {} right, {} in the right form\n", p.people, p.right, p.puzzles,
                          p.well_formed);
    }
  }
  if (!e.responses.empty()) {
    text += fmt::format("reward      {:.4g}, mean of {}\n", e.reward,
                        counted(e.responses.size(), "held-out prompt"));
    if (is_judged(e)) {
      text += fmt::format("right       {:.0f} ± {:.0f} %\n", 100 * e.accuracy,
                          100 * share_error(e.accuracy, std::ssize(e.responses)));
    }
    for (const api::PeopleScore& p : e.by_people)
      text += fmt::format("  {} people  {} of {} right\n", p.people, p.right, p.puzzles);
  }
  return text;
}

std::string evaluation_json(const api::Evaluation& e) {
  return to_json(e).dump(2, ' ', false, json::error_handler_t::replace);
}

std::string policies_text(const std::vector<PolicyResult>& results, const EvaluatedData& data) {
  const Columns columns(results);
  std::string text = name_text("policy", columns.name_width()) + columns.head() + "\n";
  const PolicyResult* complete = nullptr;
  for (const PolicyResult& r : results) {
    text += columns.row(r);
    if (complete == nullptr && r.evaluation) complete = &r;
  }
  text += by_people_text(results);
  const bool changes = results.size() > 1 && results.front().evaluation && (columns.loss || columns.words);
  if (changes) text += changes_text(results, columns);
  return complete == nullptr ? text : text + explanation(*complete->evaluation, data, changes);
}

std::string policies_json(const std::vector<PolicyResult>& results) {
  json all = json::array();
  for (const PolicyResult& r : results) {
    json of = r.evaluation ? to_json(*r.evaluation) : json{{"error", r.failure}};
    of["policy"] = r.name;
    if (r.evaluation)
      of.update({{"seconds", r.evaluation->seconds}, {"tokens_per_second", r.evaluation->tokens_per_second}});
    if (&r != &results.front() && r.evaluation && results.front().evaluation)
      of["change"] = to_json(api::paired_change(*results.front().evaluation, *r.evaluation));
    all.push_back(std::move(of));
  }
  return json{{"policies", all}}.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace mantissa::cli
