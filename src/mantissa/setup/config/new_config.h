// Configs to begin with, one for each task, with comments.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace mantissa::config {

/// What a task reads from each file of its data.
enum class Rows { text, conversations, pairs, labelled, prompts };

struct ConfigTask {
  std::string_view name;     // "lora"
  std::string_view summary;  // "train an adapter (LoRA) of a model on conversations"
  std::string_view command;  // that runs the config: "train" or "rl"
  Rows rows;                 // of its files
  std::string_view needs;    // what these are, for messages: "rows such as {…}"
  std::string_view source;   // the default of NewConfig::source; "kk" needs no files
  bool has_model = false;    // it begins with a model's weights
  std::string_view text;     // of the config, without its first lines; new_config() fills it in
};

/// Returns all tasks.
std::span<const ConfigTask> config_tasks();
/// Returns the pieces that several texts share: the name that stands for one in ConfigTask::text, and its
/// text.
std::span<const std::pair<std::string_view, std::string_view>> config_pieces();
/// Returns the task of this name. Throws ConfigError with a suggestion for another name.
const ConfigTask& config_task(std::string_view name);

inline constexpr std::string_view kUnknownModel = "MODEL";

struct NewConfig {
  std::string name;           // of the run
  std::string model;          // a directory or GGUF file; empty: kUnknownModel
  std::string source;         // files, or "kk"; empty: the task's default
  std::string reward = "kk";  // the value of rl.reward
};

/// Returns a config for the task as TOML with comments.
std::string new_config(const ConfigTask& task, const NewConfig& options);

}  // namespace mantissa::config
