#include "mantissa/text/rows/preference_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kForms = "a string, or an array of messages";

/// Returns the answer called `name`. Throws if the row has none.
FoundField answer_of(const Json& row, const char* name, const std::string& where) {
  const FoundField found = first_of(row, std::array{name});
  if (!found) {
    throw FileError(
        "{}: no \"{}\"; a row of pairs has \"chosen\" and \"rejected\", and usually \"prompt\". "
        "Its fields: {}{}",
        where, name, fmt::join(field_names(row), ", "), kFieldsCure);
  }
  if (!found.value->is_string() && !found.value->is_array()) wrong_field(where, name, *found.value, kForms);
  return found;
}

double margin_of(const Json& row, const std::string& where) {
  const auto found = row.find("margin");
  if (found == row.end() || found->is_null()) return 0;
  if (found->is_string()) {  // as the values of CSV are
    const std::string_view text = trimmed(found->get_ref<const std::string&>());
    double margin = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), margin);
    if (text.empty()) return 0;
    if (error == std::errc() && end == text.data() + text.size() && std::isfinite(margin)) return margin;
  }
  if (!found->is_number()) wrong_field(where, "margin", *found, "a number");
  return found->get<double>();
}

/// Returns true if `messages` begin with those of the prompt. A system message may come before a prompt that
/// is a text.
bool includes(const Json& messages, const Json& prompt, bool text) {
  std::size_t from = 0;
  if (text && messages.front()["role"] == "system") from = 1;
  if (messages.size() < from + prompt.size()) return false;
  return std::equal(prompt.begin(), prompt.end(), messages.begin() + static_cast<std::ptrdiff_t>(from));
}

/// Returns the conversation of the prompt and an answer, which may contain the prompt.
PromptedAnswer prompted(const Json& row, const FoundField& prompt, const FoundField& answer,
                        const std::string& where) {
  if (answer.value->is_array()) {
    const Json messages = read_messages(*answer.value, answer.name, where);
    const bool text = prompt.value->is_string();
    const Json question = text ? Json::array({as_message("user", prompt.value->get<std::string>())})
                               : read_messages(*prompt.value, prompt.name, where);
    if (includes(messages, question, text)) {
      const std::size_t system = text && messages.front()["role"] == "system" ? 1 : 0;
      return {{.messages = messages, .tools = read_tools(row, where)}, system + question.size()};
    }
  }
  ConversationRow whole = read_exchange(row, prompt, answer, where);
  const std::size_t own = answer.value->is_array() ? answer.value->size() : 1;
  const std::size_t before = whole.messages.size() - own;
  return {std::move(whole), before};
}

std::size_t common_messages(const Json& a, const Json& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// Returns the bytes that both texts begin with, in whole characters of UTF-8.
std::size_t common_bytes(const std::string& a, const std::string& b) {
  auto end =
      static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto continues = [&](const std::string& s) {
    return end < s.size() && (static_cast<unsigned char>(s[end]) & 0xC0U) == 0x80U;
  };
  while (end > 0 && (continues(a) || continues(b))) --end;
  return end;
}

}  // namespace

PreferenceRow read_preference(const Json& row, const std::string& where) {
  const FoundField prompt = first_of(row, kPromptFields);
  const FoundField chosen = answer_of(row, "chosen", where), rejected = answer_of(row, "rejected", where);
  PreferenceRow out;
  out.margin = margin_of(row, where);
  if (chosen.value->is_string() != rejected.value->is_string()) {
    throw FileError(
        "{}: \"chosen\" is {}, but \"rejected\" is {}; expected two strings, or two arrays of messages",
        where, chosen.value->is_string() ? "a string" : "an array",
        rejected.value->is_string() ? "a string" : "an array");
  }
  if (prompt) {
    if (!prompt.value->is_string() && !prompt.value->is_array())
      wrong_field(where, prompt.name, *prompt.value, kForms);
    out.chosen = prompted(row, prompt, chosen, where);
    out.rejected = prompted(row, prompt, rejected, where);
  } else if (chosen.value->is_array()) {
    Json a = read_messages(*chosen.value, chosen.name, where),
         b = read_messages(*rejected.value, rejected.name, where);
    const std::size_t shared = std::min({common_messages(a, b), a.size() - 1, b.size() - 1});
    out.chosen = {{.messages = std::move(a), .tools = read_tools(row, where)}, shared};
    out.rejected = {{.messages = std::move(b), .tools = read_tools(row, where)}, shared};
  } else {
    const auto a = chosen.value->get<std::string>(), b = rejected.value->get<std::string>();
    const std::size_t shared = common_bytes(a, b);
    out.chosen.row.texts.emplace(a.substr(0, shared), a.substr(shared));
    out.rejected.row.texts.emplace(b.substr(0, shared), b.substr(shared));
  }
  return out;
}

}  // namespace mantissa::text
