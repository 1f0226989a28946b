#include "mantissa/text/rows/row_fields.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "mantissa/core/base/error_text.h"

namespace mantissa::text {

using Json = nlohmann::ordered_json;

void wrong_field(const std::string& where, const std::string& field, const Json& value,
                 const char* expected) {
  throw FileError("{}: \"{}\" is {}{}; expected {}", where, field,
                  value.is_null()                         ? ""
                  : value.is_array() || value.is_object() ? "an "
                                                          : "a ",
                  value.type_name(), expected);
}

Json as_message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

namespace {

/// Returns one message of a list. ShareGPT's "from" and "value" become "role" and "content".
Json read_message(const Json& value, const std::string& field, const std::string& where) {
  if (!value.is_object()) wrong_field(where, field, value, "an object with \"role\" and \"content\"");
  Json out = value;
  if (!out.contains("role") && out.contains("from") && out.contains("value")) {
    static const std::vector<std::pair<std::string_view, const char*>> kRoles = {
        {"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bot", "assistant"}};
    if (!out["from"].is_string()) wrong_field(where, field + ".from", out["from"], "a string");
    auto role = out["from"].get<std::string>();
    for (const auto& [from, to] : kRoles) {
      if (role == from) role = to;
    }
    out = {{"role", role}, {"content", value["value"]}};
  }
  if (!out.contains("role"))
    throw FileError("{}: {} has no \"role\"; expected user, assistant or system", where, field);
  if (!out["role"].is_string()) wrong_field(where, field + ".role", out["role"], "a string");
  const bool calls = out.contains("tool_calls") && !out["tool_calls"].is_null();
  const auto content = out.find("content");
  if (content == out.end()) {
    if (calls) return out;
    throw FileError("{}: {} has no \"content\"; expected a string", where, field);
  }
  const bool parts = content->is_array();  // such as {"type": "text", "text": …}, which some templates take
  if (!content->is_string() && !parts && !(calls && content->is_null()))
    wrong_field(where, field + ".content", *content, "a string");
  return out;
}

}  // namespace

Json read_messages(const Json& list, const std::string& field, const std::string& where) {
  if (!list.is_array()) wrong_field(where, field, list, "an array of messages");
  if (list.empty()) throw FileError("{}: \"{}\" is empty; expected messages", where, field);
  Json messages = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i)
    messages.push_back(read_message(list[i], fmt::format("{}[{}]", field, i), where));
  return messages;
}

std::string read_text(const Json& row, const char* field, const std::string& where) {
  const auto found = row.find(field);
  if (found == row.end() || found->is_null()) return {};
  if (!found->is_string()) wrong_field(where, field, *found, "a string");
  return found->get<std::string>();
}

Json read_tools(const Json& row, const std::string& where) {
  const auto tools = row.find("tools");
  if (tools == row.end() || tools->is_null()) return nullptr;
  if (!tools->is_array()) wrong_field(where, "tools", *tools, "an array");
  return tools->empty() ? Json(nullptr) : *tools;
}

std::vector<std::string> field_names(const Json& row) {
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

}  // namespace mantissa::text
