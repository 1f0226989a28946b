#include "mantissa/generate/eval/puzzles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "mantissa/core/base/error.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/puzzles/kk_reward.h"

namespace mantissa::eval {
namespace {

using data::PlacedConversation;

/// Returns the largest number of new tokens for which `prompts` fit the model's positions.
std::int64_t room_for(const std::vector<rollout::Request>& prompts,
                      const std::vector<PlacedConversation>& puzzles, std::int64_t positions,
                      std::int64_t longest) {
  if (positions <= 0) return longest;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::int64_t room = positions - std::ssize(prompts[i].prompt);
    if (room < 1) {
      throw ConfigError(fmt::format(
          "{}: the puzzle has {} tokens, and the model only {} positions (max_position_embeddings). Fix: "
          "choose smaller puzzles with --people-max",
          puzzles[i].where, prompts[i].prompt.size(), positions));
    }
    longest = std::min(longest, room);
  }
  return longest;
}

double share(const std::vector<PuzzleAnswer>& answers, bool PuzzleAnswer::*which) {
  if (answers.empty()) return 0;
  const auto count = std::ranges::count_if(answers, [&](const PuzzleAnswer& a) { return a.*which; });
  return static_cast<double>(count) / static_cast<double>(answers.size());
}

}  // namespace

PuzzleFormat::PuzzleFormat(const weights::ModelSource& source, const std::string& template_name) {
  if (template_name != "none") {
    format_.emplace(source, template_name);
    format_->fix_date();
    return;
  }
  tokenizer_ = data::tokenizer_of(source);
  if (tokenizer_ == nullptr) throw ConfigError(fmt::format("puzzles: {}", data::why_no_tokenizer(source)));
}

data::PromptText PuzzleFormat::prompt(const PlacedConversation& puzzle, std::int64_t vocabulary) const {
  return data::prompt_text(tokenizer(), chat_format(), text::without_answer(puzzle.row), vocabulary,
                           puzzle.where);
}

std::vector<std::int32_t> PuzzleFormat::ends() const {
  return format_ ? format_->ends() : std::vector{tokenizer().separator()};
}

std::string PuzzleFormat::answer(const data::PromptText& prompt, std::vector<std::int32_t> ids) const {
  return data::answer_text(tokenizer(), chat_format(), prompt, std::move(ids));
}

double PuzzleScores::well_formed() const {
  return share(answers, &PuzzleAnswer::well_formed);
}

double PuzzleScores::accuracy() const {
  return share(answers, &PuzzleAnswer::right);
}

std::vector<PeopleScore> PuzzleScores::by_people() const {
  std::map<std::int64_t, PeopleScore> scores;
  for (const PuzzleAnswer& a : answers) {
    PeopleScore& score = scores[a.people];
    score.people = a.people;
    ++score.puzzles;
    score.well_formed += a.well_formed ? 1 : 0;
    score.right += a.right ? 1 : 0;
  }
  std::vector<PeopleScore> all;
  for (const auto& [people, score] : scores) all.push_back(score);
  return all;
}

std::vector<PlacedConversation> read_puzzles(const std::vector<std::string>& files,
                                             const PuzzleChoice& choice) {
  std::map<std::int64_t, std::vector<PlacedConversation>> by_people;
  bool any_row = false;
  data::for_each_conversation(files, {}, [&](PlacedConversation row) {
    any_row = true;
    if (!row.row.puzzle) {
      throw FileError(
          fmt::format("{}: the row is not a puzzle: it has no \"solution_text_format\" with \"prompt\" or "
                      "\"quiz\", or it has an answer. Fix: remove --puzzles, or give rows of Logic-RL or of "
                      "mantissa data kk",
                      row.where));
    }
    const std::int64_t people = row.row.puzzle->people;
    if (people < choice.people_min || people > choice.people_max) return true;
    std::vector<PlacedConversation>& some = by_people[people];
    if (std::ssize(some) < choice.count) some.push_back(std::move(row));
    return true;
  });
  if (!any_row) throw ConfigError(fmt::format("{}: contains no puzzles", fmt::join(files, ", ")));
  if (by_people.empty()) {
    throw ConfigError(
        fmt::format("{}: no puzzle has {} to {} people. Fix: change --people-min or --people-max",
                    files.front(), choice.people_min, choice.people_max));
  }
  std::vector<PlacedConversation> chosen;
  for (std::size_t turn = 0; std::ssize(chosen) < choice.count; ++turn) {
    bool any = false;
    for (auto& [people, some] : by_people) {
      if (turn >= some.size() || std::ssize(chosen) == choice.count) continue;
      chosen.push_back(std::move(some[turn]));
      any = true;
    }
    if (!any) break;
  }
  return chosen;
}

std::vector<PlacedConversation> generated_puzzles(const text::KkOptions& options) {
  std::vector<PlacedConversation> puzzles;
  data::for_each_conversation({"kk"}, options, [&](PlacedConversation row) {
    puzzles.push_back(std::move(row));
    return true;
  });
  return puzzles;
}

PuzzleScores answer_puzzles(const weights::ModelSource& source, const precision::Policy& policy,
                            const std::vector<PlacedConversation>& puzzles, const PuzzleFormat& format,
                            std::int64_t longest, const runtime::Device& device,
                            const std::stop_token& stop) {
  constexpr std::int64_t kMostStreams = 16;
  std::vector<data::PromptText> prompts;
  std::vector<rollout::Request> requests;
  for (const PlacedConversation& p : puzzles) {
    prompts.push_back(format.prompt(p, source.config.vocab_size));
    requests.push_back({prompts.back().ids, 0});
  }
  rollout::GenerateOptions generate;
  generate.max_new_tokens = room_for(requests, puzzles, source.config.max_position_embeddings, longest);
  generate.interrupt = stop;
  generate.stop = format.ends();
  const std::vector<rollout::Generation> made =
      rollout::complete(source, policy, requests, generate, kMostStreams, device);
  PuzzleScores scores;
  scores.interrupted = stop.stop_requested() && !std::ranges::all_of(made, &rollout::Generation::ended);
  if (scores.interrupted) return scores;
  for (std::size_t i = 0; i < puzzles.size(); ++i) {
    const text::AskedPuzzle& puzzle = *puzzles[i].row.puzzle;
    const std::string text = format.answer(prompts[i], made[i].ids);
    const text::KkReward reward = text::kk_reward("Assistant:" + text, puzzle.solution);
    scores.answers.push_back(
        {puzzle.people, reward.format > 0 && reward.answer > -2, reward.answer > 0, text});
  }
  return scores;
}

}  // namespace mantissa::eval
