// DeepSpeed's JSON, read for what it says about precision, the loss scale, batch, clipping, optimizer and
// schedule.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

/// A key of the file as a key of a run's config.
struct DeepSpeedSetting {
  std::string section, key;  // "optimizer", "max_grad_norm"
  std::string value;         // as TOML
  std::string from;          // "gradient_clipping"
  bool said = true;          // false: DeepSpeed's own default
};

/// An "auto" of the file, and the key of a config that has the value; empty where nothing here has one.
struct DeepSpeedAuto {
  std::string from, section, key;
};

struct DeepSpeedFile {
  std::string name;                        // path of the file, for messages
  std::vector<DeepSpeedSetting> settings;  // in the order of a config's sections; [precision] first
  /// [precision.loss_scale]; they count under a policy that computes in f16.
  std::vector<DeepSpeedSetting> scaler;
  std::vector<DeepSpeedAuto> autos;
  std::vector<std::string> ignored;   // keys that say nothing here, each once
  std::vector<std::string> notes;     // how something is done here that comes to the same
  std::vector<std::string> warnings;  // what here differs from what DeepSpeed would do
  std::string scaler_warning;         // the same of the scaler
  std::string policy_note;            // what the policy of the file means, where it counts
  /// gradient_accumulation_steps where the file does not say both batch sizes with it: what global_batch_size
  /// is of micro_batch_size.
  std::optional<std::int64_t> accumulation;

  /// The name of the file without its folder, for notes.
  std::string short_name() const;
  const DeepSpeedSetting* find(std::string_view section, std::string_view key) const;
  /// The policy as one line, with its loss scale; none where the file leaves the policy to others.
  std::optional<std::string> policy_line() const;
};

/// Reads `text`; it may have what parse_relaxed_json allows. An object that is the fp16 block itself is read
/// as that. Throws FileError for what is no text, ConfigError for bad syntax, a value of the wrong kind, and
/// keys that contradict each other: the message names the file, the key or both, and the cure.
DeepSpeedFile parse_deepspeed(std::string_view text, const std::string& name);

/// The same of a file. Throws FileError where it cannot be read; `named_by`: what the message begins with.
DeepSpeedFile read_deepspeed(const std::filesystem::path& path, const std::string& named_by = "--deepspeed");

}  // namespace mantissa::compat
