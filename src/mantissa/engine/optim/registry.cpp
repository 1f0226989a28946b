// The list of all optimizers, used by configs, help and tests.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/optim/common_settings.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {

std::span<const Optimizer* const> all_optimizers() {
  static constexpr const Optimizer* kAll[] = {
      &kAdamW, &kAdam, &kSgd, &kLion, &kAdafactor, &kMuon, &kScheduleFreeAdamW, &kAdEmaMix, &kAdan};
  return kAll;
}

const Optimizer& find_optimizer(std::string_view name) {
  std::vector<std::string> names;
  for (const Optimizer* optimizer : all_optimizers()) {
    if (optimizer->name == name) return *optimizer;
    names.emplace_back(optimizer->name);
  }
  throw ConfigError("unknown optimizer \"{}\"; one of {}", name, fmt::join(names, ", "));
}

Settings defaults(const Optimizer& optimizer) {
  Settings all;
  for (const SettingDef& def : common_settings()) all.emplace(def.key, def.fallback);
  for (const SettingDef& def : optimizer.settings) all.emplace(def.key, def.fallback);
  return all;
}

}  // namespace mantissa::optim
