// Help on the keys of a config: all by task, a section, or one key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mantissa::cli {

/// Returns the keys of a config with their defaults, grouped by what one does with them.
std::string keys_by_task();

/// Returns the help on a key ("optimizer.lr", "lr", or another trainer's "learning_rate"), on a section
/// ("optimizer" or "[optimizer]"), or on all keys ("keys"). Null for any other word.
std::optional<std::string> help_on_key(std::string_view word);

/// Returns the presets, one a line.
std::string list_of_presets();
/// Returns the help on the preset with this name or alias. Null for any other word.
std::optional<std::string> help_on_preset(std::string_view word);

/// Returns ". mantissa help [SECTION] …" for a command that is also the name of a section, else "".
std::string section_hint(std::string_view command);

}  // namespace mantissa::cli
