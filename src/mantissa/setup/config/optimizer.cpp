#include "mantissa/setup/config/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/frozen_formats.h"
#include "mantissa/engine/optim/common_settings.h"
#include "mantissa/precision/policy/glob.h"

namespace mantissa::config {
namespace {

using optim::find_setting;
using optim::Optimizer;
using optim::Setting;
using optim::SettingDef;

std::string text_of(const Setting& value) {
  Setting copy = value;
  return std::visit([](auto& v) { return toml_text(Slot(&v)); }, copy);
}

/// Returns for example "decay of the first and second moment (adamw, muon; lion [0.9, 0.99])": the
/// description, the optimizers that take the key, and the defaults that differ from the first.
std::string description(const SettingDef& first) {
  std::string same, others;
  for (const Optimizer* optimizer : optim::all_optimizers()) {
    const SettingDef* def = find_setting(*optimizer, first.key);
    if (def == nullptr) continue;
    if (def->fallback == first.fallback) {
      same += fmt::format("{}{}", same.empty() ? "" : ", ", optimizer->name);
    } else {
      others += fmt::format("; {} {}", optimizer->name, text_of(def->fallback));
    }
  }
  return fmt::format("{} ({}{})", first.doc, same, others);
}

Option option_of(const SettingDef& def, std::string doc) {
  const auto slot = [key = std::string(def.key), fallback = def.fallback](RunConfig& c) -> Slot {
    Setting& value = c.optimizer.settings.try_emplace(key, fallback).first->second;
    return std::visit([](auto& v) -> Slot { return &v; }, value);
  };
  return {"optimizer", def.key, slot, std::move(doc), {def.least, def.most, def.above, def.below}};
}

std::vector<std::string> keys_taken(const Optimizer& optimizer) {
  std::vector<std::string> keys = names_of(optimizer.settings, &SettingDef::key);
  std::ranges::move(names_of(optim::common_settings(), &SettingDef::key), std::back_inserter(keys));
  return keys;
}

// ---- groups

constexpr std::string_view kGroup = "group";

double group_number(const Entry& entry, std::string_view key, const toml::node& node) {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !std::isfinite(*value) || *value < 0)
    refuse(entry, fmt::format("{} must be a number of at least 0", key));
  return *value;
}

QuantFormat group_format(const Entry& entry, const toml::node& node) {
  if (const auto format = parse_frozen_format(node.value<std::string>().value_or(""))) return *format;
  const auto name = [](QuantFormat format) { return traits(format).name; };
  refuse(entry, fmt::format("quantize must be one of {}", list_of(names_of(kFrozenFormats, name))));
}

optim::Group read_group(const Entry& entry, const toml::table& table) {
  optim::Group group;
  group.origin = entry.where;
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (key == "match") {
      if (!node.is_string()) refuse(entry, "match must be a string, such as \"*.norm*\"");
      group.match = *node.value<std::string>();
    } else if (key == "lr_scale") {
      group.lr_scale = group_number(entry, key, node);
    } else if (key == "weight_decay") {
      group.weight_decay = group_number(entry, key, node);
    } else if (key == "freeze") {
      if (!node.is_boolean()) refuse(entry, "freeze must be true or false");
      group.freeze = *node.value<bool>();
    } else if (key == "quantize") {
      group.quantize = group_format(entry, node);
    } else {
      static const std::vector<std::string> kKeys = {"match", "lr_scale", "weight_decay", "freeze",
                                                     "quantize"};
      refuse(entry, fmt::format("unknown key {} of a group{} (keys: {})", in_quotes(key),
                                did_you_mean(key, kKeys), list_of(kKeys)));
    }
  }
  if (group.quantize && group.freeze != true)
    refuse(entry,
           fmt::format("the group {} has quantize, which is for frozen weights; it needs freeze = true",
                       in_quotes(group.match)));
  if (group.match.empty()) refuse(entry, "a group needs match = \"SCOPE\", such as \"*.norm*\"");
  try {
    precision::check_glob(group.match);
  } catch (const ConfigError& e) {
    refuse(entry, e.what());
  }
  return group;
}

std::vector<optim::Group> read_groups(const Entry& entry) {
  const toml::array* array = entry.value->as_array();
  if (array == nullptr) refuse(entry, "must be tables [[optimizer.group]], each with a match");
  std::vector<optim::Group> groups;
  for (const toml::node& node : *array) {
    const toml::table* table = node.as_table();
    if (table == nullptr) refuse(entry, "must be tables [[optimizer.group]], each with a match");
    groups.push_back(read_group(entry, *table));
  }
  return groups;
}

}  // namespace

std::vector<Option> optimizer_options() {
  std::vector<Option> all;
  for (const Optimizer* optimizer : optim::all_optimizers()) {
    for (const SettingDef& def : optimizer->settings) {
      if (std::ranges::find(all, def.key, &Option::key) == all.end())
        all.push_back(option_of(def, description(def)));
    }
  }
  for (const SettingDef& def : optim::common_settings()) all.push_back(option_of(def, std::string(def.doc)));
  return all;
}

bool takes(std::string_view name, std::string_view key) {
  const std::vector<Option> settings = optimizer_options();
  return std::ranges::find(settings, key, &Option::key) == settings.end() ||
         find_setting(optim::find_optimizer(name), key) != nullptr;
}

void settle_optimizer(RunConfig& config, const Entries& entries) {
  OptimizerSection& section = config.optimizer;
  const Optimizer& optimizer = optim::find_optimizer(section.name);
  for (const Entry& entry : entries.all) {
    if (entry.section != "optimizer" || takes(section.name, entry.key)) continue;
    refuse(entry, fmt::format("{} does not use this key (its keys: {})", section.name,
                              fmt::join(keys_taken(optimizer), ", ")));
  }
  optim::Settings settings = optim::defaults(optimizer);
  for (auto& [key, value] : settings) {
    if (entries.find("optimizer", key) != nullptr) value = section.settings.at(key);
  }
  section.settings = std::move(settings);
  if (optimizer.check != nullptr) {
    try {
      const bool constant = config.schedule.name == "constant" && entries.find("run", "stage") == nullptr;
      optimizer.check(optim::with_facts(section.settings, {.constant_rate = constant}));
    } catch (const ConfigError& e) {
      throw ConfigError("{}: {}", entries.where("optimizer", "name"), e.what());
    }
  }
  if (const Entry* entry = entries.find("optimizer", kGroup)) section.groups = read_groups(*entry);
}

std::string groups_text(const std::vector<optim::Group>& groups) {
  std::string text;
  for (const optim::Group& group : groups) {
    text += fmt::format("\n[[optimizer.group]]\nmatch = {}\n", toml_text(group.match));
    if (group.lr_scale) text += fmt::format("lr_scale = {}\n", toml_text(*group.lr_scale));
    if (group.weight_decay) text += fmt::format("weight_decay = {}\n", toml_text(*group.weight_decay));
    if (group.freeze) text += fmt::format("freeze = {}\n", *group.freeze);
    if (group.quantize)
      text += fmt::format("quantize = {}\n", toml_text(std::string(traits(*group.quantize).name)));
  }
  return text;
}

}  // namespace mantissa::config
