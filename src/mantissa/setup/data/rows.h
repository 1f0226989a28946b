// The rows of training and of evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {

/// Data in memory, in place of a config's data.source: tokens as one stream, rows, or a source of the rows of
/// each step. `held_out` replaces the rows that data.validation would hold out.
struct Memory {
  std::vector<std::int32_t> tokens = {};
  std::vector<text::Row> rows = {};
  text::RowSource source = {};
  std::vector<text::Row> held_out = {};
  bool any() const { return !tokens.empty() || !rows.empty() || source; }
};

/// Returns the rows of [data] for `model`, or those of `memory` unless it is empty. Throws ConfigError for
/// text if data.tokenizer does not fit the config's model, and for invalid ids, labels, weights and numbers
/// of rows. Under train.objective = "sft" the rows are those of conversations; adds a line about them to
/// `notes` unless it is null.
text::Dataset load_dataset(const config::RunConfig& config, const model::ModelConfig& model,
                           Memory memory = {}, std::vector<std::string>* notes = nullptr);

/// Throws ConfigError if the tokenizer of the config's texts is "byte", and the model's ids are not bytes. A
/// randomly initialised model may have more entries than bytes.
void check_bytes(const config::RunConfig& config, const model::ModelConfig& model);

/// Adds notes on entries of the vocabulary that cannot occur in the data, and on sequences longer than those
/// that a model of files has learned, if there are any.
void add_notes(const config::RunConfig& config, const model::ModelConfig& model, config::Told& told);

/// Returns the rows of files in order, or of held-out puzzles if `files` is {"kk"}. Throws ConfigError for
/// text if the model has no tokenizer.
text::StepData file_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                         const text::FileFormat& format, std::int64_t sequence_length);

/// Returns the conversations of files in order, of which only the answers are predicted, by the model's
/// tokenizer and its chat template, or the template that `template_name` names. A row longer than
/// `sequence_length`, or, if that is 0, than the model's positions, loses ids on its left. Adds a line about
/// the rows to `notes`. Throws ConfigError if the model has no tokenizer or no template.
text::StepData answer_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                           const std::string& template_name, std::int64_t sequence_length,
                           std::vector<std::string>& notes);

/// The same of conversations in memory; `name` stands for their files in messages.
text::StepData answer_rows(const weights::ModelSource& source, const std::vector<PlacedConversation>& rows,
                           const std::string& name, const std::string& template_name,
                           std::int64_t sequence_length, std::vector<std::string>& notes);

/// Returns true if the first row of the first file is a conversation, without a document in "text".
bool holds_conversations(const std::vector<std::string>& files, const std::string& format);

/// Returns windows of `window` tokens of the stream of files that begin every `stride` tokens, up to the one
/// that reaches its end. A window predicts the tokens after those of the window before it, but never its own
/// first one: with stride < window, every token but the first is predicted once. Throws ConfigError as
/// file_rows(), and unless 2 ≤ window and 1 ≤ stride ≤ window.
text::StepData file_windows(const weights::ModelSource& source, const std::vector<std::string>& files,
                            const text::FileFormat& format, std::int64_t window, std::int64_t stride);
text::StepData windows_of(std::span<const std::int32_t> ids, std::int64_t window, std::int64_t stride,
                          const std::string& name);

/// Returns the documents of files, each alone, as lm-evaluation-harness measures them
/// (loglikelihood_rolling): the begin-of-text token, or the separator without one, and the document's ids are
/// divided into parts of `window` + 1 ids that share one id. The last part ends with the document, is as long
/// if the document is, and predicts only what the parts before it have not. Adds the number of words, which
/// are what white space separates and as many as Python's re.split(r"\s+", text) returns, to `words`. Throws
/// ConfigError as file_rows().
text::StepData document_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                             const text::FileFormat& format, std::int64_t window, std::int64_t& words);

/// Returns tokens or rows in memory in order: sequences of `sequence_length` tokens, or rows with at most one
/// more. Throws ConfigError as load_dataset() does.
text::StepData memory_rows(const model::ModelConfig& model, Memory memory, std::int64_t sequence_length);

}  // namespace mantissa::data
