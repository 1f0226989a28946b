// mantissa init
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/download.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/file.h"
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

/// Returns the lines on a download to do before the config runs.
std::string to_download(std::string_view name, const Download& download) {
  std::string text = told(name, fmt::format("{} does not exist yet; to download it:", download.path));
  text += told("", download.command);
  if (download.of_hub)
    text += told("", fmt::format("or, if its weights are in several files: hf download {0} --local-dir {0}",
                                 download.path));
  return text;
}

/// Returns what must be provided before the config runs, one line for each.
std::string needs_of(const api::ConfigTask& task, const Download& model, const Download& source) {
  std::string text;
  if (task.needs_model && model.path.empty()) {
    text += told("model", "replace MODEL in it by a Hugging Face directory or a GGUF file, or give --model");
  } else if (task.needs_model && !disk::exists(model.path)) {
    text += model.command.empty()
                ? told("model", fmt::format("{} does not exist yet: a Hugging Face directory or a GGUF file",
                                            model.path))
                : to_download("model", model);
  }
  const std::string data = source.path.empty() ? task.source : source.path;
  const bool glob = data.find_first_of("*?[") != std::string::npos;
  if (!source.command.empty() && !disk::exists(data)) return text + to_download("data", source);
  const bool missing = !glob && data != "kk" && !disk::exists(data);
  if (source.path.empty() || missing) {
    const std::string_view absent = missing ? " does not exist yet; expected" : "";
    if (data != "kk") text += told("data", fmt::format("{}{}: {}", data, absent, task.needs));
  } else if (const std::string fault = api::data_fault(task, data); !fault.empty()) {
    text += told("data", fault);
  }
  return text;
}

/// Returns the line on the time of the run, as explain tells it, or how to find out.
std::string time_of(const fs::path& config, bool complete, const std::string& explain) {
  if (complete) {
    try {
      const std::string plan = api::explain(api::Config::load(config)).text;
      for (const std::string_view begin : {"\ntime ", "\nfits "}) {
        const std::size_t at = plan.find(begin);
        if (at != std::string::npos) return plan.substr(at + 1, plan.find('\n', at + 1) - at);
      }
    } catch (const Error& e) {
      return told("note", e.what());
    }
  }
  return told("time", fmt::format("{} tells how long the run takes here", explain));
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
  const Download model = download_of_model(a.text("--model")), source = download_of_data(a.text("--data"));
  if (!model.path.empty() && !task.needs_model)
    throw ConfigError(
        fmt::format("--model: {} begins with a new model; tasks that continue one: continue, "
                    "finetune, lora, dpo, kto, reward, rl",
                    task.name));
  const fs::path out = a.has("--out") ? fs::path(a.text("--out")) : fs::path(task.name + ".toml");
  if (out.extension() != ".toml")
    throw ConfigError(fmt::format("--out {}: expected a name that ends in .toml. Fix: --out {}.toml",
                                  out.string(), out.string()));
  api::write_new_config({task.name, out, model.path, source.path});

  const std::string explain = shell_words(std::vector<std::string>{a.program(), "explain", out.string()});
  const std::string run = shell_words(std::vector<std::string>{a.program(), task.command, out.string()});
  if (a.has("--json")) {
    fmt::print("{}\n", nlohmann::ordered_json{{"file", out.string()}, {"next", {explain, run}}}.dump());
  } else if (!a.has("--quiet")) {
    const std::string needs = needs_of(task, model, source);
    constexpr std::uint64_t kQuick = 64U << 20;  // bytes of data that explain reads in about a second
    const bool quick = source.path.empty() || disk::guess_kind(source.path) != disk::Kind::file ||
                       disk::File::open_to_read(source.path).size() < kQuick;
    fmt::print("{}{}", told("wrote", printable(out.string())), needs);
    if (task.source == "kk" && source.path.empty())
      fmt::print("{}", told("data", fmt::format("generated puzzles; --data FILES for your own {}",
                                                task.name == "rl" ? "prompts" : "text")));
    fmt::print("{}{}{}", time_of(out, needs.empty() && quick, explain), told("next", explain), told("", run));
  }
  return 0;
}

}  // namespace

Commands init_commands() {
  return {
      {.name = "init",
       .summary = "write a config for a task, with comments, or list the tasks",
       .positionals = {{"[TASK]",
                        "pretrain, rwkv, continue, finetune, lora, dpo, kto, reward, rl or long-context"}},
       .details = "Never replaces a file. Prints what to provide, and the next two commands.",
       .options =
           {{"--model", one, "MODEL",
             "the model to begin with: a directory, a GGUF file, or one to download: ORG/NAME or https://…"},
            {"--data", one, "FILES", "the data: a file, a glob, https://…, or kk for generated puzzles"},
            {"--out", one, "FILE", "file to write; default: TASK.toml"}},
       .groups = {kResults},
       .run = init}};
}

}  // namespace mantissa::cli
