// Optimizers: each is a rule that says how one parameter is updated, as nodes of a graph
// (parameter_update.h). One file and one line of the registry each.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mantissa::optim {

class ParameterUpdate;

/// The value of a setting: a flag, a whole number, a number, or a pair of numbers (betas).
using Setting = std::variant<bool, std::int64_t, double, std::array<double, 2>>;
using Settings = std::map<std::string, Setting, std::less<>>;

/// A setting that an optimizer takes: its key in [optimizer], its default, and the numbers that it may be.
struct SettingDef {
  std::string_view key;
  Setting fallback;
  std::string_view doc;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // `least` itself is outside
  bool below = false;  // `most` itself is outside
};

struct Optimizer {
  std::string_view name;   // "adamw"
  std::string_view title;  // "AdamW"
  std::string_view doc;    // one line: the rule and where it is from
  std::vector<SettingDef> settings;
  /// Throws ConfigError where settings contradict each other. Null: they cannot.
  void (*check)(const Settings&) = nullptr;
  /// Appends the update of one parameter.
  void (*update)(ParameterUpdate&) = nullptr;
};

/// Every optimizer there is; the default is the first.
std::span<const Optimizer* const> all_optimizers();

/// The one called `name`. Throws ConfigError that names the known ones.
const Optimizer& find_optimizer(std::string_view name);

/// What `optimizer` takes where nothing else is said.
Settings defaults(const Optimizer& optimizer);

}  // namespace mantissa::optim
