// Answers to questions whose right answers are known, of files or of a generator, scored by a rule of
// rewards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/data/prompt_text.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/rows/generated_rows.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::eval {

/// The tokens of the longest answer, unless the caller gives another number.
inline constexpr std::int64_t kLongestAnswer = 768;

struct Answer {
  std::int64_t people = 0;   // that the question is about
  bool well_formed = false;  // it can be read
  bool right = false;
  std::string text;  // with the beginning that the prompt has
};

/// Answered questions about one number of people.
struct PeopleScore {
  std::int64_t people = 0, questions = 0, well_formed = 0, right = 0;
};

struct AnswerScores {
  std::vector<Answer> answers;  // in the order of the questions
  bool interrupted = false;     // then there are none

  /// Returns shares of the answers; 0 without any.
  double well_formed() const;
  double accuracy() const;
  std::vector<PeopleScore> by_people() const;
};

/// Questions of files: the first ones about each number of people, in equal shares as far as they exist.
struct QuestionChoice {
  std::int64_t count = 0;
  std::int64_t people_min = 2, people_max = 8;
};

/// A question with its row, which has what the rule needs.
struct AskedQuestion : data::PlacedConversation {
  nlohmann::ordered_json fields;
};
/// Returns questions of the rows of `files`. Throws FileError for a row without one that the rule can score,
/// and ConfigError if none is about so many people.
std::vector<AskedQuestion> read_questions(const std::vector<std::string>& files, const QuestionChoice& choice,
                                          const text::FileFormat& format = {});
/// Returns generated questions.
std::vector<AskedQuestion> generated_questions(const text::GeneratedRows& rows);

/// From a question to the ids that a model continues, and from the ids that it adds to an answer.
class QuestionFormat {
 public:
  /// The prompt is the row's text, and the tokenizer's separator ends an answer. `tokenizer` is not null.
  explicit QuestionFormat(std::unique_ptr<tokenizer::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  /// The prompt is rendered by a chat template; `source` and `template_name` as for dialog::PromptFormat, or
  /// "none" for the row's text.
  QuestionFormat(const weights::ModelSource& source, const std::string& template_name);

  /// Returns the prompt of a question, up to what its answer adds. Throws as data::prompt_text() does.
  data::PromptText prompt(const data::PlacedConversation& question, std::int64_t vocabulary) const;
  /// Returns the ids that end an answer.
  std::vector<std::int32_t> ends() const;
  /// Returns dialog::until_turn_ends() for answers of this format, which must outlive the function.
  rollout::OnToken until_turn_ends(std::size_t answers) const;
  /// Returns the answer of a prompt that `ids` continue.
  std::string answer(const data::PromptText& prompt, std::vector<std::int32_t> ids) const;

 private:
  const tokenizer::Tokenizer& tokenizer() const { return format_ ? format_->tokenizer() : *tokenizer_; }
  const data::ChatFormat* chat_format() const { return format_ ? &format_->format() : nullptr; }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // without a template
  std::optional<dialog::PromptFormat> format_;
};

/// Answers the questions with the most likely tokens, at most `longest` each, several at once, and scores
/// them. `ranks` share the questions, as in rollout::complete(). Throws ConfigError for a prompt that leaves
/// no position for an answer.
AnswerScores answer_questions(const weights::ModelSource& source, const precision::Policy& policy,
                              const std::vector<AskedQuestion>& questions, const QuestionFormat& format,
                              std::int64_t longest, const runtime::Device& device,
                              const std::stop_token& stop, comm::Communicator* ranks = nullptr);

}  // namespace mantissa::eval
