// Fields of rows of JSON, with errors that name the row and the field.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mantissa::text {

/// The names of a prompt; the first one that a row has counts.
inline constexpr std::array kPromptFields = {"prompt", "instruction", "question"};

/// The end of a message about a row without a field that it needs.
inline constexpr const char* kFieldsCure =
    ". Fix: name the fields that it has in the config, such as data.fields = {prompt = \"query\"}";

/// The first of `names` that the row has. Null values count as absent.
struct FoundField {
  const char* name = nullptr;
  const nlohmann::ordered_json* value = nullptr;
  explicit operator bool() const { return value != nullptr; }
};
template <std::size_t N>
FoundField first_of(const nlohmann::ordered_json& row, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    const auto found = row.find(name);
    if (found != row.end() && !found->is_null()) return {name, &*found};
  }
  return {};
}

/// Throws FileError: `WHERE: "FIELD" is a number; expected EXPECTED`.
[[noreturn]] void wrong_field(const std::string& where, const std::string& field,
                              const nlohmann::ordered_json& value, const char* expected);

/// Returns a message with a role and a content.
nlohmann::ordered_json as_message(const char* role, const std::string& content);
/// Reads an array of messages. ShareGPT's "from" and "value" become "role" and "content". Throws FileError if
/// it is empty, or a message has no role or no content.
nlohmann::ordered_json read_messages(const nlohmann::ordered_json& list, const std::string& field,
                                     const std::string& where);
/// Returns the row's text `field`, or "" without one. Throws FileError for another type.
std::string read_text(const nlohmann::ordered_json& row, const char* field, const std::string& where);
/// Returns the row's "tools" for a template, or null.
nlohmann::ordered_json read_tools(const nlohmann::ordered_json& row, const std::string& where);

/// Returns the names of the row's first fields.
std::vector<std::string> field_names(const nlohmann::ordered_json& row);

}  // namespace mantissa::text
