#include "mantissa/generate/eval/answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "mantissa/core/base/error.h"
#include "mantissa/generate/dialog/turn_end.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/data/answer_text.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/reward/rule.h"

namespace mantissa::eval {
namespace {

/// The rule of rewards by which answers are right.
constexpr const char* kRule = "kk";

/// Returns the largest number of new tokens for which `prompts` fit the model's positions.
std::int64_t room_for(const std::vector<rollout::Request>& prompts,
                      const std::vector<AskedQuestion>& questions, std::int64_t positions,
                      std::int64_t longest) {
  if (positions <= 0) return longest;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::int64_t room = positions - std::ssize(prompts[i].prompt);
    if (room < 1) {
      throw ConfigError(fmt::format(
          "{}: the question has {} tokens, and the model only {} positions (max_position_embeddings). Fix: "
          "choose smaller ones with --people-max",
          questions[i].where, prompts[i].prompt.size(), positions));
    }
    longest = std::min(longest, room);
  }
  return longest;
}

double share(const std::vector<Answer>& answers, bool Answer::*which) {
  if (answers.empty()) return 0;
  const auto count = std::ranges::count_if(answers, [&](const Answer& a) { return a.*which; });
  return static_cast<double>(count) / static_cast<double>(answers.size());
}

}  // namespace

QuestionFormat::QuestionFormat(const weights::ModelSource& source, const std::string& template_name) {
  if (template_name != "none") {
    format_.emplace(source, template_name);
    format_->fix_date();
    return;
  }
  tokenizer_ = data::tokenizer_of(source);
  if (tokenizer_ == nullptr) throw ConfigError(fmt::format("questions: {}", data::why_no_tokenizer(source)));
}

data::PromptText QuestionFormat::prompt(const data::PlacedConversation& question,
                                        std::int64_t vocabulary) const {
  return data::prompt_text(tokenizer(), chat_format(), text::without_answer(question.row), vocabulary,
                           question.where);
}

std::vector<std::int32_t> QuestionFormat::ends() const {
  return format_ ? format_->ends() : std::vector{tokenizer().separator()};
}

rollout::OnToken QuestionFormat::until_turn_ends(std::size_t answers) const {
  return dialog::until_turn_ends(tokenizer(), chat_format(), answers);
}

std::string QuestionFormat::answer(const data::PromptText& prompt, std::vector<std::int32_t> ids) const {
  return data::answer_text(tokenizer(), chat_format(), prompt, std::move(ids)).text;
}

double AnswerScores::well_formed() const {
  return share(answers, &Answer::well_formed);
}

double AnswerScores::accuracy() const {
  return share(answers, &Answer::right);
}

std::vector<PeopleScore> AnswerScores::by_people() const {
  std::map<std::int64_t, PeopleScore> scores;
  for (const Answer& a : answers) {
    PeopleScore& score = scores[a.people];
    score.people = a.people;
    ++score.questions;
    score.well_formed += a.well_formed ? 1 : 0;
    score.right += a.right ? 1 : 0;
  }
  std::vector<PeopleScore> all;
  for (const auto& [people, score] : scores) all.push_back(score);
  return all;
}

std::vector<AskedQuestion> read_questions(const std::vector<std::string>& files, const QuestionChoice& choice,
                                          const text::FileFormat& format) {
  const std::unique_ptr<reward::Rule> rule = reward::make_rule(kRule);
  std::map<std::int64_t, std::vector<AskedQuestion>> by_people;
  bool any_row = false;
  const auto take = [&](nlohmann::ordered_json fields, std::string where) {
    any_row = true;
    AskedQuestion row{{text::read_conversation(fields, where), where}, std::move(fields)};
    if (row.row.people == 0) {
      throw FileError(
          fmt::format("{}: the row is not a puzzle: it has no \"solution_text_format\" with \"prompt\" or "
                      "\"quiz\", or it has an answer. Fix: remove --puzzles, or give rows of Logic-RL or of "
                      "mantissa data kk",
                      where));
    }
    rule->check_row(row.fields, where);
    const std::int64_t people = row.row.people;
    if (people < choice.people_min || people > choice.people_max) return true;
    std::vector<AskedQuestion>& some = by_people[people];
    if (std::ssize(some) < choice.count) some.push_back(std::move(row));
    return true;
  };
  data::for_each_row(files, take, format);
  if (!any_row) throw ConfigError(fmt::format("{}: contains no questions", fmt::join(files, ", ")));
  if (by_people.empty()) {
    throw ConfigError(
        fmt::format("{}: no question is about {} to {} people. Fix: change --people-min or --people-max",
                    files.front(), choice.people_min, choice.people_max));
  }
  std::vector<AskedQuestion> chosen;
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

std::vector<AskedQuestion> generated_questions(const text::GeneratedRows& rows) {
  std::vector<AskedQuestion> questions;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    auto fields = nlohmann::ordered_json::parse(rows.json(i));
    const std::string where = rows.where(i);
    questions.push_back({{text::read_conversation(fields, where), where}, std::move(fields)});
  }
  return questions;
}

AnswerScores answer_questions(const weights::ModelSource& source, const precision::Policy& policy,
                              const std::vector<AskedQuestion>& questions, const QuestionFormat& format,
                              std::int64_t longest, const runtime::Device& device,
                              const std::stop_token& stop, comm::Communicator* ranks) {
  constexpr std::int64_t kMostStreams = 16;
  std::vector<data::PromptText> prompts;
  std::vector<rollout::Request> requests;
  for (const AskedQuestion& q : questions) {
    prompts.push_back(format.prompt(q, source.config.vocab_size));
    requests.push_back({prompts.back().ids, 0});
  }
  rollout::GenerateOptions generate;
  generate.max_new_tokens = room_for(requests, questions, source.config.max_position_embeddings, longest);
  generate.interrupt = stop;
  generate.stop = format.ends();
  generate.on_token = format.until_turn_ends(requests.size());
  const std::vector<rollout::Generation> made =
      rollout::complete(source, policy, requests, generate, kMostStreams, device, ranks);
  AnswerScores scores;
  scores.interrupted = !std::ranges::all_of(made, &rollout::Generation::ended);
  if (scores.interrupted) return scores;
  std::vector<std::string> texts;
  std::vector<reward::Sample> samples;
  for (std::size_t i = 0; i < questions.size(); ++i) texts.push_back(format.answer(prompts[i], made[i].ids));
  for (std::size_t i = 0; i < questions.size(); ++i) samples.push_back({{}, texts[i], &questions[i].fields});
  const std::vector<reward::Score> rewards = reward::make_rule(kRule)->score(samples, {});
  for (std::size_t i = 0; i < questions.size(); ++i) {
    scores.answers.push_back({questions[i].row.people, rewards[i].well_formed.value_or(true),
                              rewards[i].right.value_or(false), std::move(texts[i])});
  }
  return scores;
}

}  // namespace mantissa::eval
