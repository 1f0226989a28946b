// One object of a DeepSpeed file: keys that are read, and what is left over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/compat/deepspeed.h"
#include "mantissa/compat/relaxed_json.h"

namespace mantissa::compat {

/// "section.key" of a run's config.
struct ConfigKey {
  std::string_view section, key;
};

/// Reads the members of an object. null is as if the key were not there. Where a value is "auto" the readers
/// note it beside `key` of the config, and give nothing. All throw ConfigError for a value of another kind.
class DeepSpeedBlock {
 public:
  /// `object`: null for one that is not there. `path`: "fp16", empty for the whole file.
  DeepSpeedBlock(const JsonValue* object, std::string path, DeepSpeedFile& out);

  bool exists() const { return object_ != nullptr; }
  /// Whether `key` has a value, "auto" included.
  bool has(std::string_view key) const;
  bool is_auto(std::string_view key) const;
  std::string path(std::string_view key) const;

  std::optional<bool> flag(std::string_view key, ConfigKey config = {});
  /// At least `least`.
  std::optional<std::int64_t> whole(std::string_view key, std::int64_t least, ConfigKey config = {});
  std::optional<double> number(std::string_view key, ConfigKey config = {});
  std::optional<std::vector<double>> numbers(std::string_view key, ConfigKey config = {});
  std::optional<std::string> text(std::string_view key, ConfigKey config = {});
  /// The object called `key`. Other values are refused; where `or_flag`, a boolean is a block that does not
  /// exist.
  DeepSpeedBlock block(std::string_view key, bool or_flag = false);
  /// The same of a block that "enabled" switches.
  DeepSpeedBlock switched(std::string_view key);

  /// Passes over `key`: what it says does not matter here.
  void skip(std::string_view key);
  /// Names what was not read as ignored, with the nearest key that is.
  void rest();

  /// Throws ConfigError "file: path.key = value: why".
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  /// The value to read; null where there is none, or where it is "auto".
  const JsonValue* take(std::string_view key, ConfigKey config);

  const JsonValue* object_;
  std::string path_;
  DeepSpeedFile& out_;
  std::vector<std::string> read_;
};

/// The blocks that are no precision: batch sizes, clipping, optimizer and scheduler.
void read_run(DeepSpeedBlock& root, DeepSpeedFile& out);

}  // namespace mantissa::compat
