// What to say about a key that no config has.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/model/family.h"

namespace mantissa::config {

/// What a word is among the keys: "optimizer.lr" for "lr" and for other trainers' "learning_rate", with what
/// there is to know of it; no name where it is none.
struct KnownKey {
  std::string name, note;
};
KnownKey find_key(std::string_view word);

/// "there is no key run.learning_rate; write optimizer.lr": knows the spellings of other trainers, keys that
/// stand in the wrong section, and near spellings. `section` may be "" for keys before the first section.
std::string unknown_key(std::string_view section, std::string_view key);

/// The same for a section.
std::string unknown_section(std::string_view section);

/// "is not a field of a llama model; …": the field of this family with another name, or a near one.
std::string not_of_family(std::string_view key, const model::Family& family);

}  // namespace mantissa::config
