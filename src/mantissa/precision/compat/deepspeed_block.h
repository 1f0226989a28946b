// One object of a DeepSpeed file. Tracks which keys were read and which are left over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/compat/relaxed_json.h"

namespace mantissa::compat {

/// A key of a run's config, "section.key".
struct ConfigKey {
  std::string_view section, key;
};

/// Reads the members of an object. A null counts as a missing key. For the value "auto" the readers record
/// the config key `config` and return nothing. All readers throw ConfigError for a value of another kind.
class DeepSpeedBlock {
 public:
  /// `object` is null for a missing object. `path` is "fp16", for example, or empty for the whole file.
  DeepSpeedBlock(const JsonValue* object, std::string path, DeepSpeedFile& out);

  bool exists() const { return object_ != nullptr; }
  /// True if `key` has a value, "auto" included.
  bool has(std::string_view key) const;
  bool is_auto(std::string_view key) const;
  std::string path(std::string_view key) const;

  std::optional<bool> flag(std::string_view key, ConfigKey config = {});
  /// Reads a whole number of at least `least`.
  std::optional<std::int64_t> whole(std::string_view key, std::int64_t least, ConfigKey config = {});
  std::optional<double> number(std::string_view key, ConfigKey config = {});
  std::optional<std::vector<double>> numbers(std::string_view key, ConfigKey config = {});
  std::optional<std::string> text(std::string_view key, ConfigKey config = {});
  /// Reads the object `key`; other values are errors. With `or_flag`, a boolean counts as a missing object.
  DeepSpeedBlock block(std::string_view key, bool or_flag = false);
  /// Reads a block with an "enabled" key.
  DeepSpeedBlock switched(std::string_view key);

  /// Marks `key` as read; its value does not matter here.
  void skip(std::string_view key);
  /// Reports every unread key as ignored, with the nearest known key.
  void rest();

  /// Throws ConfigError "file: path.key = value: why".
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  /// Returns the value to read, or null if it is missing or "auto".
  const JsonValue* take(std::string_view key, ConfigKey config);

  const JsonValue* object_;
  std::string path_;
  DeepSpeedFile& out_;
  std::vector<std::string> read_;
};

/// Reads everything except precision: batch sizes, clipping, optimizer and scheduler.
void read_run(DeepSpeedBlock& root, DeepSpeedFile& out);

}  // namespace mantissa::compat
