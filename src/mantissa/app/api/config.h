// The config of a run.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/app/api/precision.h"

namespace mantissa::api {

/// The config of a run: checked, resolved, immutable (docs/cli/config-file.md).
class Config {
 public:
  /// Reads a TOML file. `overrides` are "section.key=value", as in {"run.steps=10"}. `precision` replaces the
  /// policy, adds rules, or gives a DeepSpeed file. The DeepSpeed file overrides the TOML; `overrides`,
  /// `precision.policy` and `precision.rules` take precedence over both. Throws FileError, ConfigError.
  /// A section [rl] sets the objective "rl" unless the config names another one, or `of_train` is set and the
  /// config has a batch.global_batch_size: then it has no effect, with a warning.
  static Config load(const std::filesystem::path& path, const std::vector<std::string>& overrides = {},
                     const Precision& precision = {}, bool of_train = false);
  /// Parses TOML from memory. Relative paths are relative to the current directory.
  static Config parse(std::string_view text, const std::vector<std::string>& overrides = {},
                      const Precision& precision = {});

  /// Returns the config with the permission to run the programs that it names (rl.reward = "program:…").
  /// Without it, only a program among the `overrides` of load() or parse() may run: a config may have come
  /// from somebody else.
  Config allow_programs() const;

  /// Returns the resolved config as TOML, with every key. It parses to an equal config.
  std::string toml() const;
  /// Returns the run directory, run.out.
  std::filesystem::path out() const;
  /// Returns train.objective: "pretrain", "sft", "reward", "dpo", "kto" or "rl".
  std::string objective() const;
  /// Returns the canonical name and line of the policy: "bf16-mixed: params=f32 …".
  std::string policy() const;
  /// Returns the settings of another system that are nearest to the policy (precision.h). Throws ConfigError.
  Emitted emitted(const std::string& system) const;
  /// Return how the config was read. train() reports both to its events, and a Plan contains them.
  const std::vector<std::string>& notes() const;
  const std::vector<std::string>& warnings() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }
  explicit Config(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Returns the names, defaults and descriptions of all config keys, or of those in one section, for a
/// terminal of `columns` columns. Empty for an unknown section.
std::string config_help(std::size_t columns = 80, std::string_view section = "");

/// A config key with its default as TOML, which is empty for a required key and where the description says
/// it.
struct ConfigKeyHelp {
  std::string section, key;
  std::string type;  // "whole number", "path", …
  std::string default_value;
  std::string description;
  std::string values;                                         // the valid ones; empty if the type says it
  std::vector<std::string> spellings;                         // the key in other trainers
  std::vector<std::pair<std::string, std::string>> defaults;  // train.objective, and another default under it
  std::string name() const { return section + "." + key; }
};
/// Returns all keys in the order of their sections, without `values`, `spellings` and `defaults`.
std::vector<ConfigKeyHelp> config_keys();
/// Returns the complete help on the key `name` ("optimizer.lr"). Throws ConfigError for an unknown key.
ConfigKeyHelp config_key_help(std::string_view name);

/// A config key, found by its name ("lr") or by its name in another trainer ("learning_rate"), with a note on
/// their relation. `name` is empty if the key is unknown.
struct ConfigKey {
  std::string name;  // "optimizer.lr"
  std::string note;
  std::string about = {};  // a sentence on a word for several keys ("clip_eps"), none, or a value of one
};
ConfigKey find_config_key(std::string_view word);

}  // namespace mantissa::api
