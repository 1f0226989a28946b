// The [precision] section, --precision and --rule.
#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/rule.h"
#include "mantissa/precision/policy/rule_toml.h"
#include "mantissa/precision/policy/supported.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/read.h"

namespace mantissa::config {
namespace {

/// Calls `read` and prefixes `where` to the message of its exceptions.
template <class F>
auto located(const std::string& where, F read) {
  try {
    return read();
  } catch (const ConfigError& e) {
    throw ConfigError("{}: {}", where, e.what());
  }
}

std::string text_of(const Entry& entry) {
  if (!entry.raw.empty() && !entry.value->is_string()) return entry.raw;
  const std::optional<std::string> text = precision::value_text(*entry.value);
  if (!text) refuse(entry, "must be a string, such as \"bf16-mixed\"");
  return *text;
}

precision::Rule read_rule(const Entry& entry, const toml::node& node, const std::string& where,
                          const std::string& origin) {
  if (const auto* text = node.as_string()) {
    return located(where, [&] { return precision::parse_rule(text->get(), origin); });
  }
  const toml::table* table = node.as_table();
  if (table == nullptr) refuse(entry, "must be an array of rules, such as [\"lm_head: compute=f32\"]");
  precision::Rule rule = located(where, [&] { return precision::rule_from_table(*table); });
  rule.origin = origin;
  return rule;
}

/// Returns for example "run.toml:30": the file of `place` with the line of `node`.
std::string at_line(const std::string& place, const Entry& entry, const toml::node& node) {
  if (!entry.raw.empty()) return place;
  return fmt::format("{}:{}", place.substr(0, place.rfind(':')), node.source().begin.line);
}

std::vector<precision::Rule> read_rules(const Entry& entry) {
  const toml::array* array = entry.value->as_array();
  if (array == nullptr) return {read_rule(entry, *entry.value, entry.where, entry.origin)};
  std::vector<precision::Rule> rules;
  for (const toml::node& node : *array) {
    rules.push_back(
        read_rule(entry, node, at_line(entry.where, entry, node), at_line(entry.origin, entry, node)));
  }
  return rules;
}

/// Returns `policy` with the fields of [precision] for which `wanted` returns true. Sets `where` to the place
/// of the last one.
template <class Wanted>
precision::Policy with_fields(const precision::Policy& policy, const Entries& entries, const Wanted& wanted,
                              std::string& where) {
  precision::Fields fields;
  for (const Entry& entry : entries.all) {
    if (entry.section != "precision" || entry.key == "policy" || entry.key == "rules" || !wanted(entry))
      continue;
    if (find_option(entry.section, entry.key) != nullptr) continue;  // a key that is not a part of the policy
    where = entry.where;
    const std::string text = text_of(entry);
    located(where, [&] { precision::set_field(fields, entry.key, text); });
  }
  return policy.with_fields(fields);
}

/// Returns the policy that the config states.
precision::Policy written_policy(const Entries& entries, bool replaced, std::vector<std::string>& notes) {
  precision::Policy policy;
  std::string where = entries.file;
  if (const Entry* entry = entries.find("precision", "policy")) {
    where = entry->where;
    const std::string text = text_of(*entry);
    policy = located(where, [&] { return precision::Policy::parse(text, &notes); });
  }
  // Overrides change the policy that replaces this one.
  policy = with_fields(
      policy, entries, [&](const Entry& e) { return !replaced || !is_override(e); }, where);
  if (const Entry* entry = entries.find("precision", "rules")) {
    for (precision::Rule& rule : read_rules(*entry)) policy = policy.with_rule(std::move(rule));
  }
  located(where, [&] { precision::check_supported(policy); });
  return policy;
}

}  // namespace

precision::Policy read_policy(const Entries& entries, const PrecisionArguments& arguments,
                              std::vector<std::string>& notes) {
  precision::Policy policy = written_policy(entries, arguments.policy.has_value(), notes);
  if (arguments.policy) {
    notes.clear();  // notes on the replaced policy
    std::string where = "--precision";
    const std::vector<precision::Rule> rules = policy.rules();
    policy = located(where, [&] { return precision::Policy::parse(*arguments.policy, &notes); });
    policy = with_fields(policy, entries, is_override, where);
    for (const precision::Rule& rule : rules) policy = policy.with_rule(rule);
    located(where, [&] { precision::check_supported(policy); });
  }
  for (std::size_t i = 0; i < arguments.rules.size(); ++i) {
    const std::string origin = fmt::format("--rule {}", i + 1);
    policy = located(origin, [&] { return policy.with_rule(arguments.rules[i], origin); });
    located(origin, [&] { precision::check_supported(policy); });
  }
  return policy;
}

}  // namespace mantissa::config
