// Encoded rows of conversations: what they have in common under every objective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/setup/data/answers.h"
#include "mantissa/text/rows/conversation_row.h"
#include "mantissa/text/rows/row.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// Returns the ids with labels for the answers.
text::Row labelled(AnswerIds answer);

/// Throws FileError, beginning with `where`, if the row has texts only, which a template cannot render.
void require_messages(const text::ConversationRow& row, const std::string& where);

/// Returns the ids of a prompt and a completion as texts, without a template, and the separator of documents.
/// The completion and the separator are labelled, or everything under TrainOn::all. Throws FileError,
/// beginning with `where`, if the row has no texts.
text::Row plain_row(const text::ConversationRow& row, const tokenizer::Tokenizer& tokenizer,
                    std::int64_t vocabulary, TrainOn train_on, const std::string& where);

/// Returns the number of tokens that are predicted.
std::int64_t trained_of(const text::Row& row);

/// Returns true if the text has nothing but white space.
bool is_blank(const std::string& text);
/// Returns true if an answer of `messages` from number `first` on that `train_on` trains is empty.
bool has_empty_message(const nlohmann::ordered_json& messages, std::size_t first, TrainOn train_on);

/// Drops ids of a row that has more than `most`. `side` is "left": the ids after the last label, then those
/// at the beginning; or "right": those at the end.
void truncate_row(text::Row& row, std::size_t most, const std::string& side);

}  // namespace mantissa::data
