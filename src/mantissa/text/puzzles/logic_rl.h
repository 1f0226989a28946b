// The rows of Logic-RL's data set of Knights-and-Knaves puzzles, and those of `mantissa data kk`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/text/puzzles/kk_statement.h"

namespace mantissa::text {

/// A puzzle as a conversation.
struct LogicRlRow {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::optional<std::pair<std::string, std::string>> texts = {};  // prompt and completion without a template
  std::int64_t people = 0;                                        // in the puzzle
  std::string begun = {};  // the beginning of the answer in the row's prompt, such as "<think>"
};

/// Returns true for a row with `solution_text_format` and a puzzle in `prompt` or `quiz`.
bool is_logic_rl(const nlohmann::ordered_json& row);

/// Returns the puzzle as a conversation. Its answer is
///   <think>REASONING</think> <answer>SOLUTION</answer>
/// with the row's `solution_text_format`, and a reasoning made from `statements` (kk_reasoning), else the
/// row's own steps in `cot_repeat_steps`, else none. A prompt that is a ChatML text becomes its messages, and
/// its beginning of an answer becomes the beginning of this answer. Throws FileError if a field has the wrong
/// type.
LogicRlRow read_logic_rl(const nlohmann::ordered_json& row, const std::string& where);

/// Parses statements such as "(('lying', 1), ('or', ('lying', 0), ('telling-truth', 1)))" about `people`
/// people. Returns none for other text.
std::vector<KkStatement> parse_kk_statements(std::string_view text, int people);

}  // namespace mantissa::text
