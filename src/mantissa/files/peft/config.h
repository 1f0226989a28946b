// adapter_config.json: the settings of an adapter in PEFT's layout.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::peft {

/// The settings that determine an adapter's result, given its tensors.
struct PeftConfig {
  double alpha = 8;                                                // lora_alpha, PEFT's default
  std::vector<std::pair<std::string, double>> alpha_pattern = {};  // globs over module names, in order
  bool rslora = false;
  bool dora = false;
  std::string base = {};                // base_model_name_or_path
  bool states = false;                  // peft_type kStates: initial states instead of LoRA
  bool scores = false;                  // task_type SEQ_CLS: the adapter of a reward model, with its head
  std::vector<std::string> notes = {};  // for the user

  /// Returns the alpha of a module: of the first pattern that matches its name or a dotted end of it.
  double alpha_of(std::string_view module) const;
};

/// The peft_type of adapters that are initial states of recurrences, which PEFT does not have.
inline constexpr const char* kStates = "RWKV_STATE";

/// Reads the JSON of adapter_config.json. `where` is the file's name in messages. Throws ConfigError for
/// values of the wrong type, and for settings that are not supported and change the result.
PeftConfig parse_config(const nlohmann::json& json, const std::filesystem::path& where);

/// Translates a regular expression of module names to a glob: names, ".", "\.", ".*" and groups "(a|b)".
/// Returns "" for any other expression.
std::string glob_of_regex(std::string_view regex);

}  // namespace mantissa::peft
