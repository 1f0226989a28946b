// The rows of files, or of a generator, for a model without a config: for evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/setup/data/rows.h"

namespace mantissa::data {

/// Returns the rows of files in order, or data::held_out_rows() of a generator. Throws ConfigError for
/// text if the model has no tokenizer.
text::StepData file_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                         const text::FileFormat& format, std::int64_t sequence_length);

/// Returns the conversations of files in order, of which only the answers are predicted, by the model's
/// tokenizer and its chat template, or the template that `template_name` names. A row longer than
/// `sequence_length`, or, if that is 0, than the model's positions, loses ids on its left. Adds a line about
/// the rows to `notes`. Throws ConfigError if the model has no tokenizer or no template.
text::StepData answer_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                           const text::FileFormat& format, const std::string& template_name,
                           std::int64_t sequence_length, std::vector<std::string>& notes);

/// The same of conversations in memory; `name` stands for their files in messages.
text::StepData answer_rows(const weights::ModelSource& source, const std::vector<PlacedConversation>& rows,
                           const std::string& name, const std::string& template_name,
                           std::int64_t sequence_length, std::vector<std::string>& notes);

/// Returns true if the first row of the first file is a conversation, without a document in "text".
bool holds_conversations(const std::vector<std::string>& files, const text::FileFormat& format);

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

}  // namespace mantissa::data
