#include "mantissa/setup/config/observed.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/precision/policy/rule.h"

namespace mantissa::config {

std::vector<precision::Rule> parse_observed(std::string_view text) {
  if (text.starts_with("[\"") || text.starts_with("['")) {
    throw ConfigError(
        "log.observe: expected scopes separated by \";\", got a list, {}. Fix: log.observe = "
        "\"SCOPE; SCOPE\"",
        text);
  }
  std::vector<precision::Rule> all;
  for (const std::string_view part : split_words(text, ";")) {
    const std::size_t colon = part.find(": ");
    precision::Rule& rule = all.emplace_back();
    rule.match = std::string(trimmed(part.substr(0, colon)));
    precision::check_glob(rule.match);
    if (colon == std::string_view::npos) continue;
    for (const std::string_view word : split_words(part.substr(colon + 2), " \t")) {
      const std::size_t equals = word.find('=');
      const std::string_view key = word.substr(0, equals);
      if (equals == std::string_view::npos || (key != "op" && key != "pass" && key != "steps"))
        throw ConfigError("{}: only op=…, pass=… and steps=… can follow a scope", in_quotes(word));
      precision::set_rule_key(rule, key, word.substr(equals + 1));
    }
  }
  return all;
}

}  // namespace mantissa::config
