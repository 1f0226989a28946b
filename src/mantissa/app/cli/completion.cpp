// Completion scripts: the commands, the options of each, and the values of an option.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/help.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::string_view kTask = "[TASK]";  // of init

enum class Values { none, choices, files, directories, any };

/// Returns the second words of the commands that begin with `word`.
std::vector<std::string> second_words(std::string_view word) {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    if (command.name.starts_with(std::string(word) + " "))
      words.emplace_back(command.name.substr(word.size() + 1));
  }
  return words;
}

/// Returns the possible values of an option or positional argument, by its name in the table.
Values values_of(std::string_view argument) {
  static const std::vector<std::string_view> kFiles = {
      "FILE",         "FILES",        "PATH",       "CONFIG",
      "MODEL|CONFIG", "CONFIG|MODEL", "CONFIG|RUN", "CONFIG|RUN|MODEL",
      "IN",           "OUT",          "HARDWARE",   "TOKENIZER",
      "NAME|FILE",    "MODEL"};
  if (argument.empty()) return Values::none;
  if (argument == "DIR") return Values::directories;
  if (argument == kTask) return Values::choices;
  if (std::ranges::find(kFiles, argument) != kFiles.end()) return Values::files;
  const bool words = std::ranges::none_of(argument, [](char c) { return c >= 'A' && c <= 'Z'; });
  return words ? Values::choices : Values::any;
}

std::vector<std::string> choices_of(std::string_view argument) {
  std::vector<std::string> all;
  if (argument == kTask) {
    for (const api::ConfigTask& task : api::config_tasks()) all.push_back(task.name);
    return all;
  }
  for (const std::string_view word : split_words(argument, "|")) all.emplace_back(word);
  return all;
}

/// Returns the first words of the commands, each once.
std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    std::string word(command.name.substr(0, command.name.find(' ')));
    if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

/// Returns the words that `mantissa help` takes: commands, and keys of a config.
std::vector<std::string> words_of_help() {
  std::vector<std::string> words = first_words();
  words.emplace_back("keys");
  for (const api::ConfigKeyHelp& key : api::config_keys()) words.push_back(key.name());
  return words;
}

std::string names_of(const Command& command) {
  std::vector<std::string> names;
  for (const Option* option : options_of(command)) names.emplace_back(option->name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string bash_values(std::string_view argument) {
  switch (values_of(argument)) {
    case Values::choices:
      return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))", fmt::join(choices_of(argument), " "));
    case Values::files:
      return "COMPREPLY=($(compgen -f -- \"$word\"))";
    case Values::directories:
      return "COMPREPLY=($(compgen -d -- \"$word\"))";
    default:
      return "COMPREPLY=()";
  }
}

/// Returns the first positional argument of `command`.
std::string_view subject_of(const Command& command) {
  if (command.name == "help") return {};
  return command.positionals.empty() ? std::string_view() : command.positionals.front().name;
}

std::string bash() {
  std::string text =
      "_mantissa() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command=${COMP_WORDS[1]}\n  if ((COMP_CWORD == 1)); then\n";
  text += fmt::format("    COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n    return\n  fi\n",
                      fmt::join(first_words(), " "));
  text += fmt::format(
      "  if [[ $command == help ]]; then COMPREPLY=($(compgen -W '{}' -- \"$word\")); return; fi\n",
      fmt::join(words_of_help(), " "));
  for (const std::string& word : first_words()) {
    if (find_command(word) != nullptr) continue;
    text += fmt::format(
        "  if [[ $command == {} ]]; then\n    if ((COMP_CWORD == 2)); then COMPREPLY=($(compgen -W '{}' -- "
        "\"$word\")); return; fi\n    command=\"{} ${{COMP_WORDS[2]}}\"\n  fi\n",
        word, fmt::join(second_words(word), " "), word);
  }
  text += "  case \"$command:$before\" in\n";
  for (const Command& command : commands()) {
    for (const Option* option : options_of(command)) {
      if (option->takes == Takes::nothing || option->takes == Takes::maybe) continue;
      text += fmt::format("    '{}:{}') {}; return ;;\n", command.name, option->name,
                          bash_values(option->argument));
    }
  }
  text += "  esac\n  case \"$command\" in\n";
  for (const Command& command : commands()) {
    text += fmt::format(
        "    '{}')\n      if [[ $word == -* ]]; then COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n"
        "      else {}; fi ;;\n",
        command.name, names_of(command), bash_values(subject_of(command)));
  }
  return text + "  esac\n}\ncomplete -o filenames -F _mantissa mantissa\n";
}

std::string_view group_summary(std::string_view word) {
  return word == "data" ? "data sources" : "token ids and text";
}

/// Returns `text` for single quotes in zsh and fish, without characters that zsh specifications interpret.
std::string quoted(std::string_view text, bool zsh) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += zsh ? "'\\''" : "\\'";
    } else if (zsh && (c == '[' || c == ']' || c == ':')) {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_values(std::string_view argument) {
  const std::string name = quoted(lowered(argument), true);
  switch (values_of(argument)) {
    case Values::choices:
      return fmt::format(":value:({})", fmt::join(choices_of(argument), " "));
    case Values::files:
      return fmt::format(":{}:_files", name);
    case Values::directories:
      return fmt::format(":{}:_files -/", name);
    case Values::any:
      return fmt::format(":{}: ", name);
    case Values::none:
      return {};
  }
  return {};
}

std::string zsh() {
  std::string text = "#compdef mantissa\n_mantissa() {\n  local -a commands\n  commands=(\n";
  for (const std::string& word : first_words()) {
    const Command* command = find_command(word);
    text += fmt::format("    '{}:{}'\n", word,
                        quoted(command != nullptr ? command->summary : group_summary(word), true));
  }
  text +=
      "  )\n  if ((CURRENT == 2)); then _describe command commands; return; fi\n  local command=$words[2]\n"
      "  if [[ $command == help ]]; then\n    local -a keys\n    keys=(\n";
  for (const api::ConfigKeyHelp& key : api::config_keys())
    text += fmt::format("      '{}:{}'\n", key.name(), quoted(key.description, true));
  text +=
      "    )\n    _describe command commands; _describe key keys; return\n  fi\n  shift words; "
      "((CURRENT--))\n";
  for (const std::string& word : first_words()) {
    if (find_command(word) != nullptr) continue;
    text += fmt::format(
        "  if [[ $command == {} ]]; then\n    if ((CURRENT == 2)); then compadd {}; return; fi\n"
        "    command=\"{} $words[2]\"; shift words; ((CURRENT--))\n  fi\n",
        word, fmt::join(second_words(word), " "), word);
  }
  text += "  case $command in\n";
  for (const Command& command : commands()) {
    text += fmt::format("    '{}') _arguments", command.name);
    for (const Option* option : options_of(command)) {
      const bool repeats = option->takes == Takes::each || option->takes == Takes::list;
      const bool maybe = option->takes == Takes::maybe;
      text += fmt::format(" \\\n      '{}{}{}[{}]{}'", repeats ? "*" : "", option->name, maybe ? "=-" : "",
                          quoted(option->description, true),
                          maybe ? "::" + lowered(option->argument) + ": " : zsh_values(option->argument));
    }
    for (const Positional& p : command.positionals) {
      if (command.name != "help") text += fmt::format(" \\\n      '{}'", zsh_values(p.name));
    }
    text += " ;;\n";
  }
  return text + "  esac\n}\ncompdef _mantissa mantissa\n";
}

std::string fish() {
  std::string text = "complete -c mantissa -f\n";
  for (const std::string& word : first_words()) {
    const Command* command = find_command(word);
    text += fmt::format("complete -c mantissa -n __fish_use_subcommand -a {} -d '{}'\n", word,
                        quoted(command != nullptr ? command->summary : group_summary(word), false));
  }
  for (const std::string& word : first_words()) {
    if (find_command(word) != nullptr) continue;
    text += fmt::format("complete -c mantissa -n '__fish_seen_subcommand_from {}' -a '{}'\n", word,
                        fmt::join(second_words(word), " "));
  }
  for (const api::ConfigKeyHelp& key : api::config_keys()) {
    text += fmt::format("complete -c mantissa -n '__fish_seen_subcommand_from help' -a {} -d '{}'\n",
                        key.name(), quoted(key.description, false));
  }
  for (const Command& command : commands()) {
    const std::string word(command.name.substr(0, command.name.find(' ')));
    const std::string when = fmt::format("complete -c mantissa -n '__fish_seen_subcommand_from {}'", word);
    for (const Option* option : options_of(command)) {
      text += fmt::format("{} -l {}", when, option->name.substr(2));
      if (option->takes != Takes::nothing && option->takes != Takes::maybe) {
        const Values values = values_of(option->argument);
        text += values == Values::files || values == Values::directories ? " -r -F" : " -x";
        if (values == Values::choices)
          text += fmt::format(" -a '{}'", fmt::join(choices_of(option->argument), " "));
      }
      text += fmt::format(" -d '{}'\n", quoted(option->description, false));
    }
    const Values subject = values_of(subject_of(command));
    if (subject == Values::files || subject == Values::directories) text += when + " -F\n";
    if (subject == Values::choices)
      text += fmt::format("{} -a '{}'\n", when, fmt::join(choices_of(subject_of(command)), " "));
  }
  return text;
}

}  // namespace

std::string completion(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "fish") return fish();
  throw ConfigError(fmt::format("completion {}: one of bash, zsh, fish", shell));
}

}  // namespace mantissa::cli
