#include "mantissa/app/cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "mantissa/app/cli/unknown.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

bool is_optional(const Positional& positional) {
  return positional.name.starts_with('[');
}

/// Returns true for "-x" and "--word", but not for "-", "-1" and "--".
bool looks_like_option(std::string_view word) {
  if (!word.starts_with('-')) return false;
  const std::string_view name = word.substr(word.starts_with("--") ? 2 : 1);
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0;
}

[[noreturn]] void refuse(const Command& command, const std::string& why) {
  throw ConfigError(
      fmt::format("{}{} mantissa {} --help", why, why.ends_with('?') ? " See" : "; see", command.name));
}

bool is_help(std::string_view word) {
  return word == "--help" || word == "-h";
}

/// Returns the number of words before the command: options, each with at most one value.
std::size_t words_before_command(std::span<const std::string> words) {
  std::size_t n = 0;
  while (n < words.size() && looks_like_option(words[n])) {
    const std::string& name = words[n++];
    const bool takes_value = std::ranges::any_of(commands(), [&](const Command& command) {
      const Option* option = find_option(command, name);
      return option != nullptr && option->takes != Takes::nothing && option->takes != Takes::maybe;
    });
    if (takes_value && n < words.size()) ++n;
  }
  return n;
}

/// Returns the command that the words after `before` name, and the number of these words. Without such
/// words, that is help or version.
std::pair<const Command*, std::size_t> read_command(std::span<const std::string> before,
                                                    std::span<const std::string> words) {
  if (words.empty()) {
    for (const std::string& word : before) {
      if (is_help(word)) return {find_command("help"), 0};
      if (word == "--version" || word == "-V") return {find_command("version"), 0};
    }
    throw ConfigError(command_is_missing(before.front()));
  }
  if (words.size() > 1) {
    if (const Command* command = find_command(words[0] + " " + words[1])) return {command, 2};
  }
  if (const Command* command = find_command(words.front())) return {command, 1};
  if (const Command* command = first_of_group(words.front())) {
    const bool asks =
        words.size() == 1 || (words.size() > 1 && is_help(words[1])) || std::ranges::any_of(before, is_help);
    if (asks) return {command, 1};
  }
  throw ConfigError(unknown_command(words));
}

/// Throws ConfigError if `value` is not one of the words that `argument` lists.
void check_choice(std::string_view where, std::string_view argument, const std::string& value) {
  const std::vector<std::string> choices = choices_of(argument);
  if (choices.size() < 2 || std::ranges::find(choices, value) != choices.end()) return;
  throw ConfigError(wrong_choice(where, value, choices));
}

/// Returns true if a cure with the option `added` replaces the given option `name`.
bool excludes(std::string_view added, std::string_view name) {
  const bool begins = added == "--resume" || added == "--overwrite";
  return begins && (name == "--resume" || name == "--overwrite" || name == "--dry-run");
}

/// Returns true for an option's argument, such as "FILE", that is never empty.
bool names_a_file(std::string_view argument) {
  constexpr std::array<std::string_view, 6> kFiles = {"FILE", "FILES", "DIR", "MODEL", "TOKENIZER", "GLOB"};
  return std::ranges::find(kFiles, argument) != kFiles.end();
}

/// Returns true for keys that modify a policy. A new policy replaces them.
bool is_of_policy(std::string_view key_value) {
  return key_value.starts_with("precision.") && !key_value.starts_with("precision.rules") &&
         !key_value.starts_with("precision.native_only") && !key_value.starts_with("precision.deepspeed");
}

}  // namespace

Arguments::Arguments(std::string program, std::span<const std::string> words) : program_(std::move(program)) {
  const std::span<const std::string> before = words.first(words_before_command(words));
  words = words.subspan(before.size());
  const auto [command, named_by] = read_command(before, words);
  command_ = command;
  if (named_by == 1 && command_->name != words.front()) group_ = words.front();
  positionals_.resize(command_->positionals.size());
  if (named_by > 0) read(before);
  read(words.subspan(named_by));
  if (has("--help") || !group_.empty() || missing() == 0) return;
  const Positional& first = command_->positionals[filled_];
  const std::vector<std::string> choices = choices_of(first.name);
  refuse(*command_, choices.empty()
                        ? fmt::format("{}: {} is missing: {}", command_->name, first.name, first.description)
                        : fmt::format("{}: {} is missing: one of {}", command_->name, first.description,
                                      list_of(choices)));
}

void Arguments::read(std::span<const std::string> rest) {
  bool only_positionals = false;
  while (!rest.empty()) {
    const std::string& word = rest.front();
    rest = rest.subspan(1);
    if (word == "--" && !only_positionals) {
      only_positionals = true;
    } else if (!only_positionals && looks_like_option(word)) {
      read_option(word, rest);
    } else {
      add_positional(word);
    }
  }
}

void Arguments::read_option(const std::string& word, std::span<const std::string>& rest) {
  const std::size_t equals = word.find('=');
  const std::string name = is_help(word) ? "--help" : word.substr(0, equals);
  const Option* option = find_option(*command_, name);
  if (option == nullptr) {
    const bool has_value = equals != std::string::npos || (!rest.empty() && !looks_like_option(rest.front()));
    const std::string value = equals != std::string::npos ? word.substr(equals + 1)
                              : has_value                 ? rest.front()
                                                          : "";
    refuse(*command_, unknown_option(*command_, name, value));
  }
  Given given{option, {}};
  if (equals != std::string::npos) {
    if (option->takes == Takes::nothing)
      refuse(*command_,
             fmt::format("{}: does not take a value, got {}", name, in_quotes(word.substr(equals + 1))));
    given.values.push_back(word.substr(equals + 1));
  } else if (option->takes == Takes::list) {
    // Leaves the words that positional arguments still need.
    while (!rest.empty() && !looks_like_option(rest.front()) &&
           (given.values.empty() || rest.size() > missing())) {
      given.values.push_back(rest.front());
      rest = rest.subspan(1);
    }
  } else if (option->takes != Takes::nothing && option->takes != Takes::maybe && !rest.empty() &&
             !looks_like_option(rest.front())) {
    given.values.push_back(rest.front());
    rest = rest.subspan(1);
  }
  if (given.values.empty() && option->takes != Takes::nothing && option->takes != Takes::maybe) {
    const std::vector<std::string> choices = choices_of(option->argument);
    if (choices.size() > 1)
      refuse(*command_, fmt::format("{}: a value is missing: one of {}", name, list_of(choices)));
    refuse(*command_,
           fmt::format("{0}: {1} is missing{2}", name, option->argument,
                       rest.empty() ? "" : fmt::format(" (a value that begins with -: {}=-…)", name)));
  }
  for (const std::string& value : given.values) {
    if (value.empty() && names_a_file(option->argument))
      refuse(*command_, fmt::format("{}: {} is an empty word", name, option->argument));
    check_choice(name, option->argument, value);
  }
  given_.push_back(std::move(given));
}

void Arguments::add_positional(const std::string& word) {
  if (command_->name == "help" && filled_ == 1 && find_command(positionals_[0] + " " + word) != nullptr) {
    positionals_[0] += " " + word;  // the name of a command may have two words
    return;
  }
  if (command_->name == "help" && filled_ == 1 && first_of_group(positionals_[0]) != nullptr)
    throw ConfigError(unknown_command(std::vector{positionals_[0], word}));
  if (word.empty() && command_->name != "help") {
    const bool more = filled_ < command_->positionals.size();
    refuse(*command_, fmt::format("{}: {} is an empty word", command_->name,
                                  more ? command_->positionals[filled_].name : "an argument"));
  }
  const bool repeats =
      !command_->positionals.empty() && command_->positionals.back().name.find("…") != std::string_view::npos;
  if (filled_ == positionals_.size() && repeats) positionals_.emplace_back();
  const bool too_many = filled_ == positionals_.size();
  if (const std::string fault = unexpected_argument(*command_, word, too_many); !fault.empty())
    refuse(*command_, fault);
  if (filled_ < command_->positionals.size())
    check_choice(command_->name, command_->positionals[filled_].name, word);
  positionals_[filled_++] = word;
}

std::size_t Arguments::missing() const {
  const std::span all(command_->positionals);
  const auto rest = all.subspan(std::min(filled_, all.size()));
  return static_cast<std::size_t>(
      std::ranges::count_if(rest, [](const Positional& p) { return !is_optional(p); }));
}

const Option& Arguments::known(std::string_view option) const {
  if (const Option* found = find_option(*command_, option)) return *found;
  throw InternalError(fmt::format("{} does not take an option {}", command_->name, option));
}

bool Arguments::has(std::string_view option) const {
  known(option);
  return std::ranges::any_of(given_, [&](const Given& g) { return g.option->name == option; });
}

std::string Arguments::text(std::string_view option) const {
  std::string value(known(option).fallback);
  for (const Given& g : given_) {
    if (g.option->name == option && !g.values.empty()) value = g.values.back();
  }
  return value;
}

std::vector<std::string> Arguments::texts(std::string_view option) const {
  known(option);
  std::vector<std::string> all;
  for (const Given& g : given_) {
    if (g.option->name == option) all.insert(all.end(), g.values.begin(), g.values.end());
  }
  return all;
}

std::int64_t Arguments::integer(std::string_view option, std::int64_t least, std::int64_t most) const {
  const std::string value = text(option);
  const auto number = number_in<std::int64_t>(value);
  if (number && *number >= least && *number <= most) return *number;
  refuse(*command_, fmt::format("{} {}: must be a whole number from {} to {}", option, value, least, most));
}

double Arguments::number(std::string_view option) const {
  const std::string value = text(option);
  const auto number = number_in<double>(value);
  if (number && std::isfinite(*number)) return *number;
  refuse(*command_, fmt::format("{} {}: must be a number", option, value));
}

std::uint64_t Arguments::seed() const {
  const std::string value = text("--seed");
  const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || value.size() > 19) {
    refuse(*command_, fmt::format("--seed {}: a seed must be a whole number of at most 19 digits", value));
  }
  return std::stoull(value);
}

std::string Arguments::with(const Cure& cure) const {
  std::vector<std::string> words = {program_};
  for (const std::string_view word : split_words(command_->name, " ")) words.emplace_back(word);
  words.insert(words.end(), positionals_.begin(),
               positionals_.begin() + static_cast<std::ptrdiff_t>(filled_));
  std::vector<std::string_view> added;  // option names of the cure
  for (const std::string& word : cure.arguments) {
    if (looks_like_option(word)) added.push_back(std::string_view(word).substr(0, word.find('=')));
  }
  const bool policy = std::ranges::find(added, "--precision") != added.end();
  std::vector<std::string> set;  // keys that the cure sets, with "="
  for (std::size_t i = 0; i + 1 < cure.arguments.size(); ++i) {
    const std::string& value = cure.arguments[i + 1];
    if (cure.arguments[i] == "--set") set.push_back(value.substr(0, value.find('=') + 1));
  }
  for (const Given& g : given_) {
    const bool repeats = g.option->takes == Takes::each || g.option->takes == Takes::list;
    const bool replaced = std::ranges::any_of(added, [&](std::string_view name) {
      const bool same = name == g.option->name && (!repeats || name == "--precision");
      return same || excludes(name, g.option->name);
    });
    if (replaced) continue;
    if (g.values.empty()) words.emplace_back(g.option->name);
    for (const std::string& value : g.values) {
      if (policy && g.option->name == "--set" && is_of_policy(value)) continue;
      if (g.option->name == "--set" &&
          std::ranges::any_of(set, [&](const std::string& key) { return value.starts_with(key); }))
        continue;
      if (g.option->takes == Takes::maybe || looks_like_option(value)) {
        words.push_back(fmt::format("{}={}", g.option->name, value));
      } else {
        words.emplace_back(g.option->name);
        words.push_back(value);
      }
    }
  }
  words.insert(words.end(), cure.arguments.begin(), cure.arguments.end());
  return shell_words(words);
}

}  // namespace mantissa::cli
