// The keys of a config file and its overrides, before interpretation.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/policy/toml.h"

namespace mantissa::config {

/// The section of the loss scale.
inline constexpr std::string_view kLossScale = "precision.loss_scale";

/// One key, set in the file or by --set.
struct Entry {
  std::string section;  // "precision.loss_scale"
  std::string key;
  const toml::node* value = nullptr;
  std::string where;             // "runs/run.toml:12" or "--set", for messages
  std::string origin;            // "run.toml:12" or "--set", for explain
  std::filesystem::path base;    // the base of relative paths
  std::string raw;               // the text of an override as typed; "" in a file
  bool deepspeed = false;        // from a DeepSpeed file
  std::string alias = {};        // the key as it was written, if it is another trainer's
  std::string shown_value = {};  // of an alias: the value of the key, as a note shows it
  bool stray = false;            // of an alias that was not written in `section`
};

inline bool is_override(const Entry& entry) {
  return entry.where == "--set";
}

/// The last value of every key, with the documents that own the values.
struct Entries {
  std::string file;
  std::vector<Entry> all;
  std::vector<std::unique_ptr<toml::table>> documents;
  std::vector<std::string> notes;  // on keys of other trainers
  bool of_train = false;           // see parse_config

  const Entry* find(std::string_view section, std::string_view key) const;
  /// Returns where a key was set, or the file's name if it was not.
  std::string where(std::string_view section, std::string_view key) const;
};

/// Parses TOML text and overrides. Settings of `deepspeed`, unless null, override the text; overrides take
/// precedence over both. Keys of other trainers (setup/config/aliases.h) become those here. The DeepSpeed
/// file's policy replaces the text's policy but keeps its rules. With `policy_replaced`, --precision replaces
/// the file's policy too. Throws ConfigError for invalid syntax, sections that are not tables, and unknown
/// keys.
Entries read_entries(std::string_view text, const std::filesystem::path& file,
                     std::span<const std::string> overrides, const compat::DeepSpeedFile* deepspeed = nullptr,
                     bool policy_replaced = false);

/// Checks text before it is parsed. Throws FileError if it is too long or binary, and ConfigError if its keys
/// nest too deeply.
void check_toml_text(std::string_view text, const std::string& file);

/// Returns a value for a message: a scalar as in TOML, or "an array".
std::string shown(const toml::node& value);

/// Throws ConfigError "where: section.key = value: why". A key of another trainer is named as it was written.
[[noreturn]] void refuse(const Entry& entry, std::string_view why);

}  // namespace mantissa::config
