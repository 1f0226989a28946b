// The rows of supervised fine-tuning: conversations as ids, of which only the answers are predicted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/answers.h"
#include "mantissa/setup/data/chat_format.h"
#include "mantissa/text/rows/conversation_row.h"
#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/rows/generated_rows.h"
#include "mantissa/text/rows/row.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// The rules for rows that are too long, empty or without a label (docs/fine-tuning.md).
struct SftRules {
  std::int64_t sequence_length = 256;  // a row has at most one id more
  TrainOn train_on = TrainOn::assistant;
  std::string truncate = "refuse";     // or "skip", "left", "right"
  std::string masked_rows = "skip";    // or "refuse"
  std::string empty_answers = "skip";  // or "train", "refuse"
};
SftRules sft_rules(const config::DataSection& section);

/// The counts of rows that the rules changed or left out.
struct RuleCounts {
  std::int64_t used = 0;
  std::int64_t masked = 0, empty = 0, skipped = 0;  // not used: nothing to train, an empty answer, too long
  std::int64_t truncated = 0;                       // used, with fewer ids
  std::int64_t cut = 0;                             // truncated rows that lost a part of an answer
  std::int64_t ids = 0, dropped = 0;                // of used rows, as they are used; of truncated ones
  std::int64_t longest = 0;                         // ids of the longest row
  std::string longest_at;                           // its file and line
  std::int64_t too_long = 0;
};

/// Returns the end of a line about rows: "; not used: …; … truncated …". `masked` tells why masked rows are
/// not used.
std::string left_out_text(const RuleCounts& counts, const SftRules& rules, const char* masked);
/// Throws the error of rules that refuse long rows. `which` is its subject: "3 of 40 rows are longer". The
/// longest row fits `length`.
[[noreturn]] void refuse_long_rows(const RuleCounts& counts, const SftRules& rules, const std::string& which,
                                   std::int64_t length);

/// Counts of the rows of some files. Ids of rows that are not used do not count.
struct SftCounts : RuleCounts {
  std::int64_t rows = 0;     // in the files
  std::int64_t trained = 0;  // ids
  std::int64_t ended = 0;    // used rows with a trained special token, such as the one that ends an answer
};

/// Returns one line about the rows of `name`.
std::string describe(const SftCounts& counts, const SftRules& rules, const std::string& name);

/// Too few rows of the data have a token to train.
class NoLabels : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Turns conversations into rows.
class SftEncoder {
 public:
  /// `format`: null for prompts and completions as they are. All must outlive the encoder. `vocabulary` is
  /// the number of entries of the model.
  SftEncoder(const SftRules& rules, const ChatFormat* format, const tokenizer::Tokenizer& tokenizer,
             std::int64_t vocabulary);

  /// Returns the row before any rule is applied; safe to call from several threads. Throws FileError,
  /// beginning with `where`, and ConfigError for an id that is not below the vocabulary.
  text::Row encode(const text::ConversationRow& row, const std::string& where) const;
  /// Applies the rules to `encoded`, the ids of `row`. Returns null if the row is not used. Throws FileError
  /// if a rule refuses it.
  std::optional<text::Row> add(const text::ConversationRow& row, text::Row encoded, const std::string& where);
  /// Throws ConfigError if rows were too long and the rules refuse them.
  void check() const;
  const SftCounts& counts() const { return counts_; }

 private:
  bool has_empty_answer(const text::ConversationRow& row) const;
  void truncate(text::Row& row);

  const SftRules& rules_;
  const ChatFormat* format_;
  const tokenizer::Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
  SftCounts counts_;
};

/// A row and its place: file and line, or the number of a generated one.
struct PlacedConversation {
  text::ConversationRow row;
  std::string where;
};
/// Passes each row of the files to `take` as for_each_row() does.
void for_each_conversation(const std::vector<std::string>& files,
                           const std::function<bool(PlacedConversation)>& take,
                           const text::FileFormat& format = {});

/// Returns the used rows of `source`, generated and encoded on all processors.
std::vector<text::Row> encode_all(SftEncoder& encoder, const std::vector<std::string>& source,
                                  const text::GeneratedRows& generated, const text::FileFormat& format = {});

/// Returns the used ones of `rows`.
std::vector<text::Row> encode_all(SftEncoder& encoder, const std::vector<PlacedConversation>& rows);

/// Returns the rows of `source` for the config, adds a line about them to `notes` unless it is null, and sets
/// their `counts` unless it is null. `held_out` is the share of the rows that is not trained. Throws NoLabels
/// if no row can be used, or if the rules leave out so many that none is left to train.
std::vector<text::Row> sft_rows(const config::RunConfig& config, const model::ModelConfig& model,
                                const std::vector<std::string>& source, std::vector<std::string>* notes,
                                SftCounts* counts = nullptr, double held_out = 0);

}  // namespace mantissa::data
