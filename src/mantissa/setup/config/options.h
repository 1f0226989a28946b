// The table of a config's keys, from which parsing, --set, checks, help and the printed config are generated.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mantissa/engine/model/family.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// A pointer to a value in a config.
using Slot =
    std::variant<std::string*, std::int64_t*, std::uint64_t*, double*, bool*, std::vector<std::string>*,
                 std::vector<double>*, std::array<double, 2>*, Validation*, text::FieldMap*>;

/// The numbers that a key accepts.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above = false;  // `min` itself is excluded
  bool below = false;  // `max` itself is excluded
};

/// Describes the valid range of `value`, "at least 0 and below 1", without limits that are out of practical
/// reach.
std::string range_text(const Range& range, double value = 0);

struct Option {
  std::string_view section;
  std::string_view key;
  std::function<Slot(RunConfig&)> slot;
  std::string description;
  Range range = {};
  std::vector<std::string> choices = {};  // the only valid strings; for a path, the words that are not paths
  bool path = false;
};

std::span<const Option> option_table();
const Option* find_option(std::string_view section, std::string_view key);

/// Returns the fields of config.json that are valid under [model]: those of all families.
std::span<const model::Field> model_fields();
const model::Field* find_model_field(std::string_view key);
/// Returns true if `family` reads the field.
bool reads_field(const model::Family& family, std::string_view key);

/// Returns "run", "model", … in order.
std::span<const std::string> section_names();

/// Returns the valid keys of `section`, including those of [precision] and inline model fields.
std::vector<std::string> keys_of(std::string_view section);

/// Returns `value` as TOML.
std::string toml_text(const std::string& value);
std::string toml_text(double value);
std::string toml_text(const nlohmann::json& value);
std::string toml_text(const Slot& slot);

}  // namespace mantissa::config
