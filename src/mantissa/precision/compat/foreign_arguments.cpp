#include "mantissa/precision/compat/foreign_arguments.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::compat {

std::vector<Argument> arguments_of(std::string_view text, std::string_view separators) {
  std::vector<Argument> arguments;
  for (const std::string_view word : split_words(text, separators)) {
    const std::size_t equals = word.find('=');
    if (trimmed(word).empty()) continue;
    if (equals == std::string_view::npos) {
      arguments.push_back({{}, unquoted(word)});
    } else {
      arguments.push_back({trimmed(word.substr(0, equals)), unquoted(word.substr(equals + 1))});
    }
  }
  return arguments;
}

bool flag(const Argument& argument) {
  if (argument.value == "True" || argument.value == "true") return true;
  if (argument.value == "False" || argument.value == "false") return false;
  throw ConfigError("{}={}: must be True or False", argument.key, in_quotes(argument.value));
}

void check_once(std::span<const Argument> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!arguments[i].key.empty() && arguments[i].key == arguments[j].key)
        throw ConfigError("{} is set twice; keep one", arguments[i].key);
    }
  }
}

Settings::Settings(std::string_view owner, std::vector<Argument> arguments)
    : owner_(owner), arguments_(std::move(arguments)) {
  for (const Argument& a : arguments_) {
    if (a.key.empty())
      throw ConfigError("{}: {} has no name; write KEY={}", owner_, in_quotes(a.value), a.value);
  }
  check_once(arguments_);
}

bool Settings::has(std::string_view key) const {
  return std::ranges::find(arguments_, key, &Argument::key) != arguments_.end();
}

std::optional<std::string_view> Settings::text(std::string_view key) {
  known_.emplace_back(key);
  const auto found = std::ranges::find(arguments_, key, &Argument::key);
  if (found == arguments_.end()) return std::nullopt;
  const std::string_view value = found->value;
  arguments_.erase(found);
  return value == "None" ? std::nullopt : std::optional(value);
}

std::string Settings::word(std::string_view key, std::string_view usual, std::vector<std::string> values) {
  const std::optional<std::string_view> said = text(key);
  if (!said) return std::string(usual);
  const std::string value = lowered(said->substr(said->rfind('.') + 1));
  if (std::ranges::find(values, value) != values.end()) return value;
  throw ConfigError("{}: {}={}{} (values: {})", owner_, key, in_quotes(*said), did_you_mean(value, values),
                    list_of(values));
}

bool Settings::is_set(std::string_view key, bool usual) {
  const std::optional<std::string_view> said = text(key);
  return said ? flag({key, *said}) : usual;
}

std::int64_t Settings::whole(std::string_view key, std::int64_t usual) {
  const std::optional<std::string_view> said = text(key);
  if (!said) return usual;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(said->data(), said->data() + said->size(), value);
  if (error == std::errc() && end == said->data() + said->size() && value >= 0) return value;
  refuse(key, *said, "must be a whole number, 0 or more");
}

std::vector<Argument> Settings::rest() {
  return std::exchange(arguments_, {});
}

void Settings::refuse_rest() {
  if (arguments_.empty()) return;
  const std::string_view key = arguments_.front().key;
  throw ConfigError("{} has no {}{} (names: {})", owner_, in_quotes(key), did_you_mean(key, known_),
                    list_of(known_));
}

void Settings::refuse(std::string_view key, std::string_view value, std::string_view why) const {
  throw ConfigError("{}: {}={}: {}", owner_, key, in_quotes(value), why);
}

}  // namespace mantissa::compat
