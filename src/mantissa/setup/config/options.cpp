#include "mantissa/setup/config/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/precision/policy/fields.h"

namespace mantissa::config {

std::string range_text(const Range& range, double value) {
  constexpr double kHuge = 1e12;
  const auto number = [](double v) {
    return v == std::floor(v) && std::abs(v) < 1e16 ? fmt::format("{:.0f}", v) : fmt::format("{}", v);
  };
  std::string text;
  if (std::isfinite(range.min)) {
    text += fmt::format("{} {}", range.above ? "greater than" : "at least", number(range.min));
  }
  if (std::isfinite(range.max) && (range.max < kHuge || value > range.min)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", range.below ? "below" : "at most",
                        number(range.max));
  }
  return text;
}

const Option* find_option(std::string_view section, std::string_view key) {
  for (const Option& option : option_table()) {
    if (option.section == section && option.key == key) return &option;
  }
  return nullptr;
}

std::span<const model::Field> model_fields() {
  static const std::vector<model::Field> table = [] {
    std::vector<model::Field> all(model::common_fields().begin(), model::common_fields().end());
    for (const model::Family* family : model::all_families()) {
      for (const model::Field& field : family->fields) {
        if (std::ranges::find(all, field.key, &model::Field::key) == all.end()) all.push_back(field);
      }
    }
    return all;
  }();
  return table;
}

const model::Field* find_model_field(std::string_view key) {
  const auto found = std::ranges::find(model_fields(), key, &model::Field::key);
  return found == model_fields().end() ? nullptr : &*found;
}

bool reads_field(const model::Family& family, std::string_view key) {
  return std::ranges::find(family.fields, key, &model::Field::key) != family.fields.end() ||
         std::ranges::find(model::common_fields(), key, &model::Field::key) != model::common_fields().end();
}

std::span<const std::string> section_names() {
  static const std::vector<std::string> names = {"run",
                                                 "model",
                                                 "data",
                                                 "train",
                                                 "adapter",
                                                 "dpo",
                                                 "kto",
                                                 "rl",
                                                 "batch",
                                                 "optimizer",
                                                 "schedule",
                                                 "precision",
                                                 "precision.loss_scale",
                                                 "checkpoint",
                                                 "log",
                                                 "distributed"};
  return names;
}

std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> keys;
  if (section == "precision") {
    keys = {"policy", "rules"};
    for (const std::string& field : precision::field_names()) keys.push_back(field);
  }
  for (const Option& option : option_table()) {
    if (option.section == section) keys.emplace_back(option.key);
  }
  if (section == "optimizer") keys.emplace_back("group");
  if (section == "run") keys.emplace_back("stage");
  if (section == "model") {
    for (const model::Field& field : model_fields()) keys.emplace_back(field.key);
  }
  return keys;
}

}  // namespace mantissa::config
