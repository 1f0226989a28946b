#include "mantissa/app/cli/completion_words.h"

#include <algorithm>

#include "mantissa/app/api/mantissa.h"

namespace mantissa::cli {

std::vector<std::string> second_words(std::string_view word) {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    if (command.name.starts_with(std::string(word) + " "))
      words.emplace_back(command.name.substr(word.size() + 1));
  }
  return words;
}

Values values_of(std::string_view option, std::string_view argument) {
  static const std::vector<std::string_view> kFiles = {
      "FILE",         "FILES",        "PATH",       "CONFIG",           "MODEL",
      "MODEL|CONFIG", "CONFIG|MODEL", "CONFIG|RUN", "CONFIG|RUN|MODEL", "CONFIG|FILE",
      "IN",           "OUT",          "TOKENIZER",  "NAME|FILE",        "A"};
  if (argument.empty()) return {};
  if (argument == "DIR") return {Values::directories};
  if (option == "--rule") return {Values::rule};
  Values values{Values::words};
  if (option == "--precision") {
    for (const api::Preset& preset : api::presets()) values.list.push_back(preset.name);
  } else if (argument.starts_with("KEY=")) {
    values.kind = Values::keys;
    for (const api::ConfigKeyHelp& key : api::config_keys()) values.list.push_back(key.name() + "=");
  } else if (argument == "HARDWARE") {
    values.list = api::known_targets();
    values.or_files = true;
  } else if (argument == "[TASK]") {  // of init
    for (const api::ConfigTask& task : api::config_tasks()) values.list.push_back(task.name);
  } else if (argument == "RULE") {  // of reward
    for (const std::string& rule : api::reward_rules())
      values.list.push_back(rule.substr(0, rule.find(':') + 1));
  } else if (std::ranges::find(kFiles, argument) != kFiles.end()) {
    values.kind = Values::files;
  } else if (values.list = choices_of(argument); values.list.empty()) {
    values.kind = Values::any;
  }
  return values;
}

const std::vector<std::string>& rule_scopes() {
  static const std::vector<std::string> all = {
      "model.embed_tokens:", "model.layers.*:", "model.layers.*.self_attn:",
      "model.layers.*.mlp:", "model.norm:",     "lm_head:"};
  return all;
}

std::vector<std::string> rule_keys() {
  std::vector<std::string> all;
  for (const std::string& key : api::rule_keys()) {
    if (key != "match") all.push_back(key + "=");
  }
  return all;
}

bool takes_value(const Option& option) {
  return option.takes != Takes::nothing && option.takes != Takes::maybe;
}

std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    std::string word(command.name.substr(0, command.name.find(' ')));
    if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::string> groups() {
  std::vector<std::string> words = first_words();
  std::erase_if(words, [](const std::string& word) { return find_command(word) != nullptr; });
  return words;
}

std::vector<std::string> help_topics() {
  std::vector<std::string> words = {"keys", "presets"};
  for (const api::Preset& preset : api::presets()) words.push_back(preset.name);
  return words;
}

std::vector<std::string_view> options_with_values() {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    for (const Option* option : options_of(command)) {
      if (takes_value(*option) && std::ranges::find(names, option->name) == names.end())
        names.push_back(option->name);
    }
  }
  return names;
}

std::string names_of(const Command& command) {
  std::vector<std::string_view> names;
  for (const Option* option : options_of(command)) names.push_back(option->name);
  return joined(names);
}

std::string before_command() {
  return names_of(*find_command("help")) + " --json --quiet --version";
}

Values subject_of(const Command& command) {
  if (command.name == "help" || command.positionals.empty()) return {};
  return values_of({}, command.positionals.front().name);
}

}  // namespace mantissa::cli
