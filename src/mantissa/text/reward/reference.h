// The answer of a response, and the right one of its row.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mantissa::reward {

/// Returns the answer of a text: the body of the last <answer> that </answer> follows, or without such a pair
/// the whole text; without the Unicode white space at its ends. The tags are literal.
std::string_view answer_in(std::string_view text);

/// Returns the right answer of a row: answer_in() of the first of its fields `answer`, `completion` and
/// `solution` that is not null. A number, true or false counts as its JSON text, "42". Throws FileError,
/// beginning with `where`, if there is none, or if it is empty, an array or an object.
std::string reference_answer(const nlohmann::ordered_json& row, const std::string& where);

}  // namespace mantissa::reward
