// One row of answers with a label.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/text/rows/conversation_row.h"

namespace mantissa::text {

/// A conversation whose last message is the answer, and whether the answer is desirable.
struct LabelledRow {
  ConversationRow row;
  bool desirable = false;
};

/// Reads a row (docs/post-training.md, "Answers with a label"): a conversation with a `label`, or a pair,
/// whose chosen answer is desirable and whose rejected one is not. `where` is the row's file and line. Throws
/// FileError if a field is missing or has the wrong type.
std::vector<LabelledRow> read_labelled(const nlohmann::ordered_json& row, const std::string& where);

}  // namespace mantissa::text
