#include "mantissa/text/reward/reference.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/characters.h"

namespace mantissa::reward {
namespace {

constexpr std::string_view kBegin = "<answer>", kEnd = "</answer>";

std::string_view without_spaces(std::string_view text) {
  std::size_t begin = text.size(), end = 0;  // of the characters that are not white space
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t character = at;
    if (text::is_space(text::decode_utf8(text, at))) continue;
    if (begin > character) begin = character;
    end = at;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

}  // namespace

std::string_view answer_in(std::string_view text) {
  const std::size_t end = text.rfind(kEnd);
  if (end != std::string_view::npos) {
    const std::size_t begin = text.substr(0, end).rfind(kBegin);
    if (begin != std::string_view::npos) {
      text = text.substr(begin + kBegin.size());
      text = text.substr(0, text.find(kEnd));
    }
  }
  return without_spaces(text);
}

std::string reference_answer(const nlohmann::ordered_json& row, const std::string& where) {
  for (const char* field : {"answer", "completion", "solution"}) {
    const auto found = row.find(field);
    if (found == row.end() || found->is_null()) continue;
    if (found->is_string()) {
      std::string answer(answer_in(found->get_ref<const std::string&>()));
      if (answer.empty()) {
        throw FileError("{}: \"{}\" has an empty answer, which responses cannot be compared with", where,
                        field);
      }
      return answer;
    }
    if (found->is_primitive()) return found->dump();
    throw FileError(
        "{}: \"{}\" is an {}; expected a string, a number, true or false, with which responses are compared",
        where, field, found->type_name());
  }
  throw FileError(
      "{}: no right answer to compare responses with; expected \"answer\", \"completion\" or \"solution\"",
      where);
}

}  // namespace mantissa::reward
