#include "mantissa/cli/table.h"

#include <algorithm>
#include <array>

namespace mantissa::cli {
namespace {

// Commands that have a policy, that run on hardware, and that print results.
constexpr std::string_view kPolicy = "train, generate, eval, trace, explain, convert";
constexpr std::string_view kHardware = "train, generate, eval, trace, explain, inspect, convert, doctor";
constexpr std::string_view kResults =
    "train, generate, eval, trace, explain, inspect, convert, loss-scale, data kk, doctor";

const std::vector<Option>& option_rows() {
  using enum Takes;
  static const std::vector<Option> rows = {
      // train
      {"--out", one, "DIR", "", "run directory; run.out of the config by default", "train"},
      {"--resume", maybe, "STEP", "", "go on from the newest state, or from that of a step", "train"},
      {"--overwrite", nothing, "", "", "start anew in a directory that holds a state", "train"},
      {"--dry-run", nothing, "", "", "print the plan and stop", "train"},
      // generate
      {"--prompt", each, "TEXT", "", "text to go on from; may be repeated", "generate"},
      {"--prompt-file", each, "FILE", "", "a file with it, read byte for byte; may be repeated", "generate"},
      {"--prompt-ids", list, "IDS", "", "token ids instead: 1,2,3", "generate"},
      {"--max-new-tokens", one, "N", "128", "tokens to generate at most", "generate"},
      {"--temperature", one, "T", "0", "0 takes the most likely token", "generate"},
      {"--top-k", one, "K", "0", "draw from the K most likely tokens; 0: from all", "generate"},
      {"--top-p", one, "P", "1", "draw from the fewest tokens that hold this probability", "generate"},
      {"--samples", one, "N", "1", "continuations of each prompt", "generate"},
      {"--streams", one, "N", "16", "sequences decoded at once at most; changes no bit", "generate"},
      {"--seed", one, "S", "1", "seed of the draws", "generate"},
      // eval
      {"--data", list, "FILES", "", "files and globs, or kk for held-out puzzles", "eval, convert"},
      {"--format", one, "auto|text|jsonl|tokens", "auto", "format of the data files", "eval"},
      {"--puzzles", one, "N", "20", "held-out puzzles to answer, where the data are puzzles", "eval"},
      // trace
      {"--tokens", one, "FILE", "", "safetensors with input_ids [B, T], and labels where wanted", "trace"},
      {"--out", one, "FILE", "", "safetensors file to write", "trace"},
      {"--grads", nothing, "", "", "gradients of all weights too", "trace"},
      {"--values", one, "GLOB", "", "values of the plan too, by name", "trace"},
      {"--unconverted", each, "NAME", "",
       "tensors that keep the format they were rounded to; may be repeated", "trace"},
      // convert
      {"--dtype", one, "FORMAT", "",
       "f64, f32, tf32, bf16, f16, e4m3, e5m2, mxfp8, mxfp8-e5m2, mxfp4 or nvfp4; as it is by default",
       "convert"},
      {"--format", one, "hf", "hf", "layout of the output", "convert"},
      {"--rounding", one, "nearest|stochastic|toward-zero", "nearest", "how values are rounded", "convert"},
      {"--saturate", nothing, "", "", "values beyond the range become the largest of the format", "convert"},
      {"--allow-overflow", nothing, "", "", "no warning where values become inf or nan", "convert"},
      {"--overwrite", nothing, "", "", "replace the file or model at OUT", "convert"},
      {"--seed", one, "S", "1", "seed of stochastic rounding", "convert"},
      {"--data-format", one, "auto|text|jsonl|tokens", "auto", "format of the data files", "convert"},
      {"--sequence-length", one, "T", "256", "tokens of a row of the data", "eval, convert"},
      // loss-scale
      {"--overflows", one, "BITS", "", "a 1 for every step that overflows: 0110", "loss-scale"},
      {"--from", one, "FILE", "", "a run's metrics.jsonl instead", "loss-scale"},
      {"--torch", nothing, "", "", "PyTorch's rule: no hysteresis, no minimum, window 2000", "loss-scale"},
      {"--initial-scale-power", one, "P", "16", "the first scale is 2 to this power", "loss-scale"},
      {"--window", one, "W", "1000", "clean steps before the scale doubles", "loss-scale"},
      {"--hysteresis", one, "H", "2", "overflows before the scale halves", "loss-scale"},
      {"--consecutive-hysteresis", nothing, "", "", "a clean step forgives earlier overflows", "loss-scale"},
      {"--min-scale", one, "M", "1", "the scale does not fall below this", "loss-scale"},
      {"--no-raise-error-at-min-scale", nothing, "", "", "stay at the minimum for ever", "loss-scale"},
      // data kk
      {"--count", one, "N", "10", "puzzles to print", "data kk"},
      {"--people-min", one, "N", "2", "people of a puzzle at least", "data kk"},
      {"--people-max", one, "N", "8", "people of a puzzle at most, up to 8", "data kk"},
      {"--split", one, "train|test", "train", "test is held out from every training set", "data kk"},
      {"--style", one, "short|logic-rl", "short", "how the text is written", "data kk"},
      {"--seed", one, "S", "1", "seed of the puzzles", "data kk"},
      {"--out", one, "FILE", "", "file to write; standard output by default", "data kk"},
      // precision
      {"--precision", one, "NAME|LINE", "", "policy: a preset (bf16-mixed), an alias, or a line of fields",
       kPolicy},
      {"--rule", list, "RULE", "",
       "'SCOPE: field=value …' for a part of the model; may be repeated, later ones win", kPolicy},
      {"--deepspeed", one, "FILE", "",
       "a DeepSpeed JSON: policy, loss scale, batch, clipping, optimizer, schedule", kPolicy},
      {"--deepspeed", one, "FILE", "", "a DeepSpeed JSON whose loss scaler is replayed", "loss-scale"},
      {"--set", list, "KEY=VALUE", "", "section.key=value of the config; may be repeated",
       "train, eval, explain"},
      {"--target", each, "HARDWARE", "",
       "another machine too: v100, a100, h100, tpu-v5e or FILE.toml; may be repeated", "train, explain"},
      // machine and output
      {"--threads", one, "N", "0", "threads, 0 for all cores; changes no bit", kHardware},
      {"--simd", one, "avx2|avx512|neon", "", "instruction set; changes no bit", kHardware},
      {"--device", one, "cpu", "cpu", "where to run", kHardware},
      {"--json", nothing, "", "", "JSON alone on standard output", kResults},
      {"--quiet", nothing, "", "", "print errors and results only", kResults},
      {"--help", nothing, "", "", "print this help", ""},
  };
  return rows;
}

const std::vector<Command>& command_rows() {
  static const std::vector<Command> rows = {
      {"train",
       "train as a config says, and leave a run directory",
       {{"CONFIG", "the run's config, a TOML file"}},
       "A run directory that holds a state is never written over unasked. Ctrl-C ends the run after its "
       "state is "
       "saved; the same command with --resume goes on, to the same bytes."},
      {"generate",
       "text from a model, with the log-probability of each token",
       {{"MODEL", "a Hugging Face directory, or a run"}},
       "Give exactly one of --prompt, --prompt-file and --prompt-ids."},
      {"eval",
       "loss, perplexity, bits per byte, and the share of puzzles answered",
       {{"MODEL|CONFIG", "a model directory, a run, or a run's config (.toml)"}},
       "A config, and a run without --data, are measured over the held-out rows of the config's data; a "
       "model over "
       "--data."},
      {"trace",
       "one forward (and backward) pass, written out for comparison",
       {{"MODEL", "a Hugging Face directory, or a run"}}},
      {"explain",
       "the precision plan, memory and time before anything runs",
       {{"CONFIG|MODEL", "a run's config (.toml), a model directory, or a run"}},
       "A config is explained as training; a model as generation, and with --deepspeed as training."},
      {"inspect",
       "tensors of a checkpoint: ranges, origin, what a cast would lose",
       {{"PATH", "a safetensors file, a model directory, a state, or a run"}}},
      {"convert",
       "rewrite a checkpoint in another format, and show what that did to it",
       {{"IN", "a safetensors file, a model directory, a state, or a run"},
        {"OUT", "the file or directory to write"}}},
      {"loss-scale",
       "replay overflows: the loss scale after every step",
       {},
       "Give one of --overflows and --from."},
      {"data kk", "Knights-and-Knaves puzzles as JSONL", {}},
      {"doctor", "what this machine can do, what each format costs, which preset to take", {}},
      {"help", "help on a command, or the list of commands", {{"[COMMAND]", "the command"}}},
      {"version", "print the version", {}},
      {"completion",
       "print a shell's completion script",
       {{"bash|zsh|fish", "the shell"}},
       "bash: eval \"$(mantissa completion bash)\" in ~/.bashrc; zsh: the same in ~/.zshrc after compinit; "
       "fish: "
       "mantissa completion fish | source."},
      {"manual", "print the manual page (roff)", {}, "mantissa manual | man -l - shows it."},
  };
  return rows;
}

}  // namespace

std::span<const Option> options() {
  return option_rows();
}
std::span<const Command> commands() {
  return command_rows();
}

const Option* find_option(std::string_view name) {
  const auto found = std::ranges::find(option_rows(), name, &Option::name);
  return found == option_rows().end() ? nullptr : &*found;
}

const Option* find_option(const Command& command, std::string_view name) {
  const auto found = std::ranges::find_if(option_rows(), [&](const Option& option) {
    return option.name == name && has_option(command, option);
  });
  return found == option_rows().end() ? nullptr : &*found;
}

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(command_rows(), name, &Command::name);
  return found == command_rows().end() ? nullptr : &*found;
}

bool has_option(const Command& command, const Option& option) {
  if (option.commands.empty()) return true;
  for (std::size_t at = 0; at < option.commands.size();) {
    const std::size_t end = std::min(option.commands.find(", ", at), option.commands.size());
    if (option.commands.substr(at, end - at) == command.name) return true;
    at = end + 2;
  }
  return false;
}

std::vector<const Option*> options_of(const Command& command) {
  std::vector<const Option*> all;
  for (const Option& option : option_rows()) {
    if (has_option(command, option)) all.push_back(&option);
  }
  return all;
}

std::string written(const Option& option) {
  const std::string name(option.name), argument(option.argument);
  if (option.takes == Takes::nothing) return name;
  return option.takes == Takes::maybe ? name + "[=" + argument + "]" : name + " " + argument;
}

}  // namespace mantissa::cli
