// The models of the rows of family_facts.h as configs.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model/family_facts.h"

namespace mantissa::testing {

inline constexpr std::int64_t kTinyVocabulary = 29;

/// Returns the row of a family. Throws for a family without a row.
inline const FamilyFacts& facts_of(std::string_view model_type) {
  for (const FamilyFacts& row : family_facts()) {
    if (row.model_type == model_type) return row;
  }
  throw std::logic_error("the family \"" + std::string(model_type) +
                         "\" has no row in tests/engine/model/family_facts.h");
}

inline nlohmann::json with_fields(nlohmann::json config, const nlohmann::json& more) {
  config.update(more);
  return config;
}

/// Returns the config of a small model with only the fields that the family requires.
inline nlohmann::json smallest_config(const FamilyFacts& family) {
  return with_fields({{"model_type", family.model_type}, {"vocab_size", 40}},
                     nlohmann::json::parse(family.required));
}

struct TinyFamily {
  std::string name;
  nlohmann::json config;
};

/// Returns the tiny models of a family, and of all families.
inline std::vector<TinyFamily> tiny_models(const FamilyFacts& family) {
  std::vector<TinyFamily> all;
  const nlohmann::json shape =
      with_fields({{"model_type", family.model_type}, {"vocab_size", kTinyVocabulary}},
                  nlohmann::json::parse(family.tiny_shape));
  for (const TinyModel& tiny : family.tiny)
    all.push_back({tiny.name, with_fields(shape, nlohmann::json::parse(tiny.fields))});
  return all;
}

inline std::vector<TinyFamily> tiny_families() {
  std::vector<TinyFamily> all;
  for (const FamilyFacts& family : family_facts()) {
    for (TinyFamily& tiny : tiny_models(family)) all.push_back(std::move(tiny));
  }
  return all;
}

}  // namespace mantissa::testing
