// Configs to begin with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::api {

struct ConfigTask {
  std::string name;          // "lora"
  std::string summary;       // "train an adapter (LoRA) of a model on conversations"
  std::string command;       // "train" or "rl"
  std::string needs;         // what its files of data are: "rows such as {…}", "files of text"
  std::string source;        // data.source without NewConfig::source
  bool needs_model = false;  // model.path names a model
};
/// Returns the tasks with a config.
std::vector<ConfigTask> config_tasks();
/// Returns one. Throws ConfigError for an unknown name.
ConfigTask config_task(const std::string& name);

/// Returns why the task cannot use files of data, by the first row of each: "a.txt: not JSON or CSV; lora
/// needs rows such as {…}". Returns "" if it can, or if `source` is "kk".
std::string data_fault(const ConfigTask& task, const std::string& source);

struct NewConfig {
  std::string task;
  std::filesystem::path file;  // to write; an existing one stays
  std::string model;           // a directory or GGUF file; empty: MODEL, for the reader to replace
  std::string source;          // files, globs, or "kk"; empty: the task's
};
/// Writes a config with comments, whose run is named after its file. `model` and `source` are relative to the
/// current directory, the paths in the file to its own. Throws FileError if the file exists
/// with other contents.
void write_new_config(const NewConfig& options);

}  // namespace mantissa::api
