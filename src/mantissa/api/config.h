// A run's config.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/api/precision.h"

namespace mantissa::api {

/// A run's config: checked, resolved, immutable (docs/cli.md).
class Config {
 public:
  /// Reads a TOML file. `overrides` are "section.key=value"; `precision` replaces the policy and adds rules.
  /// A DeepSpeed file wins over the TOML, overrides and `precision` over both. Throws FileError, ConfigError.
  static Config load(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                     const Precision& precision = {});
  /// Reads TOML from text; relative paths are relative to the current directory.
  static Config parse(std::string_view text, std::span<const std::string> overrides = {},
                      const Precision& precision = {});

  /// Returns every key with its value; the text loads back to an equal config.
  std::string toml() const;
  /// Returns the run directory, run.out.
  std::filesystem::path out() const;
  /// Returns the canonical name and line of the policy: "bf16-mixed: params=f32 …".
  std::string policy() const;
  /// Return how the config was read. train() reports both to its events, and a Plan has them.
  const std::vector<std::string>& notes() const;
  const std::vector<std::string>& warnings() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }
  explicit Config(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// The names, defaults and descriptions of every config key.
std::string config_help(std::size_t columns = 80);

/// A key of a config, by its own name ("lr") or another trainer's ("learning_rate"), and how the two relate;
/// without a name if there is no such key.
struct ConfigKey {
  std::string name;  // "optimizer.lr"
  std::string note;
};
ConfigKey find_config_key(std::string_view word);

}  // namespace mantissa::api
