#include "mantissa/precision/policy/rule_toml.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/rule.h"

namespace mantissa::precision {

std::optional<std::string> value_text(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* flag = value.as_boolean()) return std::string(flag->get() ? "true" : "false");
  if (const auto* number = value.as_integer()) return std::to_string(number->get());
  if (const auto* number = value.as_floating_point()) return fmt::format("{}", number->get());
  return std::nullopt;
}

Rule rule_from_table(const toml::table& table) {
  Rule rule;
  for (const auto& [key, node] : table) {
    const std::optional<std::string> text = value_text(node);
    if (!text) throw ConfigError("{}: must be a string, a number, true or false", in_quotes(key.str()));
    set_rule_key(rule, key.str(), *text);
  }
  check_rule(rule);
  return rule;
}

Rule rule_from_toml(std::string_view text) {
  toml::table document;
  try {
    document = toml::parse("rule = " + std::string(text));
  } catch (const toml::parse_error& e) {
    throw ConfigError("not a TOML inline table: {}", e.description());
  }
  const toml::table* table = document["rule"].as_table();
  if (table == nullptr || document.size() != 1)
    throw ConfigError("not one TOML inline table; write {match = \"…\", compute = \"f32\"}");
  return rule_from_table(*table);
}

}  // namespace mantissa::precision
