// Reads the precision, loss scale, batch, clipping, optimizer and schedule settings of a DeepSpeed JSON file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

/// A key of the file, as a key of a run's config.
struct DeepSpeedSetting {
  std::string section, key;  // "optimizer", "max_grad_norm"
  std::string value;         // as TOML
  std::string from;          // "gradient_clipping"
  bool said = true;          // false: DeepSpeed's own default
};

/// An "auto" in the file, and the config key that supplies its value; empty without such a key.
struct DeepSpeedAuto {
  std::string from, section, key;
};

struct DeepSpeedFile {
  std::string name;                        // path of the file, for messages
  std::vector<DeepSpeedSetting> settings;  // in the order of a config's sections; [precision] first
  /// Settings of [precision.loss_scale]. They apply under a policy that computes in f16.
  std::vector<DeepSpeedSetting> scaler;
  std::vector<DeepSpeedAuto> autos;
  std::vector<std::string> ignored;   // keys without effect here, each once
  std::vector<std::string> notes;     // a different way to the same result
  std::vector<std::string> warnings;  // differences from DeepSpeed's behaviour
  std::string scaler_warning;         // a difference of the loss scaler
  std::string policy_note;            // the meaning of the file's policy, if it applies
  /// gradient_accumulation_steps, if the file does not also set both batch sizes: the ratio of
  /// global_batch_size to micro_batch_size.
  std::optional<std::int64_t> accumulation;

  /// Returns the file name without its folder, for notes.
  std::string short_name() const;
  const DeepSpeedSetting* find(std::string_view section, std::string_view key) const;
  /// Returns the policy as one line with its loss scale, or null if the file does not set a policy.
  std::optional<std::string> policy_line() const;
};

/// Parses `text`, which may use the extensions of parse_relaxed_json. An object that is the fp16 block itself
/// is accepted as one. Throws FileError if `text` is not a text, and ConfigError for bad syntax, a value of
/// the wrong kind, or contradicting keys. The message names the file and the keys, and how to fix them.
DeepSpeedFile parse_deepspeed(std::string_view text, const std::string& name);

/// Reads and parses a file. Throws FileError if it cannot be read; the message begins with `named_by`.
DeepSpeedFile read_deepspeed(const std::filesystem::path& path, const std::string& named_by = "--deepspeed");

}  // namespace mantissa::compat
