#include "mantissa/train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/config/options.h"

namespace mantissa::train {
namespace {

enum class Change { refused, recorded, unimportant };

Change kind_of(const config::Option& option) {
  const std::string key = fmt::format("{}.{}", option.section, option.key);
  static constexpr std::array kUnimportant = {"run.name",        "run.out",
                                              "run.threads",     "batch.micro_batch_size",
                                              "batch.recompute", "precision.native_only"};
  if (std::find(kUnimportant.begin(), kUnimportant.end(), key) != kUnimportant.end())
    return Change::unimportant;
  // The model is compared separately.
  if (option.section == "model") return Change::unimportant;
  static constexpr std::array kRefused = {"run.seed", "optimizer.name"};
  if (std::find(kRefused.begin(), kRefused.end(), key) != kRefused.end()) return Change::refused;
  static constexpr std::array kRefusedSections = {"data", "batch", "train", "adapter"};
  return std::find(kRefusedSections.begin(), kRefusedSections.end(), option.section) != kRefusedSections.end()
             ? Change::refused
             : Change::recorded;
}

}  // namespace

std::optional<std::string> resumed_change(const io::StateHeader& state, const config::RunConfig& config,
                                          const std::string& model) {
  config::RunConfig before = config::parse_config(state.config_toml, "state.json");
  config::RunConfig now = config;
  if (nlohmann::json::parse(state.model_config) != nlohmann::json::parse(model)) {
    throw ConfigError(
        "--resume: the config describes another model than that of the run; resume with the run's own "
        "config.toml, or start over with --overwrite");
  }
  std::vector<std::string> changes;
  for (const config::Option& option : config::option_table()) {
    const Change kind = kind_of(option);
    const std::string old_value = config::toml_text(option.slot(before));
    const std::string new_value = config::toml_text(option.slot(now));
    if (kind == Change::unimportant || old_value == new_value) continue;
    if (kind == Change::refused) {
      throw ConfigError(
          fmt::format("--resume: {}.{} was {} and is {} now; the model, data, batch and seed of a run cannot "
                      "change. Revert the change, or start over with --overwrite or another --out",
                      option.section, option.key, old_value, new_value));
    }
    changes.push_back(fmt::format("{}.{} {} -> {}", option.section, option.key, old_value, new_value));
  }
  if (before.policy != now.policy)
    changes.push_back(fmt::format("policy \"{}\" -> \"{}\"", before.policy.line(), now.policy.line()));
  if (changes.empty()) return std::nullopt;
  std::string text = fmt::format("step {}: ", state.step);
  for (std::size_t i = 0; i < changes.size(); ++i) text += (i == 0 ? "" : "; ") + changes[i];
  return text;
}

}  // namespace mantissa::train
