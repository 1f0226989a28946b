// The table of a config's keys: parsing, --set, checks, help and the printed config are made from it.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/model/family.h"

namespace mantissa::config {

/// Where a value lies in a config.
using Slot = std::variant<std::string*, std::int64_t*, std::uint64_t*, double*, bool*,
                          std::vector<std::string>*, std::array<double, 2>*, Validation*>;

/// The numbers that a key takes.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above = false;  // `min` itself is outside
  bool below = false;  // `max` itself is outside
};

struct Option {
  std::string_view section;
  std::string_view key;
  std::function<Slot(RunConfig&)> slot;
  std::string description;
  Range range = {};
  std::vector<std::string> choices = {};  // the only strings; of a path: the words that are none
  std::vector<std::string> later = {};    // strings of docs/cli.md that this version reads and refuses
  bool path = false;
};

std::span<const Option> option_table();
const Option* find_option(std::string_view section, std::string_view key);

/// The fields of config.json that may be written under [model]: those of any family.
std::span<const model::Field> model_fields();
const model::Field* find_model_field(std::string_view key);
/// True where `family` reads the field.
bool reads_field(const model::Family& family, std::string_view key);

/// "run", "model", …, in order.
std::span<const std::string> section_names();

/// The keys that may stand in `section`, those of [precision] and inline model fields included.
std::vector<std::string> keys_of(std::string_view section);

/// `value` as TOML.
std::string toml_text(const std::string& value);
std::string toml_text(double value);
std::string toml_text(const nlohmann::json& value);
std::string toml_text(const Slot& slot);

}  // namespace mantissa::config
