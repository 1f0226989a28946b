#include "mantissa/cli/help.h"

#include <fmt/format.h>

#include "mantissa/api/mantissa.h"
#include "mantissa/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::size_t kColumns = 80, kOptions = 26, kCommands = 14;  // the columns where descriptions begin

/// Returns a name and its description in two columns; the second begins at `left`.
std::string row(std::string_view name, std::string_view meaning, std::size_t left = kOptions) {
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

std::string help() {
  std::string text =
      "usage: mantissa COMMAND [ARGUMENTS] [OPTIONS]\n\nMantissa trains language models at any numeric "
      "precision, and shows exactly what\nthe precision does.\n\ncommands:\n";
  for (const Command& command : commands()) text += row(command.name, command.summary, kCommands);
  return text + "\nmantissa help COMMAND lists the options of a command.\n";
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
  if (command.name == "train") text += "\nconfig keys:\n\n" + api::config_help(kColumns);
  return text;
}

}  // namespace mantissa::cli
