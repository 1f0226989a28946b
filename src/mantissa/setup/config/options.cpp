#include "mantissa/setup/config/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "mantissa/precision/policy/fields.h"
#include "mantissa/setup/config/optimizer.h"
#include "mantissa/setup/config/post_training.h"

namespace mantissa::config {
namespace {

constexpr double kMany = 9007199254740992;  // 2^53: every smaller whole number is exact in f64
constexpr double kLong =
    16777216;  // 2^24: bounds rows and tokens per row so that their product cannot overflow

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const optim::Optimizer* optimizer : optim::all_optimizers()) names.emplace_back(optimizer->name);
  return names;
}

std::vector<Option> fixed_table() {
  return {
      {"run", "name", [](RunConfig& c) -> Slot { return &c.run.name; },
       "name of the run; default: the name of the config file"},
      {"run", "out", [](RunConfig& c) -> Slot { return &c.run.out; },
       "run directory, relative to the current directory; default: runs/NAME"},
      {"run",
       "seed",
       [](RunConfig& c) -> Slot { return &c.run.seed; },
       "seed of the initial weights and of the data order",
       {.min = 0}},
      {"run",
       "steps",
       [](RunConfig& c) -> Slot { return &c.run.steps; },
       "number of optimizer steps",
       {.min = 1, .max = kMany}},
      {"run",
       "threads",
       [](RunConfig& c) -> Slot { return &c.run.threads; },
       "number of threads, 0: all cores; changes no bit",
       {.min = 0, .max = 1024}},
      {"run",
       "on_nonfinite",
       [](RunConfig& c) -> Slot { return &c.run.on_nonfinite; },
       "a step with an inf or NaN that no loss scale cures: stop the run, skip the step, or continue with it",
       {},
       {"stop", "skip", "continue"}},
      {"run", "skip_batches", [](RunConfig& c) -> Slot { return &c.run.skip_batches; },
       "steps whose batch is skipped, such as \"7,9-12\""},

      {"model",
       "path",
       [](RunConfig& c) -> Slot { return &c.model.path; },
       "Hugging Face directory or GGUF file with the config and weights of the model",
       {},
       {},
       {},
       true},
      {"model",
       "config",
       [](RunConfig& c) -> Slot { return &c.model.config; },
       "config.json of the model; weights are initialised from the seed",
       {},
       {},
       {},
       true},

      {"data",
       "source",
       [](RunConfig& c) -> Slot { return &c.data.source; },
       "\"kk\" (Knights-and-Knaves puzzles), or files and globs; \"kk\" among files requires data.weights",
       {},
       {"kk"},
       {},
       true},
      {"data",
       "format",
       [](RunConfig& c) -> Slot { return &c.data.format; },
       "file format: auto (by file name), text, jsonl or tokens",
       {},
       {"auto", "text", "jsonl", "tokens"},
       {"binidx"}},
      {"data",
       "id_type",
       [](RunConfig& c) -> Slot { return &c.data.id_type; },
       "type of the ids in token files without a header: auto (uint16 if model.vocab_size is below 65,536, "
       "else uint32), uint16 or uint32",
       {},
       {"auto", "uint16", "uint32"}},
      {"data",
       "tokenizer",
       [](RunConfig& c) -> Slot { return &c.data.tokenizer; },
       "\"byte\", \"model\" (the tokenizer next to the weights), or a tokenizer file",
       {},
       {"byte", "model"},
       {},
       true},
      {"data",
       "sequence_length",
       [](RunConfig& c) -> Slot { return &c.data.sequence_length; },
       "tokens per sequence; 0 under rl, its default: those of the longest prompt and its response",
       {.min = 0, .max = kLong}},
      {"data",
       "people_min",
       [](RunConfig& c) -> Slot { return &c.data.people_min; },
       "fewest people in a puzzle, if source is \"kk\"",
       {.min = 2, .max = 8}},
      {"data",
       "people_max",
       [](RunConfig& c) -> Slot { return &c.data.people_max; },
       "most people in a puzzle, if source is \"kk\"",
       {.min = 2, .max = 8}},
      {"data", "shuffle", [](RunConfig& c) -> Slot { return &c.data.shuffle; },
       "shuffle the sequences differently in every epoch"},
      {"data",
       "validation",
       [](RunConfig& c) -> Slot { return &c.data.validation; },
       "held-out share of the sequences (the last ones), or files",
       {.min = 0, .max = 1, .below = true},
       {},
       {},
       true},
      {"data", "packing", [](RunConfig& c) -> Slot { return &c.data.packing; },
       "pack several documents (or rows of sft) per row; attention and positions restart in each"},
      {"data",
       "weights",
       [](RunConfig& c) -> Slot { return &c.data.weights; },
       "shares of the rows, one number for each entry of source; without them the sources form one stream",
       {.min = 0, .above = true}},
      {"data",
       "separator",
       [](RunConfig& c) -> Slot { return &c.data.separator; },
       "id that ends a document in token files, for packing; -1: the one in the file's header",
       {.min = -1, .max = 2147483647}},

      {"data",
       "template",
       [](RunConfig& c) -> Slot { return &c.data.chat_template; },
       "chat template of conversations: auto (the tokenizer's own), a built-in one (chatml, llama3, qwen, "
       "mistral, gemma), a Jinja file, or none (prompt and completion as they are)",
       {},
       {"auto", "none", "chatml", "llama3", "qwen", "mistral", "gemma"},
       {},
       true},
      {"data",
       "train_on",
       [](RunConfig& c) -> Slot { return &c.data.train_on; },
       "messages that sft and dpo train: assistant (every answer), last (the last answer), or all (every "
       "token)",
       {},
       {"assistant", "last", "all"}},
      {"data",
       "truncate",
       [](RunConfig& c) -> Slot { return &c.data.truncate; },
       "conversations longer than a row: refuse (stop with an error), skip, or drop tokens from the left or "
       "right",
       {},
       {"refuse", "skip", "left", "right"}},
      {"data",
       "masked_rows",
       [](RunConfig& c) -> Slot { return &c.data.masked_rows; },
       "rows of sft or pairs with nothing to train: skip, or refuse (stop with an error)",
       {},
       {"skip", "refuse"}},
      {"data",
       "empty_answers",
       [](RunConfig& c) -> Slot { return &c.data.empty_answers; },
       "rows of sft or pairs with an empty answer: skip, train the end of the turn, or refuse (stop with an "
       "error)",
       {},
       {"skip", "train", "refuse"}},

      {"train",
       "objective",
       [](RunConfig& c) -> Slot { return &c.train.objective; },
       "training objective: pretrain (every token), sft (the answers of conversations), reward or dpo (pairs "
       "of answers), or rl (`mantissa rl`)",
       {},
       {"pretrain", "sft", "reward", "dpo", "rl"}},

      {"adapter",
       "kind",
       [](RunConfig& c) -> Slot { return &c.adapter.kind; },
       "what to train: none (all weights), or lora (low-rank adapters of linear layers, on frozen weights)",
       {},
       {"none", "lora"}},
      {"adapter",
       "rank",
       [](RunConfig& c) -> Slot { return &c.adapter.rank; },
       "rank of the adapters",
       {.min = 1, .max = kLong}},
      {"adapter",
       "alpha",
       [](RunConfig& c) -> Slot { return &c.adapter.alpha; },
       "adapters are multiplied by alpha / rank",
       {.min = 0, .above = true}},
      {"adapter", "target", [](RunConfig& c) -> Slot { return &c.adapter.target; },
       "scopes of the adapted linear layers, as in rules"},
      {"adapter", "rslora", [](RunConfig& c) -> Slot { return &c.adapter.rslora; },
       "multiply by alpha / √rank instead (rsLoRA)"},
      {"adapter", "dora", [](RunConfig& c) -> Slot { return &c.adapter.dora; },
       "train the magnitude of each row of the weights too (DoRA)"},
      {"adapter",
       "base",
       [](RunConfig& c) -> Slot { return &c.adapter.base; },
       "format of the frozen weights in memory: f32, bf16, f16, or params (that of the policy); int8, nf4 or "
       "nf4-double for those of linear layers (QLoRA)",
       {},
       {"params", "f32", "bf16", "f16", "int8", "nf4", "nf4-double"}},
      {"adapter",
       "path",
       [](RunConfig& c) -> Slot { return &c.adapter.path; },
       "directory of an adapter of peft to continue from, with its rank, alpha, layers, rslora and dora",
       {},
       {},
       {},
       true},

      {"batch",
       "global_batch_size",
       [](RunConfig& c) -> Slot { return &c.batch.global_batch_size; },
       "sequences per optimizer step",
       {.min = 1, .max = kLong}},
      {"batch",
       "micro_batch_size",
       [](RunConfig& c) -> Slot { return &c.batch.micro_batch_size; },
       "sequences per micro-batch; changes memory, but no bit; default: 8, or the largest smaller divisor of "
       "the batch",
       {.min = 1, .max = kLong}},
      {"batch",
       "leaf",
       [](RunConfig& c) -> Slot { return &c.batch.leaf; },
       "sequences per leaf, whose gradients are one term of the sum",
       {.min = 1, .max = kLong}},
      {"batch",
       "shards",
       [](RunConfig& c) -> Slot { return &c.batch.shards; },
       "gradient groups, added as data-parallel ranks would, in a fixed tree",
       {.min = 1, .max = kLong}},

      {"batch",
       "recompute",
       [](RunConfig& c) -> Slot { return &c.batch.recompute; },
       "activations to recompute in the backward pass instead of keeping them: none, attention or block; "
       "changes memory and time, but no bit",
       {},
       {"none", "attention", "block"}},
      {"batch",
       "chunk_tokens",
       [](RunConfig& c) -> Slot { return &c.batch.chunk_tokens; },
       "tokens at a time of layers that treat tokens separately, such as the feed-forward: a "
       "multiple of 256, or 0 for all at once; changes memory, but no bit",
       {.min = 0, .max = kLong}},

      {"optimizer",
       "name",
       [](RunConfig& c) -> Slot { return &c.optimizer.name; },
       "update rule",
       {},
       optimizer_names()},
      {"optimizer",
       "lr",
       [](RunConfig& c) -> Slot { return &c.optimizer.lr; },
       "peak learning rate",
       {.min = 0, .above = true}},
      {"optimizer",
       "max_grad_norm",
       [](RunConfig& c) -> Slot { return &c.optimizer.max_grad_norm; },
       "largest gradient norm, enforced by clipping; 0: no clipping",
       {.min = 0}},

      {"schedule",
       "name",
       [](RunConfig& c) -> Slot { return &c.schedule.name; },
       "decay of the learning rate after warm-up",
       {},
       {"cosine", "constant", "linear"}},
      {"schedule",
       "warmup_steps",
       [](RunConfig& c) -> Slot { return &c.schedule.warmup_steps; },
       "steps of linear warm-up; default: 20, or all steps of a shorter run",
       {.min = 0, .max = kMany}},
      {"schedule",
       "min_lr_ratio",
       [](RunConfig& c) -> Slot { return &c.schedule.min_lr_ratio; },
       "final learning rate as a share of the peak",
       {.min = 0, .max = 1}},

      {"precision",
       "deepspeed",
       [](RunConfig& c) -> Slot { return &c.deepspeed; },
       "DeepSpeed JSON file, as for --deepspeed",
       {},
       {},
       {},
       true},
      {"precision", "native_only", [](RunConfig& c) -> Slot { return &c.native_only; },
       "reject a run that needs a format without native support on the machine; changes no bit"},

      {"precision.loss_scale",
       "rule",
       [](RunConfig& c) -> Slot { return &c.loss_scale.rule; },
       "update rule of the scale: deepspeed, or torch (default window 2000)",
       {},
       {"deepspeed", "torch"}},
      {"precision.loss_scale",
       "loss_scale",
       [](RunConfig& c) -> Slot { return &c.loss_scale.loss_scale; },
       "0: dynamic; otherwise the constant scale",
       {.min = 0}},
      {"precision.loss_scale",
       "initial_scale_power",
       [](RunConfig& c) -> Slot { return &c.loss_scale.initial_scale_power; },
       "the initial scale is 2 to this power",
       {.min = 0, .max = 127}},
      {"precision.loss_scale",
       "loss_scale_window",
       [](RunConfig& c) -> Slot { return &c.loss_scale.loss_scale_window; },
       "clean steps before the scale doubles",
       {.min = 1, .max = kMany}},
      {"precision.loss_scale",
       "hysteresis",
       [](RunConfig& c) -> Slot { return &c.loss_scale.hysteresis; },
       "overflows before the scale halves",
       {.min = 1, .max = kMany}},
      {"precision.loss_scale", "consecutive_hysteresis",
       [](RunConfig& c) -> Slot { return &c.loss_scale.consecutive_hysteresis; },
       "a clean step resets the count of overflows"},
      {"precision.loss_scale",
       "min_loss_scale",
       [](RunConfig& c) -> Slot { return &c.loss_scale.min_loss_scale; },
       "smallest scale",
       {.min = 0, .above = true}},
      {"precision.loss_scale", "raise_error_at_min_scale",
       [](RunConfig& c) -> Slot { return &c.loss_scale.raise_error_at_min_scale; },
       "stop when the scale would fall below its minimum"},
      {"precision.loss_scale",
       "forward_overflow_patience",
       [](RunConfig& c) -> Slot { return &c.loss_scale.forward_overflow_patience; },
       "stop at this many steps in a row that overflow in the forward pass; 0: never",
       {.min = 0, .max = kMany}},

      {"checkpoint",
       "interval",
       [](RunConfig& c) -> Slot { return &c.checkpoint.interval; },
       "steps between saved states; 0: only at the end",
       {.min = 0, .max = kMany}},
      {"checkpoint",
       "keep",
       [](RunConfig& c) -> Slot { return &c.checkpoint.keep; },
       "number of states to keep",
       {.min = 1, .max = kMany}},

      {"log",
       "interval",
       [](RunConfig& c) -> Slot { return &c.log.interval; },
       "steps between lines of metrics.jsonl and TensorBoard",
       {.min = 1, .max = kMany}},
      {"log", "tensorboard", [](RunConfig& c) -> Slot { return &c.log.tensorboard; },
       "write TensorBoard events"},
      {"log",
       "health_interval",
       [](RunConfig& c) -> Slot { return &c.log.health_interval; },
       "steps between measurements of what roundings lose; 0: none",
       {.min = 0, .max = kMany}},
      {"log", "observe", [](RunConfig& c) -> Slot { return &c.log.observe; },
       "values whose statistics are logged: \"SCOPE; SCOPE: op=softmax pass=backward\""},
      {"log",
       "observe_interval",
       [](RunConfig& c) -> Slot { return &c.log.observe_interval; },
       "steps between these observations",
       {.min = 1, .max = kMany}},
  };
}

/// Inserts the optimizers' own settings between the common ones.
std::vector<Option> make_table() {
  std::vector<Option> table = fixed_table();
  const auto after = std::ranges::find_if(
      table, [](const Option& o) { return o.section == "optimizer" && o.key == "max_grad_norm"; });
  std::vector<Option> settings = optimizer_options();
  table.insert(after, std::make_move_iterator(settings.begin()), std::make_move_iterator(settings.end()));
  std::ranges::move(post_training_options(), std::back_inserter(table));
  return table;
}

}  // namespace

std::span<const Option> option_table() {
  static const std::vector<Option> table = make_table();
  return table;
}

std::string range_text(const Range& range, double value) {
  constexpr double kHuge = 1e12;
  const auto number = [](double v) {
    return v == std::floor(v) && std::abs(v) < 1e16 ? fmt::format("{:.0f}", v) : fmt::format("{}", v);
  };
  std::string text;
  if (std::isfinite(range.min)) {
    text += fmt::format("{} {}", range.above ? "greater than" : "at least", number(range.min));
  }
  if (std::isfinite(range.max) && (range.max < kHuge || value > range.min)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", range.below ? "below" : "at most",
                        number(range.max));
  }
  return text;
}

const Option* find_option(std::string_view section, std::string_view key) {
  for (const Option& option : option_table()) {
    if (option.section == section && option.key == key) return &option;
  }
  return nullptr;
}

std::span<const model::Field> model_fields() {
  static const std::vector<model::Field> table = [] {
    std::vector<model::Field> all(model::common_fields().begin(), model::common_fields().end());
    for (const model::Family* family : model::all_families()) {
      for (const model::Field& field : family->fields) {
        if (std::ranges::find(all, field.key, &model::Field::key) == all.end()) all.push_back(field);
      }
    }
    return all;
  }();
  return table;
}

const model::Field* find_model_field(std::string_view key) {
  const auto found = std::ranges::find(model_fields(), key, &model::Field::key);
  return found == model_fields().end() ? nullptr : &*found;
}

bool reads_field(const model::Family& family, std::string_view key) {
  return std::ranges::find(family.fields, key, &model::Field::key) != family.fields.end() ||
         std::ranges::find(model::common_fields(), key, &model::Field::key) != model::common_fields().end();
}

std::span<const std::string> section_names() {
  static const std::vector<std::string> names = {
      "run",        "model", "data",      "train",    "adapter",   "dpo",
      "rl",         "batch", "optimizer", "schedule", "precision", "precision.loss_scale",
      "checkpoint", "log"};
  return names;
}

std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> keys;
  if (section == "precision") {
    keys = {"policy", "rules"};
    for (const std::string& field : precision::field_names()) keys.push_back(field);
  }
  for (const Option& option : option_table()) {
    if (option.section == section) keys.emplace_back(option.key);
  }
  if (section == "optimizer") keys.emplace_back("group");
  if (section == "run") keys.emplace_back("stage");
  if (section == "model") {
    for (const model::Field& field : model_fields()) keys.emplace_back(field.key);
  }
  return keys;
}

}  // namespace mantissa::config
