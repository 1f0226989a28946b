// Optimizers. Each is a rule that builds the update of one parameter as nodes of a graph
// (parameter_update.h). Each has one file and one line in the registry.
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

/// A setting of an optimizer: its key in [optimizer], its default, and its valid range.
struct SettingDef {
  std::string_view key;
  Setting fallback;
  std::string_view doc;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // `least` itself is excluded
  bool below = false;  // `most` itself is excluded
};

struct Optimizer {
  std::string_view name;   // "adamw"
  std::string_view title;  // "AdamW"
  std::string_view doc;    // one line: the rule and its source
  std::vector<SettingDef> settings;
  /// The typical size of an element's update at learning rate 1, without weight decay. 0: it depends on the
  /// gradient or the weight.
  double typical_update = 0;
  /// Throws ConfigError if settings contradict each other. Null: no such check.
  void (*check)(const Settings&) = nullptr;
  /// Appends the update of one parameter.
  void (*update)(ParameterUpdate&) = nullptr;
};

/// Returns all optimizers; the first is the default.
std::span<const Optimizer* const> all_optimizers();

/// Returns the optimizer called `name`. Throws ConfigError with the known names.
const Optimizer& find_optimizer(std::string_view name);

/// Returns the default settings of `optimizer`.
Settings defaults(const Optimizer& optimizer);

}  // namespace mantissa::optim
