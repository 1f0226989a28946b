#include "mantissa/text/rows/conversation_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/text/puzzles/logic_rl.h"
#include "mantissa/text/rows/row_fields.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kConversation = {"messages", "conversations", "conversation"};
constexpr std::array kCompletion = {"completion", "response", "output", "answer"};

void append(Json& messages, Json more) {
  for (Json& m : more) messages.push_back(std::move(m));
}

/// Returns the messages of a prompt, which is a text or an array of messages, and its text, if it is one.
ConversationRow read_question(const Json& row, const FoundField& prompt, const std::string& where) {
  ConversationRow out;
  const std::string system = read_text(row, "system", where);
  if (!system.empty()) out.messages.push_back(as_message("system", system));
  if (prompt.value->is_string()) {
    auto question = prompt.value->get<std::string>();
    // Alpaca's rows have the text that an instruction is about apart.
    const bool alpaca = prompt.name == std::string_view("instruction");
    if (const std::string input = alpaca ? read_text(row, "input", where) : ""; !input.empty())
      question += "\n\n" + input;
    out.messages.push_back(as_message("user", question));
    out.texts.emplace(system.empty() ? question : system + "\n\n" + question, "");
  } else if (prompt.value->is_array()) {
    append(out.messages, read_messages(*prompt.value, prompt.name, where));
  } else {
    wrong_field(where, prompt.name, *prompt.value, "a string, or an array of messages");
  }
  return out;
}

ConversationRow logic_rl_row(const Json& row, const std::string& where) {
  LogicRlRow read = read_logic_rl(row, where);
  return {.messages = std::move(read.messages),
          .texts = std::move(read.texts),
          .people = read.people,
          .begun = std::move(read.begun)};
}

std::vector<std::int32_t> read_ids(const Json& list, const char* field, const std::string& where) {
  if (!list.is_array()) wrong_field(where, field, list, "an array of integers");
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
    const bool fits = id.is_number_unsigned()  ? id.get<std::uint64_t>() <= kMost
                      : id.is_number_integer() ? id.get<std::int64_t>() >= -std::int64_t{kMost}
                                               : false;
    if (!fits) {
      throw FileError(
          fmt::format("{}: element {} of \"{}\" is not a 32-bit integer", where, ids.size(), field));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

/// A row that was encoded before, with labels as in PyTorch.
Row read_tokens(const Json& row, const std::string& where) {
  Row out{.ids = read_ids(row["input_ids"], "input_ids", where)};
  out.labels = out.ids;
  if (const auto labels = row.find("labels"); labels != row.end() && !labels->is_null())
    out.labels = read_ids(*labels, "labels", where);
  if (out.ids.empty()) throw FileError(fmt::format("{}: \"input_ids\" is empty", where));
  if (out.labels.size() != out.ids.size()) {
    throw FileError(fmt::format("{}: \"labels\" has {} elements, and \"input_ids\" has {}", where,
                                out.labels.size(), out.ids.size()));
  }
  return out;
}

}  // namespace

ConversationRow read_exchange(const Json& row, const FoundField& prompt, const FoundField& completion,
                              const std::string& where) {
  ConversationRow out = read_question(row, prompt, where);
  if (completion.value->is_string()) {
    const auto answer = completion.value->get<std::string>();
    out.messages.push_back(as_message("assistant", answer));
    if (out.texts) out.texts->second = answer;
  } else if (completion.value->is_array()) {
    append(out.messages, read_messages(*completion.value, completion.name, where));
    out.texts.reset();
  } else {
    wrong_field(where, completion.name, *completion.value, "a string, or an array of messages");
  }
  out.tools = read_tools(row, where);
  return out;
}

bool is_conversation(const Json& row) {
  const auto text = row.find("text");
  if (text != row.end() && text->is_string()) return false;
  return static_cast<bool>(first_of(row, kConversation)) || static_cast<bool>(first_of(row, kPromptFields)) ||
         row.contains("input_ids");
}

ConversationRow read_conversation(const Json& row, const std::string& where) {
  ConversationRow out;
  if (const FoundField list = first_of(row, kConversation)) {
    out.messages = read_messages(*list.value, list.name, where);
  } else {
    const FoundField prompt = first_of(row, kPromptFields), completion = first_of(row, kCompletion);
    if (!completion && is_logic_rl(row)) return logic_rl_row(row, where);
    if (!prompt && !completion && row.contains("input_ids")) {
      out.tokens = read_tokens(row, where);
      return out;
    }
    if (!prompt || !completion) {
      throw FileError(fmt::format(
          "{}: no {}; a row has \"messages\", or one of {} and one of {}, or \"input_ids\". Its fields: {}{}",
          where,
          prompt       ? "completion"
          : completion ? "prompt"
                       : "conversation",
          fmt::join(kPromptFields, ", "), fmt::join(kCompletion, ", "), fmt::join(field_names(row), ", "),
          kFieldsCure));
    }
    return read_exchange(row, prompt, completion, where);
  }
  out.tools = read_tools(row, where);
  return out;
}

ConversationRow without_answer(ConversationRow row) {
  row.messages.erase(row.messages.size() - 1);
  if (row.texts) row.texts->second.clear();
  return row;
}

ConversationRow read_prompt(const Json& row, const std::string& where) {
  ConversationRow out;
  const FoundField list = first_of(row, kConversation), prompt = first_of(row, kPromptFields);
  if (list) {
    out.messages = read_messages(*list.value, list.name, where);
  } else if (!first_of(row, kCompletion) && is_logic_rl(row)) {
    out = without_answer(logic_rl_row(row, where));
  } else if (prompt) {
    out = read_question(row, prompt, where);
  } else {
    throw FileError(fmt::format("{}: no prompt; a row has \"messages\", or one of {}. Its fields: {}{}",
                                where, fmt::join(kPromptFields, ", "), fmt::join(field_names(row), ", "),
                                kFieldsCure));
  }
  if (out.messages.back()["role"] == "assistant") {
    throw FileError(fmt::format(
        "{}: the last of \"{}\" is an answer; a prompt ends with a user's message. Fix: move the answer to a "
        "field \"answer\"",
        where,
        list     ? list.name
        : prompt ? prompt.name
                 : "quiz"));
  }
  out.tools = read_tools(row, where);
  return out;
}

}  // namespace mantissa::text
