// One row of preference data: two answers to a prompt, of which one is preferred.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/text/rows/conversation_row.h"

namespace mantissa::text {

/// An answer with its prompt.
struct PromptedAnswer {
  ConversationRow row;
  std::size_t prompt_messages = 0;  // the first ones of row.messages
};

struct PreferenceRow {
  PromptedAnswer chosen, rejected;
  double margin = 0;  // by which the chosen answer should score more
};

/// Reads a row (docs/post-training.md, "Pairs"). A prompt that is not given is what the two answers begin
/// with alike: messages, or characters. Rows of two texts without a prompt have no messages. `where` is the
/// row's file and line. Throws FileError if a field is missing or has the wrong type.
PreferenceRow read_preference(const nlohmann::ordered_json& row, const std::string& where);

}  // namespace mantissa::text
