#include "mantissa/precision/policy/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/precision/policy/rule_toml.h"

namespace mantissa::precision {
namespace {

constexpr Pass kPasses[] = {Pass::forward, Pass::backward, Pass::update};

void set_pass(Rule& rule, std::string_view value) {
  std::vector<std::string> names;
  for (const Pass pass : kPasses) {
    if (name(pass) == value) {
      rule.pass = pass;
      return;
    }
    names.emplace_back(name(pass));
  }
  throw ConfigError("pass={}: unknown pass{} (passes: {})", in_quotes(value), did_you_mean(value, names),
                    list_of(names));
}

/// Parses one end of "0:500". An empty end is open.
bool read_step(std::string_view text, std::optional<std::int64_t>& out) {
  if (text.empty()) return true;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  out = value;
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

void set_steps(Rule& rule, std::string_view value) {
  const std::size_t colon = value.find(':');
  std::optional<std::int64_t> first, last;
  const bool read = colon != std::string_view::npos && read_step(value.substr(0, colon), first) &&
                    read_step(value.substr(colon + 1), last) && (first || last);
  if (!read || (last && *last <= first.value_or(0))) {
    throw ConfigError(
        "steps={}: not a range of steps; write 0:500 for the first 500 steps, or 500: for all later steps",
        in_quotes(value));
  }
  rule.first_step = first;
  rule.last_step = last;
}

/// Checks that an op or an operand is an identifier.
std::string identifier(std::string_view key, std::string_view value) {
  const bool fine = !value.empty() && std::ranges::all_of(value, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '+' || c == '-' || c == '.';
  });
  if (!fine) throw ConfigError("{}={}: must be a name, such as matmul", key, in_quotes(value));
  return std::string(value);
}

std::string steps_text(const Rule& rule) {
  return fmt::format("{}:{}", rule.first_step ? std::to_string(*rule.first_step) : "",
                     rule.last_step ? std::to_string(*rule.last_step) : "");
}

/// Numbers and booleans are bare in TOML; everything else is a string.
std::string toml_value(const Fields& fields, const Field& field) {
  const std::string text = field_text(fields, field);
  const bool bare = std::holds_alternative<std::optional<bool> Fields::*>(field.member) ||
                    std::holds_alternative<std::optional<std::int64_t> Fields::*>(field.member);
  return bare ? text : fmt::format("\"{}\"", text);
}

std::string inline_table(const Rule& rule) {
  std::string text = fmt::format("{{match = \"{}\"", rule.match);
  if (!rule.op.empty()) text += fmt::format(", op = \"{}\"", rule.op);
  if (rule.pass) text += fmt::format(", pass = \"{}\"", name(*rule.pass));
  if (!rule.operand.empty()) text += fmt::format(", operand = \"{}\"", rule.operand);
  if (rule.first_step || rule.last_step) text += fmt::format(", steps = \"{}\"", steps_text(rule));
  for (const Field& field : field_table()) {
    if (!field_text(rule.fields, field).empty())
      text += fmt::format(", {} = {}", field.name, toml_value(rule.fields, field));
  }
  return text + "}";
}

Rule parse_short_form(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::size_t equals = text.find('=');
  if (colon == std::string_view::npos || equals < colon) {
    throw ConfigError(
        "a rule is SCOPE: field=value, such as \"lm_head: compute=f32\"; write *: for every scope");
  }
  Rule rule;
  rule.match = trimmed(text.substr(0, colon));
  check_glob(rule.match);
  std::vector<std::string_view> seen;
  for (const std::string_view word : split_words(text.substr(colon + 1), " \t\r\n,")) {
    const std::size_t at = word.find('=');
    if (at == std::string_view::npos) {
      throw ConfigError("{} is not field=value; write it without spaces, such as compute=f32",
                        in_quotes(word));
    }
    const std::string_view key = word.substr(0, at);
    if (std::ranges::find(seen, key) != seen.end())
      throw ConfigError("{} is set twice; keep one", in_quotes(key));
    seen.push_back(key);
    set_rule_key(rule, key, word.substr(at + 1));
  }
  return rule;
}

}  // namespace

std::string_view name(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::update:
      return "update";
  }
  return "";
}

std::string Rule::str() const {
  const bool plain = op.empty() && !pass && operand.empty() && !first_step && !last_step;
  return plain ? fmt::format("{}: {}", match, fields_text(fields)) : inline_table(*this);
}

bool operator==(const Rule& a, const Rule& b) {
  const auto parts = [](const Rule& r) {
    return std::tie(r.match, r.op, r.pass, r.operand, r.first_step, r.last_step, r.fields);
  };
  return parts(a) == parts(b);  // the origin does not affect equality
}

std::vector<std::string> rule_keys() {
  std::vector<std::string> names = {"match", "op", "pass", "operand", "steps"};
  for (const Field& f : field_table()) {
    if (f.in_rules) names.emplace_back(f.name);
  }
  return names;
}

void set_rule_key(Rule& rule, std::string_view key, std::string_view value) {
  if (key == "match") {
    rule.match = value;
    check_glob(rule.match);
  } else if (key == "op") {
    rule.op = identifier(key, value);
  } else if (key == "pass") {
    set_pass(rule, value);
  } else if (key == "operand") {
    rule.operand = identifier(key, value);
  } else if (key == "steps") {
    set_steps(rule, value);
  } else if (const Field* field = find_field(key); field == nullptr) {
    const std::vector<std::string> names = rule_keys();
    throw ConfigError("a rule has no key {}{} (keys: {})", in_quotes(key), did_you_mean(key, names),
                      list_of(names));
  } else if (!field->in_rules) {
    throw ConfigError("{} belongs to the whole run; set it in the policy, not in a rule", field->name);
  } else {
    set_field(rule.fields, key, value);
  }
}

void check_rule(const Rule& rule) {
  check_glob(rule.match);
  constexpr std::string_view kStates = "state";  // a field, not an op
  if (rule.op == kStates) {
    throw ConfigError(
        "op=\"state\": expected the field state for the states of recurrences. Fix: {}: state={}", rule.match,
        rule.fields.compute ? field_text(rule.fields, *find_field("compute")) : "bf16");
  }
  if (rule.fields == Fields{}) {
    throw ConfigError("the rule for \"{}\" sets nothing; add a field, such as compute=f32", rule.match);
  }
}

Rule parse_rule(std::string_view text, std::string origin) {
  text = trimmed(text);
  try {
    // A scope may begin with {a,b}, but only the table form ends with a brace.
    Rule rule = text.starts_with('{') && text.ends_with('}') ? rule_from_toml(text) : parse_short_form(text);
    check_rule(rule);
    rule.origin = std::move(origin);
    return rule;
  } catch (const ConfigError& e) {
    throw ConfigError("rule {}: {}", in_quotes(text), e.what());
  }
}

bool matches(const Rule& rule, const Use& use) {
  if (rule.op.empty() ? use.interior : rule.op != use.op && rule.op != use.id) return false;
  if (rule.pass && *rule.pass != use.pass) return false;
  if (!rule.operand.empty() && rule.operand != use.operand) return false;
  if (rule.first_step && use.step < *rule.first_step) return false;
  if (rule.last_step && use.step >= *rule.last_step) return false;
  if (scope_match(rule.match, use.scope)) return true;
  return !use.tensor.empty() && rule.speaks_of_tensors() && tensor_match(rule.match, use.tensor);
}

}  // namespace mantissa::precision
