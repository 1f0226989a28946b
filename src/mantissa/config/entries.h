// The keys that a config file and its overrides say, before they mean anything.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/compat/deepspeed.h"
#include "mantissa/precision/toml.h"

namespace mantissa::config {

/// One key, said in the file or by --set.
struct Entry {
  std::string section;  // "precision.loss_scale"
  std::string key;
  const toml::node* value = nullptr;
  std::string where;           // "runs/run.toml:12" or "--set", for messages
  std::string origin;          // "run.toml:12" or "--set", for explain
  std::filesystem::path base;  // what relative paths are relative to
  std::string raw;             // an override's text as it was typed; "" in a file
  bool deepspeed = false;      // of a DeepSpeed file
};

/// Every key at its last word, with the documents that own the values.
struct Entries {
  std::string file;
  std::vector<Entry> all;
  std::vector<std::unique_ptr<toml::table>> documents;

  const Entry* find(std::string_view section, std::string_view key) const;
  /// Where a key was said; the file's name where it was not.
  std::string where(std::string_view section, std::string_view key) const;
};

/// Parses TOML text and overrides; what `deepspeed` says, where it is not null, wins over the text and the
/// overrides over both. A policy of the DeepSpeed file takes the place of the text's, whose rules stay;
/// `policy_replaced`: by --precision, so that the file's policy does not count. Throws ConfigError for bad
/// syntax, for sections that are no tables and for unknown keys.
Entries read_entries(std::string_view text, const std::filesystem::path& file,
                     std::span<const std::string> overrides, const compat::DeepSpeedFile* deepspeed = nullptr,
                     bool policy_replaced = false);

/// Throws FileError where `text` is too long or binary, ConfigError where its keys would nest without end:
/// before it is parsed.
void check_toml_text(std::string_view text, const std::string& file);

/// Throws ConfigError "where: section.key = value: why".
[[noreturn]] void refuse(const Entry& entry, std::string_view why);

}  // namespace mantissa::config
