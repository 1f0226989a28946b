#include "mantissa/app/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mantissa/app/cli/key_help.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::size_t kColumns = 80, kOptionColumn = 26, kCommandColumn = 14,
                      kToBeginColumn = 34;  // where descriptions begin

constexpr std::string_view kAbout =
    "Mantissa trains language models at any numeric precision, and shows exactly what\nthe precision does.";

constexpr std::pair<std::string_view, std::string_view> kToBegin[] = {
    {"init pretrain", "write a config for a task: pretrain.toml"},
    {"explain pretrain.toml", "print every rounding, the memory and the time"},
    {"train pretrain.toml", "train, and write runs/pretrain"},
    {"audit pretrain.toml", "report what the precision does in a few steps"},
    {"chat MODEL", "talk to a model or a run"},
};

/// The commands by purpose, each once.
constexpr std::pair<std::string_view, std::string_view> kGroups[] = {
    {"train", "init, explain, train, rl, runs, doctor"},
    {"use a model", "chat, generate, serve, eval"},
    {"see what the precision does", "audit, compare, diff, trace"},
    {"checkpoints", "inspect, convert, merge"},
    {"data",
     "data kk, data inspect, data shard, tokenizer encode, tokenizer decode, tokenizer info, tokenizer "
     "train"},
    {"replay a part of training", "objective, reward, loss-scale"},
    {"this program", "help, version, completion, manual"},
};

/// Returns a name and its description in two columns; the second begins at `left`.
std::string row(std::string_view name, std::string_view meaning, std::size_t left = kOptionColumn) {
  const bool beside = width_of(name) + 4 <= left;
  const std::string above = beside ? "" : fmt::format("  {}\n", name);
  const std::string line = fmt::format("  {:<{}}{}", beside ? name : "", left - 2, meaning);
  return above + wrapped(line, left, kColumns) + "\n";
}

std::string usage(const Command& command) {
  std::string text = fmt::format("usage: mantissa {}", command.name);
  for (const Positional& p : command.positionals) text += fmt::format(" {}", p.name);
  if (options_of(command).size() > 1) text += " [OPTIONS]";
  return wrapped(text, 4, kColumns) + "\n";
}

}  // namespace

std::string sentence(std::string_view text) {
  std::string out(text);
  if (!out.empty() && out.front() >= 'a' && out.front() <= 'z')
    out.front() = static_cast<char>(out.front() - 'a' + 'A');
  return out + ".";
}

std::string overview() {
  std::string text = fmt::format("{}\n\nto begin:\n", kAbout);
  for (const auto& [command, meaning] : kToBegin)
    text += row(fmt::format("mantissa {}", command), meaning, kToBeginColumn);
  text += "\nhelp:\n";
  text += row("mantissa help", "all commands", kToBeginColumn);
  text += row("mantissa help COMMAND", "the options of a command", kToBeginColumn);
  text += row("mantissa help KEY", "a key of a config, such as optimizer.lr", kToBeginColumn);
  return text + row("mantissa help PRESET", "a precision, such as bf16-mixed", kToBeginColumn);
}

std::string help() {
  std::string text = fmt::format("usage: mantissa COMMAND [ARGUMENTS] [OPTIONS]\n\n{}\n", kAbout);
  for (const auto& [title, names] : kGroups) {
    text += fmt::format("\n{}:\n", title);
    for (const std::string_view name : split_words(names, ",")) {
      const Command& command = *find_command(trimmed(name));
      text += row(command.name, command.summary, kCommandColumn);
    }
  }
  const std::string more =
      "mantissa help COMMAND lists the options of a command. mantissa help KEY describes a key of a config, "
      "such as optimizer.lr; mantissa help presets lists the precisions.";
  return text + "\n" + wrapped(more, 0, kColumns) + "\n";
}

std::string help_on_group(std::string_view word) {
  std::string text =
      fmt::format("usage: mantissa {} SUBCOMMAND [ARGUMENTS] [OPTIONS]\n\nsubcommands:\n", word);
  std::vector<const Command*> of_group;
  for (const Command& command : commands()) {
    if (command.name.starts_with(fmt::format("{} ", word))) of_group.push_back(&command);
  }
  if (of_group.empty()) return {};
  std::size_t left = 0;
  for (const Command* command : of_group) left = std::max(left, command->name.size() + 4);
  for (const Command* command : of_group) text += row(command->name, command->summary, left);
  return text + fmt::format("\nmantissa help {} SUBCOMMAND lists its options.\n", word) + section_hint(word);
}

std::string help(const Command& command) {
  std::string text = usage(command) + "\n" + wrapped(sentence(command.summary), 0, kColumns) + "\n";
  if (!command.details.empty()) text += "\n" + wrapped(command.details, 0, kColumns) + "\n";
  if (!command.positionals.empty()) text += "\narguments:\n";
  for (const Positional& p : command.positionals) text += row(p.name, p.description);
  text += "\noptions:\n";
  for (const Option* option : options_of(command)) {
    std::string meaning(option->description);
    if (!option->fallback.empty()) meaning += fmt::format(" [{}]", option->fallback);
    text += row(written(*option), meaning);
  }
  return text + (command.name == "train" ? keys_by_task() : section_hint(command.name));
}

}  // namespace mantissa::cli
