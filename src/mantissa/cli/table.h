// The commands and their options, each declared once: parsing, help, the manual page and shell completion are
// made from these tables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

/// How many words an option takes, and how often it may be given.
enum class Takes {
  nothing,  // a flag
  one,      // one value; the last one counts
  each,     // one value each time
  list,     // values up to the next option; may be repeated
  maybe,    // a value only as --name=VALUE
};

struct Option {
  std::string_view name;  // "--max-new-tokens"
  Takes takes;
  std::string_view argument;     // "N", "FILE", "avx2|avx512"; empty: a flag
  std::string_view fallback;     // the value where none is given; empty: none
  std::string_view description;  // in lower case, without a full stop
  std::string_view commands;     // those that take it: "train, data kk"; empty: all
};

struct Positional {
  std::string_view name;  // "MODEL"; "[COMMAND]" may be left out
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

/// nullptr where there is none of this name; the first of several options.
const Option* find_option(std::string_view name);
const Command* find_command(std::string_view name);
/// The option of this name that `command` takes; nullptr where it takes none.
const Option* find_option(const Command& command, std::string_view name);

bool has_option(const Command& command, const Option& option);
/// In the order of the table.
std::vector<const Option*> options_of(const Command& command);

/// With its argument: "--max-new-tokens N", "--resume[=STEP]".
std::string written(const Option& option);

}  // namespace mantissa::cli
