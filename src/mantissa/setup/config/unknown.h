// Messages about unknown keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/model/family.h"

namespace mantissa::config {

/// A config key and a note on it: "optimizer.lr" for "lr" and for other trainers' "learning_rate". `name` is
/// empty if the word is not a known key.
struct KnownKey {
  std::string name, note;
};
KnownKey find_key(std::string_view word);

/// Returns every spelling of other trainers that find_key() knows, or only those of the key `canonical`.
std::vector<std::string_view> foreign_spellings(std::string_view canonical = "");

/// Returns for example "unknown key "run.learning_rate"; write optimizer.lr". Knows the spellings of other
/// trainers, keys in the wrong section, and near spellings. `section` may be "" for keys before the first
/// section.
std::string unknown_key(std::string_view section, std::string_view key);

/// Returns the same message for a section.
std::string unknown_section(std::string_view section);

/// Returns for example "is not a field of a llama model; …", with the family's name for the field or a near
/// spelling.
std::string not_of_family(std::string_view key, const model::Family& family);

}  // namespace mantissa::config
