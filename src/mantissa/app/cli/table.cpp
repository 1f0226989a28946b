#include "mantissa/app/cli/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "mantissa/app/api/data.h"
#include "mantissa/app/cli/option_groups.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {

std::span<const Command> commands() {
  static const Commands all = [] {
    Commands made;
    for (const auto of_file :
         {init_commands, train_commands, generate_commands, chat_commands, serve_commands, eval_commands,
          plan_commands, audit_commands, compare_commands, file_commands, data_commands, tokenizer_commands,
          doctor_commands, program_commands})
      std::ranges::move(of_file(), std::back_inserter(made));
    return made;
  }();
  return all;
}

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(commands(), name, &Command::name);
  return found == commands().end() ? nullptr : &*found;
}

const Command* first_of_group(std::string_view word) {
  const auto found = std::ranges::find_if(commands(), [&](const Command& command) {
    return command.name.size() > word.size() && command.name.starts_with(word) &&
           command.name[word.size()] == ' ';
  });
  return found == commands().end() ? nullptr : &*found;
}

std::vector<const Option*> options_of(const Command& command) {
  std::vector<const Option*> all;
  for (const std::span<const Option> rows :
       {std::span<const Option>(command.options), std::span<const Option>(command.groups),
        std::span<const Option>(kGeneral)})
    for (const Option& option : rows) all.push_back(&option);
  return all;
}

const Option* find_option(const Command& command, std::string_view name) {
  const std::vector<const Option*> all = options_of(command);
  const auto found = std::ranges::find_if(all, [&](const Option* option) { return option->name == name; });
  return found == all.end() ? nullptr : *found;
}

std::vector<std::string> commands_with(std::string_view option) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (find_option(command, option) != nullptr) names.emplace_back(command.name);
  }
  return names;
}

std::vector<std::string> choices_of(std::string_view argument) {
  std::vector<std::string> all;
  if (std::ranges::any_of(argument, [](char c) { return c >= 'A' && c <= 'Z'; })) return all;
  for (const std::string_view word : split_words(argument, "|")) all.emplace_back(word);
  return all;
}

Option data_format(std::string_view name, std::string_view description, bool only_text) {
  static const std::string all = fmt::format("{}", fmt::join(api::data_formats(), "|")),
                           text = fmt::format("{}", fmt::join(api::data_formats(true), "|"));
  return {name, one, only_text ? text : all, description, "auto"};
}

std::string written(const Option& option) {
  std::string name(option.name), argument(option.argument);
  if (option.takes == Takes::nothing) return name;
  return option.takes == Takes::maybe ? name + "[=" + argument + "]" : name + " " + argument;
}

}  // namespace mantissa::cli
