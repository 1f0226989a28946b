// Answers to Knights-and-Knaves puzzles: held-out ones of the generator, or those of files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/data/prompt_text.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/puzzles/kk.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::eval {

/// The tokens of the longest answer, unless the caller gives another number.
inline constexpr std::int64_t kLongestAnswer = 768;

struct PuzzleAnswer {
  std::int64_t people = 0;
  bool well_formed = false;  // tags and roles can be read
  bool right = false;
  std::string text;  // with the beginning that the prompt has
};

/// Answered puzzles with one number of people.
struct PeopleScore {
  std::int64_t people = 0, puzzles = 0, well_formed = 0, right = 0;
};

struct PuzzleScores {
  std::vector<PuzzleAnswer> answers;  // in the order of the puzzles
  bool interrupted = false;           // then there are none

  /// Returns shares of the answers; 0 without any.
  double well_formed() const;
  double accuracy() const;
  std::vector<PeopleScore> by_people() const;
};

/// Puzzles of a file or of the generator: the first ones of each number of people, in equal shares as far as
/// they exist.
struct PuzzleChoice {
  std::int64_t count = 0;
  std::int64_t people_min = 2, people_max = 8;
};

/// Returns puzzles of the rows of `files`. Throws FileError for a row that is not a puzzle, and ConfigError
/// if none has so many people.
std::vector<data::PlacedConversation> read_puzzles(const std::vector<std::string>& files,
                                                   const PuzzleChoice& choice);
/// Returns generated puzzles.
std::vector<data::PlacedConversation> generated_puzzles(const text::KkOptions& options);

/// From a puzzle to the ids that a model continues, and from the ids that it adds to an answer.
class PuzzleFormat {
 public:
  /// The prompt is the row's text, and the tokenizer's separator ends an answer. `tokenizer` is not null.
  explicit PuzzleFormat(std::unique_ptr<tokenizer::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// The prompt is rendered by a chat template; `source` and `template_name` as for dialog::PromptFormat, or
  /// "none" for the row's text.
  PuzzleFormat(const weights::ModelSource& source, const std::string& template_name);

  /// Returns the prompt of a puzzle, up to what its answer adds. Throws as data::prompt_text() does.
  data::PromptText prompt(const data::PlacedConversation& puzzle, std::int64_t vocabulary) const;
  /// Returns the ids that end an answer.
  std::vector<std::int32_t> ends() const;
  /// Returns the answer of a prompt that `ids` continue.
  std::string answer(const data::PromptText& prompt, std::vector<std::int32_t> ids) const;

 private:
  const tokenizer::Tokenizer& tokenizer() const { return format_ ? format_->tokenizer() : *tokenizer_; }
  const data::ChatFormat* chat_format() const { return format_ ? &format_->format() : nullptr; }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // without a template
  std::optional<dialog::PromptFormat> format_;
};

/// Answers the puzzles with the most likely tokens, at most `longest` each, several puzzles at once, and
/// scores them (text/puzzles/kk_reward.h). Throws ConfigError for a prompt that leaves no position for
/// an answer.
PuzzleScores answer_puzzles(const weights::ModelSource& source, const precision::Policy& policy,
                            const std::vector<data::PlacedConversation>& puzzles, const PuzzleFormat& format,
                            std::int64_t longest, const runtime::Device& device, const std::stop_token& stop);

}  // namespace mantissa::eval
