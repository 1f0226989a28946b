// The rows of preference objectives: pairs of answers to a prompt as ids.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/chat_format.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/preference_row.h"
#include "mantissa/text/rows/row.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// The rows of a pair: the chosen one, then the rejected one.
struct EncodedPair {
  text::Row chosen, rejected;
};

/// Counts of the pairs of some files. Used, masked, empty, skipped and too long ones are pairs, truncated and
/// cut ones rows.
struct PairCounts : RuleCounts {
  std::int64_t pairs = 0;  // in the files
};

/// Turns preference rows into pairs of rows. Labels are those of the answers. With `scores`, the rows are for
/// reward models: the model reads every id, so the last one is there twice, and no label is masked.
class PairEncoder {
 public:
  /// `format`: null for prompts and answers as they are. All must outlive the encoder.
  PairEncoder(const SftRules& rules, bool scores, const ChatFormat* format,
              const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary);

  /// Returns the pair before any rule is applied; safe to call from several threads. Throws as
  /// SftEncoder::encode() does.
  EncodedPair encode(const text::PreferenceRow& row, const std::string& where) const;
  /// Applies the rules, to both rows alike. Returns null if the pair is not used. Throws FileError if a rule
  /// refuses it.
  std::optional<EncodedPair> add(const text::PreferenceRow& row, EncodedPair encoded,
                                 const std::string& where);
  /// Throws ConfigError if rows were too long and the rules refuse them.
  void check() const;
  const PairCounts& counts() const { return counts_; }

 private:
  text::Row encode(const text::PromptedAnswer& answer, const std::string& where) const;
  bool has_empty_answer(const text::PromptedAnswer& answer) const;
  std::int64_t most_ids() const { return rules_.sequence_length + (scores_ ? 0 : 1); }
  void truncate(text::Row& row);

  const SftRules& rules_;
  bool scores_;
  const ChatFormat* format_;
  const tokenizer::Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
  PairCounts counts_;
};

/// Returns one line about the pairs of `name`.
std::string describe(const PairCounts& counts, const SftRules& rules, const std::string& name);

/// The pairs of a run, for training and held out, by their numbers in StepData::origin.
struct PairSet {
  text::Dataset rows;                             // a unit of a batch is a pair, two rows
  std::vector<double> margins, held_out_margins;  // the latter of separate files; empty: there are none
  std::set<std::int32_t> last_ids;                // of the rows
};

/// Reads the pairs of [data] for train.objective = "dpo" or "reward", and adds lines about them to `notes`
/// unless it is null. Throws FileError with file and line for a row that is not a pair, and ConfigError for
/// rows that are too long, and if no pair is left.
PairSet load_pairs(const config::RunConfig& config, const model::ModelConfig& model,
                   std::vector<std::string>* notes);

}  // namespace mantissa::data
