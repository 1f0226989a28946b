// The commands and options, each declared once. Parsing, help, the manual page and shell completion are
// generated from these tables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

/// The number of values of an option, and whether it may be repeated.
enum class Takes {
  nothing,  // a flag
  one,      // one value; the last one counts
  each,     // one value per occurrence
  list,     // values up to the next option; repeatable
  maybe,    // an optional value, as --name=VALUE
};

struct Option {
  std::string_view name;  // "--max-new-tokens"
  Takes takes;
  std::string_view argument;     // "N", "FILE", "avx2|avx512"; empty: a flag
  std::string_view fallback;     // the default; empty: none
  std::string_view description;  // in lower case, without a full stop
  std::string_view commands;     // the commands that take it: "train, data kk"; empty: all
};

struct Positional {
  std::string_view name;  // "MODEL"; "[COMMAND]" is optional; a last "[RUN…]" takes all other words
  std::string_view description;
};

struct Command {
  std::string_view name;     // "data kk"
  std::string_view summary;  // one line
  std::vector<Positional> positionals;
  std::string_view details = {};  // a paragraph for help and manual
};

std::span<const Option> options();
std::span<const Command> commands();

/// Returns the first option of this name, or null.
const Option* find_option(std::string_view name);
const Command* find_command(std::string_view name);
/// Returns the first command whose name is `word` and a second word, or null.
const Command* first_of_group(std::string_view word);
/// Returns the option of this name that `command` takes, or null.
const Option* find_option(const Command& command, std::string_view name);

bool has_option(const Command& command, const Option& option);
/// Returns the options in the order of the table.
std::vector<const Option*> options_of(const Command& command);

/// Returns the option with its argument: "--max-new-tokens N", "--resume[=STEP]".
std::string written(const Option& option);

}  // namespace mantissa::cli
