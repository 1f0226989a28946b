#include "mantissa/app/cli/key_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/help.h"
#include "mantissa/app/cli/table.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::size_t kWidth = 80;

/// A task and its keys. A key belongs to the task that names it, or else to that of its section.
struct Task {
  std::string_view title;
  std::vector<std::string_view> keys;  // keys and sections
  bool shows_defaults = true;
};

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"start a run",
       {"run.name", "run.out", "run.seed", "run.steps", "run.epochs", "run.earlier_steps", "run.threads",
        "run.stage", "model.path", "model.config", "data.source", "data.fields", "data.tokenizer",
        "data.sequence_length", "train.objective", "adapter.path"}},
      {"read and mix data", {"data"}},
      {"fine-tune on conversations",
       {"data.template", "data.train_on", "data.truncate", "data.masked_rows", "data.empty_answers"}},
      {"train an adapter", {"adapter"}},
      {"learn from pairs of answers, or from answers with a label", {"dpo", "kto"}, false},
      {"learn from rewards (mantissa rl)", {"rl"}, false},
      {"optimize", {"optimizer", "schedule", "train"}},
      {"choose batches, and fit them into memory", {"batch"}},
      {"choose the precision, and change fields of the policy", {"precision", "precision.loss_scale"}, false},
      {"save, measure and stop", {"checkpoint", "log", "run.on_nonfinite", "run.skip_batches"}},
      {"train on several processes (mpirun, srun)", {"distributed"}},
      {"define a new model", {"model"}},
  };
  return all;
}

bool names(const Task& task, std::string_view word) {
  return std::ranges::find(task.keys, word) != task.keys.end();
}

const Task& task_of(const api::ConfigKeyHelp& key) {
  for (const Task& task : tasks()) {
    if (names(task, key.name())) return task;
  }
  return *std::ranges::find_if(tasks(), [&](const Task& task) { return names(task, key.section); });
}

std::string with_default(const api::ConfigKeyHelp& key) {
  return key.default_value.empty() ? key.name() : fmt::format("{} = {}", key.name(), key.default_value);
}

/// Returns a line of help on one key.
std::string fact(std::string_view name, std::string_view text) {
  constexpr std::size_t kLeft = 12;
  return wrapped(fmt::format("{:<{}}{}", name, kLeft, text), kLeft, kWidth) + "\n";
}

/// Returns the commands that take the key, by their --set.
std::vector<std::string> takers_of(const api::ConfigKeyHelp& key) {
  std::vector<std::string> found;
  for (const std::string& name : commands_with("--set")) {
    const bool of_rl = key.section == "rl", of_dpo = key.section == "dpo", of_kto = key.section == "kto";
    if (name == "objective" && !of_rl && !of_dpo) continue;
    if ((name == "train" && of_rl) || (name == "rl" && (of_dpo || of_kto))) continue;
    found.push_back(name);
  }
  return found;
}

std::string text_of(const api::ConfigKeyHelp& key) {
  std::string text =
      fmt::format("{}\n\n{}\n\n", with_default(key), wrapped(sentence(key.description), 0, kWidth));
  text += fact("type", key.type);
  if (!key.values.empty()) text += fact("values", key.values);
  std::string defaults = key.default_value.empty() ? "none" : key.default_value;
  for (const auto& [objective, value] : key.defaults)
    defaults += fmt::format("; {} under {}", value, objective);
  if (!key.default_value.empty() || !key.defaults.empty()) text += fact("default", defaults);
  text += fact("commands", list_of(takers_of(key)));
  text += fact("set it", fmt::format("[{}] of the config, or --set {}=…", key.section, key.name()));
  if (!key.spellings.empty()) text += fact("elsewhere", fmt::format("{}", fmt::join(key.spellings, ", ")));
  return text;
}

}  // namespace

std::string keys_by_task() {
  const std::vector<api::ConfigKeyHelp> keys = api::config_keys();
  std::string text = "\nconfig keys by task (mantissa help KEY, '[SECTION]' or keys describes them):\n";
  for (const Task& task : tasks()) {
    std::string of_task;
    for (const api::ConfigKeyHelp& key : keys) {
      if (&task_of(key) != &task) continue;
      if (!of_task.empty()) of_task += ", ";
      // A key and its default stay on one line.
      std::string words = task.shows_defaults ? with_default(key) : key.name();
      std::ranges::replace(words, ' ', '\1');
      of_task += words;
    }
    std::string lines = wrapped("    " + of_task, 4, kWidth);
    std::ranges::replace(lines, '\1', ' ');
    text += fmt::format("\n  {}\n{}\n", task.title, lines);
  }
  return text;
}

std::string list_of_presets() {
  std::string text = "presets:\n";
  for (const api::Preset& p : api::presets())
    text += wrapped(fmt::format("  {:<16}{}", p.name, p.meaning), 18, kWidth) + "\n";
  return text + "\nmantissa help PRESET describes one.\n";
}

std::optional<std::string> help_on_preset(std::string_view word) {
  for (const api::Preset& p : api::presets()) {
    if (p.name != word && std::ranges::find(p.aliases, word) == p.aliases.end()) continue;
    std::string text = wrapped(fmt::format("{}: {}.", p.name, p.meaning), 0, kWidth) + "\n\n";
    text += fact("policy", p.line);
    if (!p.aliases.empty()) text += fact("aliases", list_of(p.aliases));
    text += fact("set it",
                 fmt::format("--precision {0}, or policy = \"{0}\" in [precision] of the config", p.name));
    text +=
        fact("change it", fmt::format("--precision '{} kv=f32', or --rule 'lm_head: compute=f32'", p.name));
    return text + fact("look at it", fmt::format("mantissa explain CONFIG --precision {}", p.name));
  }
  return std::nullopt;
}

std::optional<std::string> help_on_key(std::string_view word) {
  if (word == "keys") return api::config_help(kWidth);
  const std::vector<api::ConfigKeyHelp> keys = api::config_keys();
  const auto exact =
      std::ranges::find_if(keys, [&](const api::ConfigKeyHelp& key) { return key.name() == word; });
  if (exact != keys.end()) return text_of(api::config_key_help(word));
  std::string_view section = word;
  if (section.starts_with('[') && section.ends_with(']')) section = section.substr(1, section.size() - 2);
  if (std::string all = api::config_help(kWidth, section); !section.empty() && !all.empty())
    return section == "precision" ? all + "\n" + list_of_presets() : all;
  const api::ConfigKey known = api::find_config_key(word);
  if (known.name.empty() && known.about.empty()) return std::nullopt;
  if (known.name.empty()) return wrapped(known.about, 0, kWidth) + "\n";
  const std::string text = text_of(api::config_key_help(known.name));
  if (known.name.ends_with(fmt::format(".{}", word))) return text;
  if (!known.about.empty()) return wrapped(known.about, 0, kWidth) + "\n\n" + text;
  const std::string note = known.note.empty() ? "" : fmt::format(" ({})", known.note);
  return fmt::format("{} is {} here{}.\n\n", word, known.name, note) + text;
}

std::string section_hint(std::string_view command) {
  const std::string keys = api::config_help(kWidth, command);
  return keys.empty()
             ? ""
             : fmt::format("\nmantissa help '[{0}]' lists the keys of the section [{0}].\n", command);
}

}  // namespace mantissa::cli
