#include "mantissa/setup/config/key_help.h"

#include <fmt/format.h>

#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/unknown.h"

namespace mantissa::config {
namespace {

/// Returns the value of the key in a config of `steps` steps that gives nothing but what it needs, or null if
/// the objective has no such config.
std::optional<std::string> value_under(const std::string& objective, int steps, const Option& option) {
  const std::string text = fmt::format(
      "[run]\nsteps = {}\n[model]\nvocab_size = 256\nhidden_size = 64\nintermediate_size = 64\n"
      "num_hidden_layers = 1\nnum_attention_heads = 1\n[data]\nsource = \"rows.jsonl\"\n[train]\nobjective = "
      "\"{}\"\n{}",
      steps, objective, objective == "rl" ? "[rl]\nreward = \"exact\"\n" : "");
  try {
    RunConfig config = parse_config(text, "/config");
    return toml_text(option.slot(config));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Returns the defaults that an objective sets, without those that depend on the number of steps.
std::vector<std::pair<std::string, std::string>> defaults_of(const Option& option, const std::string& usual) {
  std::vector<std::pair<std::string, std::string>> all;
  // value_under() gives the reward itself, for rows with answers.
  const bool reward = option.section == "rl" && option.key == "reward";
  if (option.path || usual.empty() || option.section == "train" || reward) return all;
  for (const std::string& objective : find_option("train", "objective")->choices) {
    constexpr int kSteps = 1000;
    const std::optional<std::string> value = value_under(objective, kSteps, option);
    if (value && *value != usual && value == value_under(objective, 2 * kSteps, option))
      all.emplace_back(objective, *value);
  }
  return all;
}

std::string values_of(const Option& option) {
  if (!option.choices.empty()) {
    const std::string words = list_of(option.choices);
    return option.path ? fmt::format("{}, or a path", words) : words;
  }
  return range_text(option.range);
}

}  // namespace

KeyHelp help_of(const OptionInfo& key) {
  KeyHelp help{key, {}, {}, {}};
  for (const std::string_view name : foreign_spellings(fmt::format("{}.{}", key.section, key.key)))
    help.spellings.emplace_back(name);
  if (key.section == "precision") {
    if (const precision::Field* field = precision::find_field(key.key))
      help.values = list_of(precision::field_values(*field));
  }
  const Option* option = find_option(key.section, key.key);
  if (option == nullptr) return help;
  help.values = values_of(*option);
  help.defaults = defaults_of(*option, key.default_value);
  return help;
}

}  // namespace mantissa::config
