#include "mantissa/text/conversation_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/text/logic_rl.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kConversation = {"messages", "conversations", "conversation"};
constexpr std::array kPrompt = {"prompt", "instruction", "question"};
constexpr std::array kCompletion = {"completion", "response", "output", "answer"};

/// The first of `names` that the row has, and null values count as absent.
struct Found {
  const char* name = nullptr;
  const Json* value = nullptr;
  explicit operator bool() const { return value != nullptr; }
};
template <std::size_t N>
Found first_of(const Json& row, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    const auto found = row.find(name);
    if (found != row.end() && !found->is_null()) return {name, &*found};
  }
  return {};
}

[[noreturn]] void wrong(const std::string& where, const std::string& field, const Json& value,
                        const char* expected) {
  throw FileError(fmt::format("{}: \"{}\" is {}{}; expected {}", where, field,
                              value.is_null()                         ? ""
                              : value.is_array() || value.is_object() ? "an "
                                                                      : "a ",
                              value.type_name(), expected));
}

Json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

/// Returns one message of a list. ShareGPT's "from" and "value" become "role" and "content".
Json read_message(const Json& value, const std::string& field, const std::string& where) {
  if (!value.is_object()) wrong(where, field, value, "an object with \"role\" and \"content\"");
  Json out = value;
  if (!out.contains("role") && out.contains("from") && out.contains("value")) {
    static const std::vector<std::pair<std::string_view, const char*>> kRoles = {
        {"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bot", "assistant"}};
    if (!out["from"].is_string()) wrong(where, field + ".from", out["from"], "a string");
    auto role = out["from"].get<std::string>();
    for (const auto& [from, to] : kRoles) {
      if (role == from) role = to;
    }
    out = {{"role", role}, {"content", value["value"]}};
  }
  if (!out.contains("role"))
    throw FileError(fmt::format("{}: {} has no \"role\"; expected user, assistant or system", where, field));
  if (!out["role"].is_string()) wrong(where, field + ".role", out["role"], "a string");
  const bool calls = out.contains("tool_calls") && !out["tool_calls"].is_null();
  const auto content = out.find("content");
  if (content == out.end()) {
    if (calls) return out;
    throw FileError(fmt::format("{}: {} has no \"content\"; expected a string", where, field));
  }
  const bool parts = content->is_array();  // such as {"type": "text", "text": …}, which some templates take
  if (!content->is_string() && !parts && !(calls && content->is_null()))
    wrong(where, field + ".content", *content, "a string");
  return out;
}

Json read_messages(const Json& list, const std::string& field, const std::string& where) {
  if (!list.is_array()) wrong(where, field, list, "an array of messages");
  if (list.empty()) throw FileError(fmt::format("{}: \"{}\" is empty; expected messages", where, field));
  Json messages = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i)
    messages.push_back(read_message(list[i], fmt::format("{}[{}]", field, i), where));
  return messages;
}

void append(Json& messages, Json more) {
  for (Json& m : more) messages.push_back(std::move(m));
}

/// Returns the messages of a prompt, which is a text or a list of messages, and its text, if it is one.
ConversationRow read_question(const Json& row, const Found& prompt, const std::string& where) {
  ConversationRow out;
  std::string system, question;
  if (const auto found = row.find("system"); found != row.end() && !found->is_null()) {
    if (!found->is_string()) wrong(where, "system", *found, "a string");
    system = found->get<std::string>();
    if (!system.empty()) out.messages.push_back(message("system", system));
  }
  if (prompt.value->is_string()) {
    question = prompt.value->get<std::string>();
    // Alpaca's rows have the text that an instruction is about apart.
    const auto input = row.find("input");
    if (prompt.name == std::string_view("instruction") && input != row.end() && !input->is_null()) {
      if (!input->is_string()) wrong(where, "input", *input, "a string");
      if (!input->get<std::string>().empty()) question += "\n\n" + input->get<std::string>();
    }
    out.messages.push_back(message("user", question));
    out.texts.emplace(system.empty() ? question : system + "\n\n" + question, "");
  } else if (prompt.value->is_array()) {
    append(out.messages, read_messages(*prompt.value, prompt.name, where));
  } else {
    wrong(where, prompt.name, *prompt.value, "a string, or an array of messages");
  }
  return out;
}

/// A row of a prompt and a completion, each a text or a list of messages.
ConversationRow read_pair(const Json& row, const Found& prompt, const Found& completion,
                          const std::string& where) {
  ConversationRow out = read_question(row, prompt, where);
  if (completion.value->is_string()) {
    const auto answer = completion.value->get<std::string>();
    out.messages.push_back(message("assistant", answer));
    if (out.texts) out.texts->second = answer;
  } else if (completion.value->is_array()) {
    append(out.messages, read_messages(*completion.value, completion.name, where));
    out.texts.reset();
  } else {
    wrong(where, completion.name, *completion.value, "a string, or an array of messages");
  }
  return out;
}

std::vector<std::int32_t> read_ids(const Json& list, const char* field, const std::string& where) {
  if (!list.is_array()) wrong(where, field, list, "an array of integers");
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

std::vector<std::string> names_of(const Json& row) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) {
    if (names.size() == kMost) {
      names.emplace_back("…");
      break;
    }
    names.push_back(name);
  }
  return names;
}

void read_tools(const Json& row, const std::string& where, ConversationRow& out) {
  const auto tools = row.find("tools");
  if (tools == row.end() || tools->is_null()) return;
  if (!tools->is_array()) wrong(where, "tools", *tools, "an array");
  if (!tools->empty()) out.tools = *tools;
}

}  // namespace

bool is_conversation(const Json& row) {
  const auto text = row.find("text");
  if (text != row.end() && text->is_string()) return false;
  return static_cast<bool>(first_of(row, kConversation)) || static_cast<bool>(first_of(row, kPrompt)) ||
         row.contains("input_ids");
}

ConversationRow read_conversation(const Json& row, const std::string& where) {
  ConversationRow out;
  if (const Found list = first_of(row, kConversation)) {
    out.messages = read_messages(*list.value, list.name, where);
  } else {
    const Found prompt = first_of(row, kPrompt), completion = first_of(row, kCompletion);
    if (!completion && is_logic_rl(row)) return read_logic_rl(row, where);
    if (!prompt && !completion && row.contains("input_ids")) {
      out.tokens = read_tokens(row, where);
      return out;
    }
    if (!prompt || !completion) {
      throw FileError(fmt::format(
          "{}: no {}; a row has \"messages\", or one of {} and one of {}, or \"input_ids\". Its fields: {}",
          where,
          prompt       ? "completion"
          : completion ? "prompt"
                       : "conversation",
          fmt::join(kPrompt, ", "), fmt::join(kCompletion, ", "), fmt::join(names_of(row), ", ")));
    }
    out = read_pair(row, prompt, completion, where);
  }
  read_tools(row, where, out);
  return out;
}

ConversationRow without_answer(ConversationRow row) {
  row.messages.erase(row.messages.size() - 1);
  if (row.texts) row.texts->second.clear();
  return row;
}

ConversationRow read_prompt(const Json& row, const std::string& where) {
  ConversationRow out;
  const Found list = first_of(row, kConversation), prompt = first_of(row, kPrompt);
  if (list) {
    out.messages = read_messages(*list.value, list.name, where);
  } else if (!first_of(row, kCompletion) && is_logic_rl(row)) {
    out = without_answer(read_logic_rl(row, where));
  } else if (prompt) {
    out = read_question(row, prompt, where);
  } else {
    throw FileError(fmt::format("{}: no prompt; a row has \"messages\", or one of {}. Its fields: {}", where,
                                fmt::join(kPrompt, ", "), fmt::join(names_of(row), ", ")));
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
  read_tools(row, where, out);
  return out;
}

}  // namespace mantissa::text
