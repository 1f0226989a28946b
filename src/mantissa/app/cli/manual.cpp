// The manual page.
#include <fmt/format.h>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/help.h"

namespace mantissa::cli {
namespace {

/// Escapes `text` for roff.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  const bool request = out.starts_with('.') || out.starts_with('\'');
  return request ? "\\&" + out : out;
}

std::string tagged(std::string_view name, std::string_view meaning) {
  return fmt::format(".TP\n.B {}\n{}\n", roff(name), roff(meaning));
}

std::string command_text(const Command& command) {
  std::string usage = "mantissa " + std::string(command.name);
  for (const Positional& p : command.positionals) usage += fmt::format(" {}", p.name);
  std::string text = fmt::format(".SS {}\n{}\n", roff(usage), roff(sentence(command.summary)));
  if (!command.details.empty()) text += fmt::format("{}\n", roff(command.details));
  for (const Positional& p : command.positionals) text += tagged(p.name, p.description);
  for (const Option* option : options_of(command)) {
    if (option->name == "--help") continue;
    std::string meaning(option->description);
    if (!option->fallback.empty()) meaning += fmt::format(" (default: {})", option->fallback);
    text += tagged(written(*option), meaning);
  }
  return text;
}

}  // namespace

std::string manual() {
  std::string text = fmt::format(
      ".TH MANTISSA 1 \"\" \"mantissa {}\" \"User Commands\"\n.SH NAME\nmantissa \\- trains language models "
      "at any numeric precision, and shows what the precision does\n.SH SYNOPSIS\n.B mantissa\n.I "
      "COMMAND\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n.SH COMMANDS\n",
      api::version());
  for (const Command& command : commands()) text += command_text(command);
  text += ".SH EXIT STATUS\n";
  text += tagged("0", "done");
  text += tagged("1",
                 "stopped for the reason in the message: a non-finite value, the loss scale at its minimum, "
                 "insufficient memory, a full disk");
  text += tagged("2", "invalid usage, config, policy or input file");
  text += tagged("130", "interrupted by Ctrl-C or SIGTERM, after the state was saved");
  text += ".SH CONFIG\nA config is a TOML file. Its sections and keys:\n.nf\n\n";
  std::string_view rest;
  const std::string keys = api::config_help(72);
  for (rest = keys; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    text += roff(rest.substr(0, end)) + "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return text + ".fi\n";
}

}  // namespace mantissa::cli
