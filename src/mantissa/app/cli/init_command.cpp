// mantissa init
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::cli {
namespace {

namespace fs = std::filesystem;

std::string list_of_tasks() {
  const std::vector<api::ConfigTask> tasks = api::config_tasks();
  std::size_t width = 0;
  for (const api::ConfigTask& task : tasks) width = std::max(width, task.name.size());
  std::string text = "tasks:\n";
  for (const api::ConfigTask& task : tasks)
    text += fmt::format("  {:<{}}  {}\n", task.name, width, task.summary);
  return text + "\nmantissa init TASK writes TASK.toml, a config with comments.\n";
}

std::string told(std::string_view name, std::string_view text) {
  return fmt::format("{:<8}{}\n", name, text);
}

/// Returns what must be provided before the config runs, one line for each.
std::string needs_of(const api::ConfigTask& task, const std::string& model, const std::string& source) {
  std::string text;
  if (task.needs_model && model.empty()) {
    text += told("model", "replace MODEL in it by a Hugging Face directory or a GGUF file, or give --model");
  } else if (task.needs_model && !disk::exists(model)) {
    text +=
        told("model", fmt::format("{} does not exist yet: a Hugging Face directory or a GGUF file", model));
  }
  const std::string data = source.empty() ? task.source : source;
  const bool glob = data.find_first_of("*?[") != std::string::npos;
  if (data == "kk") {
    if (task.name != "rl") text += told("data", "generated puzzles; --data FILES for your own text");
  } else if (source.empty() || (!glob && !disk::exists(data))) {
    text += told("data", task.row.empty() ? fmt::format("{}: files of text", data)
                                          : fmt::format("{}: rows such as {}", data, task.row));
  }
  return text;
}

int init(const Arguments& a) {
  if (a.given().empty()) {
    if (a.has("--out") || a.has("--model") || a.has("--data"))
      throw ConfigError("init: TASK is missing; mantissa init lists the tasks");
    if (a.has("--json")) {
      nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
      for (const api::ConfigTask& task : api::config_tasks())
        tasks.push_back({{"task", task.name}, {"summary", task.summary}, {"command", task.command}});
      fmt::print("{}\n", tasks.dump());
    } else {
      print_with_headings(list_of_tasks());
    }
    return 0;
  }
  const api::ConfigTask task = api::config_task(a.at(0));
  const std::string model = a.text("--model"), source = a.text("--data");
  if (!model.empty() && !task.needs_model)
    throw ConfigError(
        fmt::format("--model: {} begins with a new model; tasks that continue one: continue, "
                    "finetune, lora, dpo, reward, rl",
                    task.name));
  const fs::path out = a.has("--out") ? fs::path(a.text("--out")) : fs::path(task.name + ".toml");
  if (out.extension() != ".toml")
    throw ConfigError(fmt::format("--out {}: the name of a config ends in .toml", out.string()));
  api::write_new_config({task.name, out, model, source});

  const std::string explain = shell_words(std::vector<std::string>{a.program(), "explain", out.string()});
  const std::string run = shell_words(std::vector<std::string>{a.program(), task.command, out.string()});
  if (a.has("--json")) {
    fmt::print("{}\n", nlohmann::ordered_json{{"file", out.string()}, {"next", {explain, run}}}.dump());
  } else if (!a.has("--quiet")) {
    fmt::print("{}{}{}{}", told("wrote", out.string()), needs_of(task, model, source), told("next", explain),
               told("", run));
  }
  return 0;
}

}  // namespace

Commands init_commands() {
  return {{.name = "init",
           .summary = "write a config for a task, with comments, or list the tasks",
           .positionals = {{"[TASK]", "pretrain, continue, finetune, lora, dpo, reward, rl or long-context"}},
           .details = "Never replaces a file. Prints what to provide, and the next two commands.",
           .options = {{"--model", one, "MODEL", "the model to begin with: a directory or a GGUF file"},
                       {"--data", one, "FILES", "the data: a file, a glob, or kk for generated puzzles"},
                       {"--out", one, "FILE", "file to write; default: TASK.toml"}},
           .groups = {kResults},
           .run = init}};
}

}  // namespace mantissa::cli
