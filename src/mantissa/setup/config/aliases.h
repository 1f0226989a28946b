// Keys of other trainers that a config accepts. Each stands for keys of a config, with the same value or a
// translated one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/policy/toml.h"

namespace mantissa::config {

/// A key that an alias stands for.
struct AliasedKey {
  std::string section, key;  // "adapter", "rank"
  std::string value;         // as TOML; empty: the value of the alias
};

/// Returns true for a key of PEFT, Lit-GPT or OpenRLHF that read_alias() knows.
bool is_alias(std::string_view name);

/// Returns the key that an alias stands for, such as "adapter.rank", or "" for other words.
std::string key_of_alias(std::string_view name);

/// Returns a sentence on a word that other trainers use and that is not the name of one key here: an alias of
/// several keys, and the value "all-linear". "" for other words.
std::string about_alias(std::string_view name);

/// Returns all aliases, as in documentation.
std::vector<std::string_view> alias_names();

/// Returns the keys that alias `name` sets if it has `value`. Throws ConfigError beginning with `where` if
/// the value cannot be honoured.
std::vector<AliasedKey> read_alias(std::string_view name, const toml::node& value, const std::string& where);

}  // namespace mantissa::config
