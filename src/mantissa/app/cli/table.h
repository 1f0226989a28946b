// The form in which commands and their options are declared, each once, in the file of the command. Parsing,
// help, the manual page, shell completion and the tables of docs/cli are generated from the declarations.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

class Arguments;

/// The number of values of an option, and whether it may be repeated.
enum class Takes {
  nothing,  // a flag
  one,      // one value; the last one counts
  each,     // one value per occurrence
  list,     // values up to the next option; repeatable
  maybe,    // an optional value, as --name=VALUE
};
using enum Takes;

struct Option {
  std::string_view name;  // "--max-new-tokens"
  Takes takes;
  std::string_view argument;     // "N", "FILE", "avx2|avx512"; empty: a flag
  std::string_view description;  // in lower case, without a full stop
  std::string_view fallback;     // the default; empty: none

  constexpr Option(std::string_view name, Takes takes, std::string_view argument,
                   std::string_view description, std::string_view fallback = {})
      : name(name), takes(takes), argument(argument), description(description), fallback(fallback) {}
  constexpr Option(std::string_view flag, std::string_view description)
      : Option(flag, nothing, {}, description) {}
};

/// Options in the order of help, declared as rows and as groups of rows (option_groups.h).
struct Options : std::vector<Option> {
  struct Item : std::vector<Option> {
    template <class... Fields>
    Item(Fields... fields) : vector{Option(fields...)} {}  // NOLINT: a row is an item
    template <std::size_t n>
    Item(const Option (&group)[n]) : vector(group, group + n) {}  // NOLINT: a group is an item
  };
  Options(std::initializer_list<Item> items) {
    for (const Item& item : items) insert(end(), item.begin(), item.end());
  }
};

struct Positional {
  std::string_view name;  // "MODEL"; "[COMMAND]" is optional; a last "[RUN…]" takes all other words
  std::string_view description;
};

struct Command {
  std::string_view name;     // "data kk"
  std::string_view summary;  // one line
  std::vector<Positional> positionals = {};
  std::string_view details = {};           // a paragraph for help and manual
  Options options = {}, groups = {};       // in the order of help; those of every command follow
  int (*run)(const Arguments&) = nullptr;  // returns the exit code
  bool errors_are_2 = false;               // 1 is a result
  bool shared = false;  // several processes, started by mpirun or srun, may run it together
};
using Commands = std::vector<Command>;

// The commands of each file.
Commands init_commands(), train_commands(), generate_commands(), chat_commands(), serve_commands(),
    eval_commands(), plan_commands(), audit_commands(), compare_commands(), file_commands(), data_commands(),
    tokenizer_commands(), doctor_commands(), program_commands();

/// Returns all commands, in the order of the manual.
std::span<const Command> commands();

const Command* find_command(std::string_view name);
/// Returns the first command whose name is `word` and a second word, or null.
const Command* first_of_group(std::string_view word);

/// Returns the options of `command` in the order of help.
std::vector<const Option*> options_of(const Command& command);
/// Returns the option of this name that `command` takes, or null.
const Option* find_option(const Command& command, std::string_view name);
/// Returns the names of the commands that take an option of this name.
std::vector<std::string> commands_with(std::string_view option);

/// Returns the words of which an option or argument takes one, "a" and "b" of "a|b", or none if it takes
/// others too.
std::vector<std::string> choices_of(std::string_view argument);

/// Returns the option with its argument: "--max-new-tokens N", "--resume[=STEP]".
std::string written(const Option& option);

}  // namespace mantissa::cli
