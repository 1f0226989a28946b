#include "mantissa/app/cli/unknown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::cli {
namespace {

/// Options of transformers, vLLM, llama.cpp, PyTorch's launchers and others.
struct Foreign {
  std::string_view names;   // with dashes, separated by spaces
  std::string_view option;  // with or without a value
  std::string_view note = {};
};

constexpr Foreign kForeign[] = {
    {"--max-tokens --max-gen-len --num-tokens --n-predict --predict -n", "--max-new-tokens"},
    {"--max-length", "--max-new-tokens", "the prompt is not counted"},
    {"--ctx-size --context-size --n-ctx --max-model-len -c", "--max-new-tokens",
     "the context contains the prompt and these tokens; its size is not configurable"},
    {"--temp", "--temperature"},
    {"--topk", "--top-k"},
    {"--topp", "--top-p"},
    {"--do-sample", "--temperature", "above 0 draws"},
    {"--greedy", "--temperature", "0 is greedy"},
    {"--num-return-sequences --num-samples --n --n-samples", "--samples"},
    {"--best-of", "--best"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"--stop-strings --stop-sequences", "--stop"},
    {"--batch-size --parallel --max-num-seqs", "--streams"},
    {"--batch-size", "--set batch.global_batch_size=N"},
    {"--text -p", "--prompt"},
    {"--input --file -f", "--prompt-file"},
    {"--input-ids", "--prompt-ids"},
    {"--random-seed -s", "--seed"},
    {"--dataset --data-path", "--data"},
    {"--seq-len --seq-length --max-seq-length --block-size", "--sequence-length"},
    {"--dtype --torch-dtype --policy --preset", "--precision"},
    {"--mixed-precision --bf16", "--precision bf16-mixed"},
    {"--fp16 --half", "--precision 16-mixed"},
    {"--tf32", "--precision tf32"},
    {"--deepspeed-config", "--deepspeed"},
    {"--num-threads --n-threads -t -j", "--threads"},
    {"--gpu --cuda --device-map", "--device"},
    {"--hardware", "--target"},
    {"--output --output-dir --out-dir --save-dir -o", "--out"},
    {"--resume-from-checkpoint --continue", "--resume"},
    {"--force --overwrite-output-dir", "--overwrite"},
    {"--to --outtype", "--dtype"},
    {"--loss-scale-window", "--window"},
    {"--min-loss-scale", "--min-scale"},
    {"--silent -q", "--quiet"},
};

/// Options that other programs use for the first argument.
constexpr std::array<std::string_view, 8> kSubjects = {"--model",     "--model-path", "--model-name-or-path",
                                                       "--config",    "--checkpoint", "-m",
                                                       "--ckpt-path", "--path"};
/// Those of init.
constexpr std::array<std::string_view, 3> kTasks = {"--task", "--preset", "--template"};

/// Shells without a completion script.
constexpr std::array<std::string_view, 9> kOtherShells = {"ksh",  "sh",         "dash",   "csh", "tcsh",
                                                          "pwsh", "powershell", "elvish", "nu"};

/// Options of commands that compute passes of a model.
constexpr std::array<std::string_view, 6> kOfPasses = {"--precision", "--rule", "--deepspeed",
                                                       "--threads",   "--simd", "--device"};

/// Commands that are planned.
constexpr std::array kLater = {"search"};
constexpr std::pair<std::string_view, std::string_view> kForeignCommands[] = {
    {"run", "train"},        {"fit", "train"},
    {"finetune", "train"},   {"pretrain", "train"},
    {"infer", "generate"},   {"complete", "generate"},
    {"evaluate", "eval"},    {"test", "eval"},
    {"new", "init"},         {"create", "init"},
    {"template", "init"},    {"config", "init"},
    {"plan", "explain"},     {"info", "inspect"},
    {"show", "inspect"},     {"cast", "convert"},
    {"quantize", "convert"}, {"export", "convert"},
    {"man", "manual"},       {"presets", "help presets"},
    {"keys", "help keys"},   {"completions", "completion"}};

std::string with_dashes(std::string_view option) {
  std::string text = lowered(option);
  const std::size_t name = text.find_first_not_of('-');
  std::replace(text.begin() + static_cast<std::ptrdiff_t>(std::min(name, text.size())), text.end(), '_', '-');
  return text;
}

/// Returns for example "--set optimizer.lr=1e-3" if the command takes config keys and the word is one, here
/// or in another trainer.
std::string as_key(const Command& command, std::string_view word, std::string_view value) {
  if (find_option(command, "--set") == nullptr) return {};
  const api::ConfigKey key =
      api::find_config_key(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  const bool used =
      command.name != "objective" || key.name.starts_with("rl.") || key.name.starts_with("dpo.");
  if (key.name.empty() || !used) return {};
  const char* with = command.name == "data inspect" ? "with a config, " : "";  // files have no keys
  if (!key.note.empty()) return fmt::format("{}write --set {}=… ({})", with, key.name, key.note);
  return fmt::format("{}write --set {}={}", with, key.name, value.empty() ? "…" : value);
}

/// Returns the option or, if the command takes config keys, the key whose name is nearest. Of several equally
/// near ones, one that the word begins is meant: --step is --set run.steps rather than --set.
std::string nearest_option(const Command& command, const std::string& word, std::string_view value) {
  std::string meant;
  std::size_t fewest = 0;
  bool begun = false;
  const auto offer = [&](const std::string& name, const std::string& text) {
    const std::size_t edits = edit_distance(word, name);
    const bool begins = name.starts_with(word),
               nearer = edits < fewest || (edits == fewest && begins && !begun);
    if (!nearest(word, std::span(&name, 1)) || (!meant.empty() && !nearer)) return;
    meant = text;
    fewest = edits;
    begun = begins;
  };
  for (const Option* known : options_of(command))
    offer(std::string(known->name), fmt::format("did you mean {}?", known->name));
  if (find_option(command, "--set") == nullptr || command.name == "objective") return meant;
  for (const api::ConfigKeyHelp& key : api::config_keys()) {
    offer(with_dashes("--" + std::string(key.key)),
          fmt::format("did you mean --set {}={}?", key.name(), value.empty() ? "…" : value));
  }
  return meant;
}

std::string meant_option(const Command& command, std::string_view option, std::string_view value) {
  const std::string word = with_dashes(option);
  if (word != option && find_option(command, word) != nullptr) return fmt::format("did you mean {}?", word);
  for (const Foreign& foreign : kForeign) {
    const std::vector<std::string_view> names = split_words(foreign.names, " ");
    const std::string_view taken = foreign.option.substr(0, foreign.option.find(' '));
    if (std::ranges::find(names, word) == names.end() || find_option(command, taken) == nullptr) continue;
    const std::string note = foreign.note.empty() ? "" : fmt::format(" ({})", foreign.note);
    return fmt::format("did you mean {}?{}", foreign.option, note);
  }
  const bool subject = std::ranges::find(kSubjects, word) != kSubjects.end() ||
                       (command.name == "init" && std::ranges::find(kTasks, word) != kTasks.end());
  if (subject && !command.positionals.empty()) {
    return fmt::format("give it as the first argument: mantissa {} {}", command.name,
                       value.empty() ? command.positionals.front().name : value);
  }
  if (command.name == "objective" && std::ranges::find(kOfPasses, word) != kOfPasses.end())
    return "it computes in f64 on one thread, under every policy and on every machine: remove it";
  if (std::string key = as_key(command, word, value); !key.empty()) return key;
  if (std::string near = nearest_option(command, word, value); !near.empty()) return near;
  std::vector<std::string> takers = commands_with(word), others;
  for (const Command& command : commands()) {
    if (find_option(command, word) == nullptr) others.emplace_back(command.name);
  }
  if (takers.empty()) return {};
  const bool most = others.size() < takers.size() / 2;
  return most ? fmt::format("all commands take it but {}", list_of(others))
              : fmt::format("it is an option of {}", list_of(takers));
}

}  // namespace

std::string command_is_missing(std::string_view option) {
  std::vector<std::string> names = {"--help", "--version"};
  for (const Command& command : commands()) {
    for (const Option* known : options_of(command)) names.emplace_back(known->name);
  }
  if (option == "-v")  // of other programs: the version, or more output
    return "-v: unknown option; did you mean --version? See mantissa help";
  const std::string name(option.substr(0, option.find('=')));
  if (std::ranges::find(names, name) != names.end())
    return fmt::format("{}: a command is missing; see mantissa help", option);
  const std::string meant = did_you_mean(name, names);
  return fmt::format("{}: unknown option{}{} mantissa help", option, meant, meant.empty() ? "; see" : " See");
}

std::string unknown_command(std::span<const std::string> words) {
  const std::string& word = words.front();
  if (word.empty()) return "expected a command, got an empty word; see mantissa help";
  std::vector<std::string> names, groups;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (command.name.starts_with(word + " ")) groups.emplace_back(command.name.substr(word.size() + 1));
  }
  if (!groups.empty()) {
    const std::string got = words.size() > 1 ? ", got " + in_quotes(words[1]) : "";
    const std::string meant = words.size() > 1 ? did_you_mean(words[1], groups) : "";
    return fmt::format("{0}: expected one of {1}{2}{3}{4} mantissa {0} --help", word, list_of(groups), got,
                       meant, meant.empty() ? "; see" : " See");
  }
  if (std::ranges::find(kLater, word) != kLater.end()) {
    return fmt::format("{}: unavailable in this version; its commands are {}", word, list_of(names));
  }
  std::optional<std::string> meant = nearest(word, names);
  for (const auto& [foreign, ours] : kForeignCommands) {
    if (foreign == word) meant = ours;
  }
  return fmt::format("{}: unknown command{} mantissa help", word,
                     meant ? fmt::format("; did you mean {}? See", *meant) : "; see");
}

std::string wrong_choice(std::string_view where, const std::string& word,
                         std::span<const std::string> choices) {
  const bool other_shell = std::ranges::find(kOtherShells, word) != kOtherShells.end();
  return fmt::format("{}: expected one of {}, got {}{}", where, list_of(choices), in_quotes(word),
                     other_shell ? "" : did_you_mean(word, choices));
}

std::string unexpected_argument(const Command& command, const std::string& word, bool too_many) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  std::string key;
  if (find_option(command, "--set") != nullptr) {
    const std::vector<api::ConfigKeyHelp> keys = api::config_keys();
    if (std::ranges::find(keys, name, &api::ConfigKeyHelp::name) != keys.end()) key = name;
    if (key.empty() && too_many && equals != std::string::npos) key = api::find_config_key(name).name;
  }
  if (!too_many && (key.empty() || equals == std::string::npos || disk::exists(word))) return {};
  const std::string value = equals == std::string::npos ? "…" : word.substr(equals + 1);
  return fmt::format("{}: unexpected argument {}{}", command.name, in_quotes(word),
                     key.empty() ? "" : fmt::format("; did you mean --set {}={}?", key, value));
}

std::string unknown_help(const std::string& word) {
  std::vector<std::string> names = {"keys", "presets"};
  for (const Command& command : commands())
    names.emplace_back(command.name.substr(0, command.name.find(' ')));
  for (const api::Preset& preset : api::presets()) names.push_back(preset.name);
  for (const api::ConfigKeyHelp& key : api::config_keys())
    names.insert(names.end(), {key.section, key.name()});
  const std::optional<std::string> near = nearest(word, names);
  return fmt::format("{}: unknown command, key or preset{} mantissa help", word,
                     near ? fmt::format("; did you mean {}? See", *near) : "; see");
}

std::string unknown_option(const Command& command, std::string_view option, std::string_view value) {
  const std::string meant = meant_option(command, option, value);
  return fmt::format("{}: {} does not take this option{}", option, command.name,
                     meant.empty() ? "" : "; " + meant);
}

}  // namespace mantissa::cli
