// How the rows of the table of keys are written (option_table.cpp, post_training_options.cpp).
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/setup/config/options.h"

namespace mantissa::config {

inline constexpr double kMany = 9007199254740992;  // 2^53: every smaller whole number is exact in f64
inline constexpr double kLong =
    16777216;  // 2^24: the product of a row's tokens and a batch's rows cannot overflow
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The values that a key accepts.
struct Valid {
  Range range = {};
  std::vector<std::string> choices = {};
  bool path = false;
};

inline Valid from(double min, double max = kInfinite) {
  return {.range = {.min = min, .max = max}};
}
inline Valid above(double min, double max = kInfinite) {
  return {.range = {.min = min, .max = max, .above = true}};
}
inline Valid words(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
/// A path, or one of `words`.
inline Valid path(std::vector<std::string> words = {}) {
  return {.choices = std::move(words), .path = true};
}

template <class Section>
struct Key {
  template <class Value>
  Key(std::string_view key, Value Section::*member, std::string description, Valid valid = {})
      : key(key),
        slot([member](Section& section) -> Slot { return &(section.*member); }),
        description(std::move(description)),
        valid(std::move(valid)) {}
  std::string_view key;
  std::function<Slot(Section&)> slot;
  std::string description;
  Valid valid;
};

/// Appends the keys of the section that `get` returns of a config.
template <class Section, class Get>
void add(std::vector<Option>& table, std::string_view section, Get get,
         std::initializer_list<Key<Section>> keys) {
  for (const Key<Section>& k : keys) {
    const auto slot = [get, of_section = k.slot](RunConfig& c) { return of_section(std::invoke(get, c)); };
    table.push_back({section, k.key, slot, k.description, k.valid.range, k.valid.choices, k.valid.path});
  }
}

}  // namespace mantissa::config
