// One row of data for supervised fine-tuning: a conversation, a prompt and its completion, or ids.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "mantissa/text/rows/row.h"
#include "mantissa/text/rows/row_fields.h"

namespace mantissa::text {

/// A conversation as a chat template takes it and, if the row has them, a prompt and a completion as texts;
/// or ids with labels, and no messages.
struct ConversationRow {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // of objects with a string "role"
  nlohmann::ordered_json tools = nullptr;                             // of the template, or null
  std::optional<std::pair<std::string, std::string>> texts = {};      // without a template
  std::optional<Row> tokens = {};                                     // encoded before
  std::int64_t people = 0;  // that the row's question is about; 0: the row does not say
  std::string begun = {};   // the beginning of the answer in the row's prompt, such as "<think>"
};

/// Reads a row (docs/fine-tuning.md lists the fields). `where` is its file and line. Throws FileError if a
/// field is missing or has the wrong type.
ConversationRow read_conversation(const nlohmann::ordered_json& row, const std::string& where);

/// Returns the conversation of a prompt and what follows it, fields of `row` that are each a text or an array
/// of messages. The row's `system` comes first. Throws FileError as above.
ConversationRow read_exchange(const nlohmann::ordered_json& row, const FoundField& prompt,
                              const FoundField& completion, const std::string& where);

/// Reads the prompt of a row for online objectives: `messages` that end with the user's turn, or `prompt` (a
/// text or such messages), and rows of Logic-RL. An answer in another field is not read: `messages` end
/// before it, and the second of `texts` is empty. Throws FileError as above.
ConversationRow read_prompt(const nlohmann::ordered_json& row, const std::string& where);

/// Returns the row as a prompt: without its last message, and with an empty second text.
ConversationRow without_answer(ConversationRow row);

/// Returns true if the row has one of the forms of read_conversation(), and no document in `text`.
bool is_conversation(const nlohmann::ordered_json& row);

}  // namespace mantissa::text
