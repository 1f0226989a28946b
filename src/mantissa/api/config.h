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
  /// Reads a TOML file; `overrides` are "section.key=value", `precision` replaces its policy. What a
  /// DeepSpeed file says wins over the TOML, overrides and the policy over both. Throws FileError,
  /// ConfigError.
  static Config load(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                     const Precision& precision = {});
  /// The same from text; relative paths are relative to the current directory.
  static Config parse(std::string_view text, std::span<const std::string> overrides = {},
                      const Precision& precision = {});

  /// Every key with its value; loads back to an equal config.
  std::string toml() const;
  std::filesystem::path out() const;
  /// The canonical name and line of the policy.
  std::string policy() const;
  /// What a user should be told, once, of how the config was read; train() and explain() do.
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
