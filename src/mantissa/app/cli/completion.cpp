// Completion scripts: the commands, the options of each, and the values of an option.
#include <fmt/format.h>

#include <map>
#include <vector>

#include "assets/completion.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/completion_words.h"
#include "mantissa/app/cli/help.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

std::string bash_values(const Values& values) {
  switch (values.kind) {
    case Values::words:
      return fmt::format("_mantissa_words '{}'{}", joined(values.list),
                         values.or_files ? "; _mantissa_files" : "");
    case Values::keys:
      return fmt::format("_mantissa_open '{}'", joined(values.list));
    case Values::rule:
      return fmt::format("_mantissa_open '{}'", joined(rule_scopes()));
    case Values::files:
      return "_mantissa_files";
    case Values::directories:
      return "_mantissa_files -d";
    default:
      return ":";
  }
}

std::string bash() {
  // Bash takes "=" and ":" as words of their own.
  std::string text = std::string(assets::kBashFunctionsSh) + '\n';
  text += fmt::format("  local with_value=' {} '\n", joined(options_with_values()));
  text += R"(  while ((first < COMP_CWORD)) && [[ ${COMP_WORDS[first]} == -* ]]; do
    if [[ ${COMP_WORDS[first+1]} == = ]]; then ((first += 3))
    elif [[ $with_value == *" ${COMP_WORDS[first]} "* ]]; then ((first += 2))
    else ((first += 1)); fi
  done
  if [[ $word == [=:] ]]; then word=; ((at += 1)); fi
  local sign=${COMP_WORDS[at-1]}
  if [[ $sign == : ]]; then
)";
  text += fmt::format("    if [[ ${{COMP_WORDS[at-3]}} == {} ]]; then _mantissa_open '{}'; fi\n    return\n",
                      "--rule", joined(rule_keys()));
  text += R"(  elif [[ $sign == = ]]; then
    before=${COMP_WORDS[at-2]}
    if [[ $before != -* ]]; then return; fi
  fi
  local command=${COMP_WORDS[first]}
)";
  for (const std::string& word : groups()) {
    text += fmt::format(
        "  if [[ $command == {0} ]]; then\n    if ((COMP_CWORD == first + 1)); then _mantissa_words '{1}'; return; "
        "fi\n    command=\"{0} ${{COMP_WORDS[first+1]}}\"\n  fi\n",
        word, joined(second_words(word)));
  }
  text += "  case \"$command:$before\" in\n";
  std::map<std::string_view, std::map<std::string, std::vector<std::string_view>>> bodies;  // of each option
  for (const Command& command : commands()) {
    for (const Option* option : options_of(command)) {
      if (takes_value(*option))
        bodies[option->name][bash_values(values_of(option->name, option->argument))].push_back(command.name);
    }
  }
  for (const auto& [option, of_commands] : bodies) {
    for (const auto& [body, names] : of_commands) {
      if (body == ":") continue;  // ends below
      std::vector<std::string> patterns;
      if (of_commands.size() == 1) patterns = {fmt::format("*:{}", option)};
      for (const std::string_view name : names) {
        if (of_commands.size() > 1) patterns.push_back(fmt::format("'{}:{}'", name, option));
      }
      text += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), body);
    }
  }
  text += fmt::format(
      "  esac\n  if [[ $with_value == *\" $before \"* ]]; then return; fi\n  if ((first >= COMP_CWORD)); then\n    if [[ $word == -* ]]; then _mantissa_words "
      "'{}'; else _mantissa_words '{}'; fi\n    return\n  fi\n",
      before_command(), joined(first_words()));
  std::vector<std::string> keys;
  for (const api::ConfigKeyHelp& key : api::config_keys()) keys.push_back(key.name());
  text += "  case \"$command\" in\n";
  for (const Command& command : commands()) {
    std::string body = bash_values(subject_of(command));
    if (command.name == "help") {
      body = fmt::format("if ((COMP_CWORD == first + 1)); then _mantissa_words '{} {} {}'\n",
                         joined(first_words()), joined(help_topics()), joined(keys));
      for (const std::string& word : groups())
        body += fmt::format("      elif [[ $before == {} ]]; then _mantissa_words '{}'\n", word,
                            joined(second_words(word)));
      body += "      fi";
    }
    text += fmt::format(
        "    '{}')\n      if [[ $word == -* ]]; then _mantissa_words '{}'; else\n      {}; fi ;;\n",
        command.name, names_of(command), body);
  }
  return text + "  esac\n}\ncomplete -F _mantissa mantissa\n";
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

std::string zsh_values(std::string_view option, std::string_view argument) {
  const Values values = values_of(option, argument);
  const std::string name = quoted(lowered(argument), true);
  switch (values.kind) {
    case Values::words:
      return values.or_files ? ":value:_mantissa_targets" : fmt::format(":value:({})", joined(values.list));
    case Values::keys:
      return ":key:_mantissa_keys";
    case Values::rule:
      return ":rule:_mantissa_rules";
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
  std::string text = "#compdef mantissa\n";
  std::vector<std::string> keys;
  for (const api::ConfigKeyHelp& key : api::config_keys()) keys.push_back(key.name() + "=");
  text += fmt::format("_mantissa_keys() {{ compadd -S '' -- {} }}\n", joined(keys));
  text += fmt::format("_mantissa_targets() {{ compadd -- {}; _files }}\n", joined(api::known_targets()));
  text += fmt::format(
      "_mantissa_rules() {{\n  if compset -P '*:( |)'; then compadd -S '' -- {}\n  else compadd -S '' -- '{}'; "
      "fi\n}}\n",
      joined(rule_keys()), fmt::join(rule_scopes(), "' '"));
  text += "_mantissa() {\n  local -a commands\n  commands=(\n";
  for (const std::string& word : first_words()) {
    const Command* command = find_command(word);
    text += fmt::format("    '{}:{}'\n", word,
                        quoted(command != nullptr ? command->summary : group_summary(word), true));
  }
  text += fmt::format("  )\n  local with_value=' {} '\n", joined(options_with_values()));
  text += R"(  local skipped
  while ((CURRENT > 2)) && [[ $words[2] == -* ]]; do
    skipped=1
    if [[ $with_value == *" $words[2] "* ]]; then skipped=2; fi
    if ((CURRENT < 2 + skipped)); then break; fi
    shift $skipped words; ((CURRENT -= skipped))
  done
  if ((CURRENT == 2)) && [[ $words[2] == -* ]]; then
)";
  text += fmt::format("    compadd -- {}; return\n  fi\n", before_command());
  text +=
      "  if ((CURRENT == 2)); then _describe command commands; return; fi\n  local command=$words[2]\n"
      "  if [[ $command == help ]]; then\n";
  for (const std::string& word : groups())
    text += fmt::format("    if [[ $words[3] == {} ]] && ((CURRENT == 4)); then compadd -- {}; return; fi\n",
                        word, joined(second_words(word)));
  text += fmt::format("    local -a keys\n    compadd -- {}\n    keys=(\n", joined(help_topics()));
  for (const api::ConfigKeyHelp& key : api::config_keys())
    text += fmt::format("      '{}:{}'\n", key.name(), quoted(key.description, true));
  text +=
      "    )\n    _describe command commands; _describe key keys; return\n  fi\n  shift words; "
      "((CURRENT--))\n";
  for (const std::string& word : groups()) {
    text += fmt::format(
        "  if [[ $command == {} ]]; then\n    if ((CURRENT == 2)); then compadd {}; return; fi\n"
        "    command=\"{} $words[2]\"; shift words; ((CURRENT--))\n  fi\n",
        word, joined(second_words(word)), word);
  }
  text += "  case $command in\n";
  for (const Command& command : commands()) {
    text += fmt::format("    '{}') _arguments", command.name);
    for (const Option* option : options_of(command)) {
      const bool repeats = option->takes == Takes::each || option->takes == Takes::list;
      const bool maybe = option->takes == Takes::maybe;
      text += fmt::format(
          " \\\n      '{}{}{}[{}]{}'", repeats ? "*" : "", option->name, maybe ? "=-" : "",
          quoted(option->description, true),
          maybe ? "::" + lowered(option->argument) + ": " : zsh_values(option->name, option->argument));
    }
    for (const Positional& p : command.positionals) {
      if (command.name != "help") text += fmt::format(" \\\n      '{}'", zsh_values({}, p.name));
    }
    text += " ;;\n";
  }
  return text + "  esac\n}\ncompdef _mantissa mantissa\n";
}

/// Returns `text` without patterns for files.
std::string escaped_stars(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '*' ? "\\*" : std::string(1, c);
  return out;
}

std::string fish() {
  std::string text = fmt::format(R"(complete -c mantissa -f
function __mantissa_needs_command
  set -l words (commandline -opc)[2..]
  while set -q words[1]; and string match -q -- '-*' $words[1]
    if contains -- $words[1] {}; set words $words[2..]; end
    set words $words[2..]
  end
  not set -q words[1]
end
)",
                                 joined(options_with_values()));
  for (const std::string& word : first_words()) {
    const Command* command = find_command(word);
    text += fmt::format("complete -c mantissa -n __mantissa_needs_command -a {} -d '{}'\n", word,
                        quoted(command != nullptr ? command->summary : group_summary(word), false));
  }
  for (const std::string& word : groups()) {
    text += fmt::format("complete -c mantissa -n '__fish_seen_subcommand_from {}' -a '{}'\n", word,
                        joined(second_words(word)));
  }
  const std::string help = fmt::format(
      "complete -c mantissa -n '__fish_seen_subcommand_from help; and not __fish_seen_subcommand_from {}' -a ",
      joined(groups()));
  text += fmt::format("{}'{} {}'\n", help, joined(first_words()), joined(help_topics()));
  for (const api::ConfigKeyHelp& key : api::config_keys())
    text += fmt::format("{}{} -d '{}'\n", help, key.name(), quoted(key.description, false));
  for (const Command& command : commands()) {
    const std::string word(command.name.substr(0, command.name.find(' ')));
    const std::string when =
        fmt::format("complete -c mantissa -n '__fish_seen_subcommand_from {}{}'", word,
                    command.name == "help" ? "" : "; and not __fish_seen_subcommand_from help");
    for (const Option* option : options_of(command)) {
      text += fmt::format("{} -l {}", when, option->name.substr(2));
      if (takes_value(*option)) {
        const Values values = values_of(option->name, option->argument);
        const bool files =
            values.kind == Values::files || values.kind == Values::directories || values.or_files;
        text += files ? " -r -F" : " -x";
        if (values.kind == Values::rule)
          text += fmt::format(" -a '{}'", escaped_stars(joined(rule_scopes())));
        if (!values.list.empty()) text += fmt::format(" -a '{}'", joined(values.list));
      }
      text += fmt::format(" -d '{}'\n", quoted(option->description, false));
    }
    const Values subject = subject_of(command);
    if (subject.kind == Values::files || subject.kind == Values::directories) text += when + " -F\n";
    if (subject.kind == Values::words) text += fmt::format("{} -a '{}'\n", when, joined(subject.list));
  }
  return text;
}

}  // namespace

std::string completion(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  if (shell == "fish") return fish();
  throw ConfigError("completion: expected one of bash, zsh, fish, got \"{}\"", shell);
}

}  // namespace mantissa::cli
