#include "mantissa/app/cli/table.h"

#include <algorithm>
#include <array>

namespace mantissa::cli {
namespace {

// Commands with a policy, those with only one, commands that use hardware options, and commands that print
// results.
constexpr std::string_view kPolicy = "train, rl, generate, chat, eval, trace, explain, audit, convert";
constexpr std::string_view kOnePolicy = "train, rl, generate, chat, trace, explain, audit, convert";
constexpr std::string_view kHardware =
    "train, rl, generate, chat, eval, trace, explain, audit, compare, inspect, diff, convert, merge, "
    "doctor";
constexpr std::string_view kResults =
    "train, rl, generate, chat, eval, trace, explain, audit, compare, inspect, diff, convert, merge, "
    "loss-scale, init, reward, objective, data kk, data inspect, data shard, tokenizer encode, tokenizer "
    "decode, tokenizer info, tokenizer train, doctor";

const std::vector<Option>& option_rows() {
  using enum Takes;
  static const std::vector<Option> rows = {
      // init
      {"--model", one, "MODEL", "", "the model to begin with: a directory or a GGUF file", "init"},
      {"--data", one, "FILES", "", "the data: a file, a glob, or kk for generated puzzles", "init"},
      {"--out", one, "FILE", "", "file to write; default: TASK.toml", "init"},
      // train
      {"--out", one, "DIR", "", "run directory; default: run.out of the config", "train, rl"},
      {"--resume", maybe, "STEP", "", "continue from the newest state, or from the state of a step",
       "train, rl"},
      {"--overwrite", nothing, "", "", "start from the beginning in a directory that contains a state",
       "train, rl"},
      {"--on-nonfinite", one, "stop|skip|continue", "", "as --set run.on_nonfinite=…", "train, rl"},
      {"--skip-batches", one, "STEPS", "", "as --set run.skip_batches=…: 7,9-12", "train, rl"},
      {"--dry-run", nothing, "", "", "print the plan without training", "train, rl"},
      // audit
      {"--steps", one, "N", "20", "steps from the beginning of the run; 3 for a model", "audit"},
      {"--out", one, "DIR", "", "directory of the report; default: the name of CONFIG or MODEL with -audit",
       "audit"},
      {"--from-step", one, "N|last-good", "last-good", "replay a run from a step, or from its newest state",
       "audit"},
      {"--no-cures", nothing, "", "", "do not replay the steps with each cure", "audit"},
      // compare
      {"--precision", each, "A,B,…", "",
       "policies, the first of which is the reference; default: the config's own; repeatable", "compare"},
      {"--vary", each, "KEY=A,B,…", "",
       "values of a key of the config; one run for each combination; repeatable", "compare"},
      {"--steps", one, "N", "", "steps from the beginning of each run; default: all of run.steps", "compare"},
      {"--seeds", one, "N", "3", "seeds with which every run is trained; 1 is fast, but gives no verdict",
       "compare"},
      {"--out", one, "DIR", "", "directory of the report; default: the name of CONFIG or RUN with -compare",
       "compare"},
      // generate
      {"--prompt", each, "TEXT", "", "text to continue; repeatable", "generate"},
      {"--prompt-file", each, "FILE", "", "file with a prompt, read byte for byte; repeatable", "generate"},
      {"--prompts", one, "FILE", "",
       "prompts, one per line: JSON lines with \"prompt\", or plain lines (.txt)", "generate"},
      {"--prompt-ids", each, "IDS", "", "token ids of a prompt: 1,2,3; repeatable", "generate"},
      {"--max-new-tokens", one, "N", "128", "largest number of new tokens", "generate"},
      {"--temperature", one, "T", "0", "0: the most likely token", "generate, chat"},
      {"--top-k", one, "K", "0", "draw from the K most likely tokens; 0: all", "generate, chat"},
      {"--top-p", one, "P", "1", "draw from the smallest set of tokens with this probability",
       "generate, chat"},
      {"--min-p", one, "P", "0", "draw from tokens with at least this share of the largest probability",
       "generate, chat"},
      {"--repetition-penalty", one, "R", "1",
       "divide the positive logits of earlier tokens by R, and multiply "
       "the negative ones",
       "generate, chat"},
      {"--stop", each, "TEXT", "", "end before this text; repeatable", "generate, chat"},
      {"--samples", one, "N", "1", "continuations of each prompt", "generate"},
      {"--best", one, "K", "", "print only the K most likely samples of each prompt", "generate"},
      {"--stream", nothing, "", "", "print the text while it is made", "generate"},
      {"--streams", one, "N", "16", "largest number of sequences decoded at once; changes no bit",
       "generate"},
      {"--seed", one, "S", "1", "seed of the draws", "generate, chat"},
      {"--adapter", one, "DIR", "", "add the adapter of a run or of peft to the model",
       "generate, chat, eval, trace"},
      {"--base", one, "FORMAT", "",
       "hold the weights of linear layers in int8, nf4 or nf4-double, all frozen weights in f32, bf16 or f16 "
       "(not merge), or in the policy's formats (params); default: what the adapter was trained on",
       "generate, chat, eval, trace, merge"},
      // chat
      {"--template", one, "NAME|FILE", "auto",
       "the model's own chat template, a built-in one (chatml, llama3, qwen, mistral, gemma), or a Jinja "
       "file",
       "chat"},
      {"--system", one, "TEXT", "", "system message", "chat"},
      {"--show-prompt", nothing, "", "", "print the rendered prompt before each answer, to standard error",
       "chat"},
      {"--max-new-tokens", one, "N", "512", "largest number of tokens of an answer", "chat"},
      // eval
      {"--data", list, "FILES", "", "files and globs, or kk for held-out puzzles", "eval, convert, audit"},
      {"--format", one, "auto|text|jsonl|tokens", "auto", "format of the data files", "eval, audit"},
      {"--id-type", one, "auto|uint16|uint32", "auto",
       "type of the ids in token files without a header; auto: uint16 if the vocabulary is below 65,536",
       "eval, data inspect"},
      {"--last-word", one, "FILE", "",
       "passages whose last word is predicted, as in LAMBADA: JSON lines with \"text\", or plain lines "
       "(.txt)",
       "eval"},
      {"--template", one, "NAME|FILE", "",
       "chat template of conversations, of which only the answers count: auto, none, a built-in one, or a "
       "Jinja file",
       "eval"},
      {"--multiple-choice", one, "FILE", "",
       "questions: JSON lines with \"query\", \"choices\" and \"gold\", scored as in lm-evaluation-harness",
       "eval"},
      {"--limit", one, "N", "", "only the first N passages and questions", "eval"},
      {"--window", one, "W", "", "perplexity by a sliding window of W tokens, instead of rows", "eval"},
      {"--stride", one, "S", "", "tokens between the beginnings of windows; default: half a window", "eval"},
      {"--documents", nothing, "", "",
       "each document alone, in parts of W tokens, as lm-evaluation-harness measures texts", "eval"},
      {"--precision", each, "A,B,…", "", "one or several policies; changes are from the first; repeatable",
       "eval"},
      {"--needle", nothing, "", "", "whether the model finds a number in a long text, by length and depth",
       "eval"},
      {"--lengths", one, "L,L,…", "256,512,1024", "tokens of the prompts of --needle", "eval"},
      {"--depths", one, "D,D,…", "0,0.25,0.5,0.75,1", "shares of the text before the number", "eval"},
      {"--trials", one, "N", "4", "prompts for each length and depth", "eval"},
      {"--haystack", one, "FILE", "", "the long text; default: a short one, repeated", "eval"},
      {"--page", one, "FILE", "", "write the heat map of --needle as HTML", "eval"},
      {"--puzzles", one, "N", "20",
       "puzzles to answer: held-out ones (kk), or rows of Logic-RL in the files, if N is given", "eval"},
      {"--people-min", one, "N", "", "fewest people in these puzzles, for a model; default: 2 for kk",
       "eval"},
      {"--people-max", one, "N", "", "most people in these puzzles, for a model; default: 3 for kk", "eval"},
      {"--max-new-tokens", one, "N", "768", "largest number of tokens of an answer to a puzzle", "eval"},
      // trace
      {"--tokens", one, "FILE", "", "safetensors file with input_ids [B, T] and optional labels", "trace"},
      {"--out", one, "FILE", "", "safetensors file to write", "trace"},
      {"--overwrite", nothing, "", "", "replace an existing file that is not a trace", "trace"},
      {"--grads", nothing, "", "", "also write the gradients of all weights", "trace"},
      {"--values", one, "GLOB", "", "also write these values of the plan", "trace"},
      {"--unconverted", each, "NAME", "", "keep these tensors in the format they were rounded to; repeatable",
       "trace"},
      // diff
      {"--bitwise", nothing, "", "", "compare bytes instead of values, and print one line", "diff"},
      {"--limit", one, "N", "6", "largest number of tensors in the text", "diff"},
      // convert
      {"--dtype", one, "FORMAT", "",
       "f64, f32, tf32, bf16, f16, e4m3, e5m2, mxfp8, mxfp8-e5m2, mxfp4 or nvfp4, or q8_0 for a GGUF file; "
       "default: tensors keep their formats",
       "convert"},
      {"--format", one, "hf|pth|gguf", "",
       "layout of the output: safetensors, PyTorch, or one GGUF file; default: gguf or pth if OUT ends in "
       ".gguf, .pth, .pt or .bin, else hf",
       "convert"},
      {"--rounding", one, "nearest|stochastic|toward-zero", "nearest", "rounding of the values", "convert"},
      {"--saturate", nothing, "", "", "values beyond the range become the largest of the format", "convert"},
      {"--allow-overflow", nothing, "", "", "no warning for values that become inf or NaN", "convert"},
      {"--overwrite", nothing, "", "", "replace an existing file or model at OUT", "convert"},
      {"--seed", one, "S", "1", "seed of stochastic rounding", "convert"},
      {"--data-format", one, "auto|text|jsonl|tokens", "auto", "format of the data files", "convert"},
      {"--sequence-length", one, "T", "256", "tokens per row of the data", "convert"},
      {"--sequence-length", one, "T", "",
       "tokens per row of the data; default: 256, and for conversations the model's positions", "eval"},
      // merge
      {"--dtype", one, "FORMAT", "",
       "f64, f32, bf16, f16 or another plain format for all weights; default: those of MODEL", "merge"},
      {"--overwrite", nothing, "", "", "replace an existing model at OUT", "merge"},
      // loss-scale
      {"--overflows", one, "BITS", "", "a 1 for every step that overflows, else 0", "loss-scale"},
      {"--from", one, "FILE", "", "read the overflows from a run's metrics.jsonl", "loss-scale"},
      {"--torch", nothing, "", "", "PyTorch's rule: no hysteresis, no minimum, window 2000", "loss-scale"},
      {"--initial-scale-power", one, "P", "16", "the initial scale is 2 to this power", "loss-scale"},
      {"--window", one, "W", "1000", "clean steps before the scale doubles", "loss-scale"},
      {"--hysteresis", one, "H", "2", "overflows before the scale halves", "loss-scale"},
      {"--consecutive-hysteresis", nothing, "", "", "a clean step resets the count of overflows",
       "loss-scale"},
      {"--min-scale", one, "M", "1", "smallest scale", "loss-scale"},
      {"--no-raise-error-at-min-scale", nothing, "", "", "stay at the minimum instead of stopping",
       "loss-scale"},
      // objective
      {"--in", one, "FILE", "", "safetensors file with the input tensors", "objective"},
      {"--out", one, "FILE", "", "safetensors file to write", "objective"},
      {"--overwrite", nothing, "", "", "replace an existing file that is not a result of objective",
       "objective"},
      // reward
      {"--responses", one, "FILE", "", "JSON lines with \"response\" and the fields of the data row",
       "reward"},
      {"--timeout", one, "SECONDS", "600", "time that a program may take for 256 responses", "reward"},
      // data kk
      {"--count", one, "N", "10", "number of puzzles", "data kk"},
      {"--people-min", one, "N", "2", "fewest people in a puzzle", "data kk"},
      {"--people-max", one, "N", "8", "most people in a puzzle, up to 8", "data kk"},
      {"--split", one, "train|test", "train", "test is disjoint from every training set", "data kk"},
      {"--style", one, "short|logic-rl", "short", "style of the text", "data kk"},
      {"--seed", one, "S", "1", "seed of the puzzles", "data kk"},
      {"--out", one, "FILE", "", "file to write; default: standard output", "data kk"},
      {"--overwrite", nothing, "", "", "replace an existing file", "data kk"},
      // data inspect, data shard
      {"--tokenizer", one, "TOKENIZER", "", "byte, a tokenizer file, or a directory or GGUF file with one",
       "data inspect, data shard"},
      {"--format", one, "auto|text|jsonl|tokens", "auto", "format of the files", "data inspect"},
      {"--format", one, "auto|text|jsonl", "auto", "format of the files", "data shard"},
      {"--sequence-length", one, "T", "256", "tokens per row", "data inspect"},
      {"--packing", nothing, "", "", "rows of several documents", "data inspect"},
      {"--vocab-size", one, "N", "", "entries of the model; default: those of the tokenizer", "data inspect"},
      {"--samples", one, "N", "3", "rows whose beginning is printed", "data inspect"},
      {"--out", one, "DIR", "", "directory to write", "data shard"},
      {"--shard-tokens", one, "N", "100000000", "largest number of ids in a shard", "data shard"},
      {"--overwrite", nothing, "", "", "replace a directory of shards", "data shard"},
      // tokenizer
      {"--text-file", one, "FILE", "", "file with the text; default: standard input", "tokenizer encode"},
      {"--ids-file", one, "FILE", "",
       "the ids: JSON of tokenizer encode, a JSON array, or numbers; default: standard input",
       "tokenizer decode"},
      {"--vocab-size", one, "N", "32000", "largest number of entries", "tokenizer train"},
      {"--out", one, "DIR", "", "directory for tokenizer.json", "tokenizer train"},
      {"--overwrite", nothing, "", "", "replace the tokenizer in the directory", "tokenizer train"},
      // precision
      {"--precision", one, "NAME|LINE", "", "policy: a preset (bf16-mixed), an alias, or a line of fields",
       kOnePolicy},
      {"--rule", list, "RULE", "",
       "'SCOPE: field=value …' for a part of the model; repeatable, later rules win", kPolicy},
      {"--rule", list, "RULE", "", "'SCOPE: field=value …' for a part of the model, in all runs; repeatable",
       "compare"},
      {"--deepspeed", one, "FILE", "",
       "DeepSpeed JSON: policy, loss scale, batch, clipping, optimizer, schedule", kPolicy},
      {"--deepspeed", one, "FILE", "", "DeepSpeed JSON, as in train, for all runs", "compare"},
      {"--deepspeed", one, "FILE", "", "DeepSpeed JSON with the loss scaler to replay", "loss-scale"},
      {"--set", list, "KEY=VALUE", "", "set a key of the config to a value; repeatable",
       "train, rl, eval, explain, audit, compare, data inspect"},
      {"--set", list, "KEY=VALUE", "", "set a key of [rl], or of [dpo] for dpo; repeatable", "objective"},
      {"--target", each, "HARDWARE", "",
       "also explain another machine: v100, a100, h100, tpu-v5e or FILE.toml; repeatable",
       "train, rl, explain"},
      // machine and output
      {"--threads", one, "N", "0", "number of threads, 0 for all cores; changes no bit", kHardware},
      {"--threads", one, "N", "0", "number of threads, 0 for all cores; changes no bit",
       "tokenizer train, data shard"},
      {"--simd", one, "avx2|avx512|avx512_bf16|amx|amx-model|neon", "", "instruction set; changes no bit",
       kHardware},
      {"--device", one, "cpu", "cpu", "device", kHardware},
      {"--json", nothing, "", "", "print only JSON on standard output", kResults},
      {"--quiet", nothing, "", "", "print only errors and results", kResults},
      {"--color", one, "auto|always|never", "auto", "colours; auto: on a terminal, unless NO_COLOR is set",
       ""},
      {"--help", nothing, "", "", "print this help", ""},
  };
  return rows;
}

const std::vector<Command>& command_rows() {
  static const std::vector<Command> rows = {
      {"init",
       "write a config for a task, with comments, or list the tasks",
       {{"[TASK]", "pretrain, continue, finetune, lora, dpo, reward, rl or long-context"}},
       "Never replaces a file. Prints what to provide, and the next two commands."},
      {"train",
       "train by a config, and write a run directory",
       {{"CONFIG", "the run's config, a TOML file"}},
       "A run directory that contains a state is overwritten only with --overwrite. Ctrl-C ends the run "
       "after writing its state; the same command with --resume continues it and ends with the same bytes."},
      {"rl",
       "train by reinforcement learning: sample responses, reward them by a rule, and optimize the policy",
       {{"CONFIG", "the run's config, a TOML file with [rl]"}},
       "Like train, with samples.jsonl in the run directory: the responses of every rollout and their "
       "rewards."},
      {"generate",
       "generate text, with the log-probability of each token",
       {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}},
       "Give exactly one of --prompt, --prompt-file, --prompts and --prompt-ids."},
      {"chat",
       "talk to a model by its chat template",
       {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}},
       "Each line of standard input is a message. /reset begins again, /system TEXT sets the system message, "
       "/save FILE writes the messages as JSON; Ctrl-C stops an answer, Ctrl-D ends."},
      {"eval",
       "measure loss, bits per byte, last words and puzzles, under one or several policies",
       {{"MODEL|CONFIG", "a model directory, a GGUF file, a run, or a run's config (.toml)"}},
       "A config, and a run without --data and --last-word, are measured over the held-out rows of the "
       "config's data, a model over --data, the passages of --last-word and the questions of "
       "--multiple-choice. Several policies give one table, with the changes from the first and their "
       "standard errors."},
      {"trace",
       "write the tensors of one forward (and backward) pass, for comparison",
       {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}}},
      {"explain",
       "print the precision plan, memory and time without running",
       {{"CONFIG|MODEL", "a run's config (.toml), a model directory, a GGUF file, or a run"}},
       "A config is explained as training; a model as generation or, with --deepspeed, as training."},
      {"audit",
       "run a few steps under observation, and report what the precision did",
       {{"CONFIG|RUN|MODEL", "a run's config (.toml), a run directory, a model directory, or a GGUF file"}},
       "A model is trained for a few steps at a low learning rate, by default under 16-mixed. Writes "
       "report.html, a page to read, and audit.json into --out. Trains nothing that is kept."},
      {"compare",
       "run policies or settings side by side with the same seeds, and report loss, speed and memory",
       {{"CONFIG|RUN", "a run's config (.toml), or a run directory, the reference"},
        {"[RUN…]", "more run directories"}},
       "A config is trained with each seed for each policy and setting; nothing of this is "
       "kept. Runs are compared from their directories. Writes report.html, compare.json and compare.csv "
       "into --out."},
      {"inspect",
       "describe a checkpoint: ranges, origin, outliers, and the loss of a cast to each format",
       {{"PATH", "a safetensors, PyTorch or GGUF file, a model directory, a state, or a run"}}},
      {"diff",
       "find the first step, op or tensor that differs between two runs, checkpoints or traces",
       {{"A", "a run, a state, a model directory, a safetensors or PyTorch file, or a trace"},
        {"B", "another one of the same kind as A"}},
       "Exit code 0: equal; 1: different; 2: A or B cannot be read, or they cannot be compared."},
      {"convert",
       "rewrite a checkpoint in another format, and report the errors",
       {{"IN", "a safetensors, PyTorch or GGUF file, a model directory, a state, or a run"},
        {"OUT", "the file or directory to write"}}},
      {"merge",
       "add an adapter into its base, and report what rounding lost",
       {{"MODEL", "the base, a model directory"},
        {"ADAPTER", "a directory of peft, or a run with an adapter"},
        {"OUT", "the directory to write"}}},
      {"loss-scale",
       "replay overflows, and print the loss scale after every step",
       {},
       "Give exactly one of --overflows and --from."},
      {"objective",
       "compute a post-training objective and its gradients from saved tensors, for comparison",
       {{"ppo|grpo|dr-grpo|reinforce++|reinforce++-baseline|rloo|dpo|reward", "the objective"}},
       "Requires --in and --out. Tensors of [N, T]: log_probs, old_log_probs, ref_log_probs, mask, values, "
       "old_values, rewards (or [N]); groups [N]. dpo: rows 2i are chosen, rows 2i + 1 rejected. reward: "
       "scores [N] in such pairs, margin [N/2]."},
      {"reward",
       "score responses by a rule, and print one reward for each row",
       {{"RULE", "kk, exact, regex:PATTERN or program:COMMAND, as in rl.reward"}},
       "kk needs \"solution_text_format\", and the response contains \"Assistant:\" or the chat marker. "
       "exact and a {answer} in a pattern need \"answer\", \"completion\" or \"solution\". A program reads "
       "JSON lines and writes one with \"reward\" for each."},
      {"data kk", "write Knights-and-Knaves puzzles as JSONL", {}},
      {"data inspect",
       "describe data: documents, rows, masked tokens, vocabulary, samples",
       {{"CONFIG|FILE", "a run's config (.toml), or a file or glob of text, JSON lines or token ids"},
        {"[FILE…]", "more files"}},
       "A config is described by the rows of its [data]; files by rows of --sequence-length tokens."},
      {"data shard",
       "tokenize text files, and write token files for data larger than memory",
       {{"FILE", "a file or glob of text or JSON lines, also compressed (.gz, .zst)"},
        {"[FILE…]", "more files"}},
       "Requires --tokenizer and --out. The files are those of llm.c: a header of 256 int32, and uint16 or "
       "uint32 ids. The directory appears complete or not at all."},
      {"tokenizer encode",
       "print the token ids of a text",
       {{"TOKENIZER", "byte, a tokenizer file, or a model directory or GGUF file with one"}},
       "Special tokens in the text are recognised if the tokenizer is a tokenizer.json, and the ids that its "
       "post-processor adds are included. Nothing else is added."},
      {"tokenizer decode",
       "write the text of token ids to standard output, with special tokens",
       {{"TOKENIZER", "byte, a tokenizer file, or a model directory or GGUF file with one"}}},
      {"tokenizer info",
       "describe a tokenizer: entries, and tokens that begin and end a text",
       {{"TOKENIZER", "byte, a tokenizer file, or a model directory or GGUF file with one"}}},
      {"tokenizer train",
       "train byte-level BPE on text files, and write tokenizer.json",
       {{"FILE", "a text file"}, {"[FILE…]", "more text files"}},
       "The file is one of Hugging Face's library tokenizers, with the end token <|endoftext|>, and the "
       "merges are those of its trainer. The result depends only on the text and the number of entries."},
      {"doctor", "describe this machine, the cost of each format, and a suitable preset", {}},
      {"help",
       "print help on a command or a key of a config, or the list of commands",
       {{"[COMMAND|KEY]",
         "the command; or a key, such as optimizer.lr, a section, or keys for all of them"}}},
      {"version", "print the version", {}},
      {"completion",
       "print a completion script for a shell",
       {{"bash|zsh|fish", "the shell"}},
       "bash: eval \"$(mantissa completion bash)\" in ~/.bashrc; zsh: the same in ~/.zshrc after compinit; "
       "fish: mantissa completion fish | source."},
      {"manual", "print the manual page (roff)", {}, "To view it, run: mantissa manual | man -l -"},
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

const Command* first_of_group(std::string_view word) {
  const auto found = std::ranges::find_if(command_rows(), [&](const Command& command) {
    return command.name.size() > word.size() && command.name.starts_with(word) &&
           command.name[word.size()] == ' ';
  });
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
