#include "mantissa/config/options.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "mantissa/config/optimizer.h"
#include "mantissa/precision/fields.h"

namespace mantissa::config {
namespace {

constexpr double kMany = 9007199254740992;  // 2^53: whole numbers stay exact in f64
constexpr double kLong =
    16777216;  // 2^24: rows and tokens per row, so that their product is far from overflow

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const optim::Optimizer* optimizer : optim::all_optimizers()) names.emplace_back(optimizer->name);
  return names;
}

std::vector<Option> fixed_table() {
  return {
      {"run", "name", [](RunConfig& c) -> Slot { return &c.run.name; },
       "name of the run; the config file's by default"},
      {"run", "out", [](RunConfig& c) -> Slot { return &c.run.out; },
       "run directory, relative to the current directory; runs/NAME by default"},
      {"run",
       "seed",
       [](RunConfig& c) -> Slot { return &c.run.seed; },
       "seed of the initial weights and of the order of the data",
       {.min = 0}},
      {"run",
       "steps",
       [](RunConfig& c) -> Slot { return &c.run.steps; },
       "optimizer steps to train",
       {.min = 1, .max = kMany}},
      {"run",
       "threads",
       [](RunConfig& c) -> Slot { return &c.run.threads; },
       "threads, 0: all cores; changes no bit",
       {.min = 0, .max = 1024}},

      {"model",
       "path",
       [](RunConfig& c) -> Slot { return &c.model.path; },
       "a Hugging Face directory: shape and weights from there",
       {},
       {},
       {},
       true},
      {"model",
       "config",
       [](RunConfig& c) -> Slot { return &c.model.config; },
       "a config.json: shape from there, weights initialised from the seed",
       {},
       {},
       {},
       true},

      {"data",
       "source",
       [](RunConfig& c) -> Slot { return &c.data.source; },
       "\"kk\" (Knights-and-Knaves puzzles), or files and globs",
       {},
       {"kk"},
       {},
       true},
      {"data",
       "format",
       [](RunConfig& c) -> Slot { return &c.data.format; },
       "format of the files: auto (by their names), text, jsonl or tokens",
       {},
       {"auto", "text", "jsonl", "tokens"},
       {"binidx"}},
      {"data",
       "tokenizer",
       [](RunConfig& c) -> Slot { return &c.data.tokenizer; },
       "\"byte\", \"model\" (the one beside the weights), or a tokenizer file",
       {},
       {"byte", "model"},
       {},
       true},
      {"data",
       "sequence_length",
       [](RunConfig& c) -> Slot { return &c.data.sequence_length; },
       "tokens of a sequence",
       {.min = 1, .max = kLong}},
      {"data",
       "people_min",
       [](RunConfig& c) -> Slot { return &c.data.people_min; },
       "people of a puzzle at least, where source is \"kk\"",
       {.min = 2, .max = 8}},
      {"data",
       "people_max",
       [](RunConfig& c) -> Slot { return &c.data.people_max; },
       "people of a puzzle at most, where source is \"kk\"",
       {.min = 2, .max = 8}},
      {"data", "shuffle", [](RunConfig& c) -> Slot { return &c.data.shuffle; },
       "take the sequences in a new order in every epoch"},
      {"data",
       "validation",
       [](RunConfig& c) -> Slot { return &c.data.validation; },
       "share of the sequences to hold out (the last ones), or files",
       {.min = 0, .max = 1, .below = true},
       {},
       {},
       true},

      {"train",
       "objective",
       [](RunConfig& c) -> Slot { return &c.train.objective; },
       "what is trained",
       {},
       {"pretrain"},
       {"sft", "reward", "dpo"}},

      {"batch",
       "global_batch_size",
       [](RunConfig& c) -> Slot { return &c.batch.global_batch_size; },
       "sequences of an optimizer step",
       {.min = 1, .max = kLong}},
      {"batch",
       "micro_batch_size",
       [](RunConfig& c) -> Slot { return &c.batch.micro_batch_size; },
       "sequences at once; changes memory, no bit; by default 8 or the largest below that divides",
       {.min = 1, .max = kLong}},
      {"batch",
       "leaf",
       [](RunConfig& c) -> Slot { return &c.batch.leaf; },
       "sequences whose gradients are summed as one before they are added",
       {.min = 1, .max = kLong}},
      {"batch",
       "shards",
       [](RunConfig& c) -> Slot { return &c.batch.shards; },
       "parts of the batch that ranks may own; their sums add by a fixed tree",
       {.min = 1, .max = kLong}},

      {"batch",
       "recompute",
       [](RunConfig& c) -> Slot { return &c.batch.recompute; },
       "activations made again in the backward pass instead of kept: none, attention or block; changes "
       "memory and "
       "time, no bit",
       {},
       {"none", "attention", "block"}},

      {"optimizer",
       "name",
       [](RunConfig& c) -> Slot { return &c.optimizer.name; },
       "rule of the update",
       {},
       optimizer_names()},
      {"optimizer",
       "lr",
       [](RunConfig& c) -> Slot { return &c.optimizer.lr; },
       "learning rate at its highest",
       {.min = 0, .above = true}},
      {"optimizer",
       "max_grad_norm",
       [](RunConfig& c) -> Slot { return &c.optimizer.max_grad_norm; },
       "gradients are clipped to this norm; 0: never",
       {.min = 0}},

      {"schedule",
       "name",
       [](RunConfig& c) -> Slot { return &c.schedule.name; },
       "course of the learning rate after warm-up",
       {},
       {"cosine", "constant", "linear"}},
      {"schedule",
       "warmup_steps",
       [](RunConfig& c) -> Slot { return &c.schedule.warmup_steps; },
       "steps over which the learning rate rises; by default 20, or all steps of a shorter run",
       {.min = 0, .max = kMany}},
      {"schedule",
       "min_lr_ratio",
       [](RunConfig& c) -> Slot { return &c.schedule.min_lr_ratio; },
       "the last learning rate as a share of the highest",
       {.min = 0, .max = 1}},

      {"precision",
       "deepspeed",
       [](RunConfig& c) -> Slot { return &c.deepspeed; },
       "a DeepSpeed JSON, read as --deepspeed reads it",
       {},
       {},
       {},
       true},
      {"precision", "native_only", [](RunConfig& c) -> Slot { return &c.native_only; },
       "refuse a run that needs a format that the machine does not compute in itself; changes no bit"},

      {"precision.loss_scale",
       "rule",
       [](RunConfig& c) -> Slot { return &c.loss_scale.rule; },
       "how the scale moves: deepspeed, or torch (its window is 2000 unless said)",
       {},
       {"deepspeed", "torch"}},
      {"precision.loss_scale",
       "loss_scale",
       [](RunConfig& c) -> Slot { return &c.loss_scale.loss_scale; },
       "0: dynamic; else the constant scale",
       {.min = 0}},
      {"precision.loss_scale",
       "initial_scale_power",
       [](RunConfig& c) -> Slot { return &c.loss_scale.initial_scale_power; },
       "the first scale is 2 to this power",
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
       "a clean step forgives earlier overflows"},
      {"precision.loss_scale",
       "min_loss_scale",
       [](RunConfig& c) -> Slot { return &c.loss_scale.min_loss_scale; },
       "the scale does not fall below this",
       {.min = 0, .above = true}},
      {"precision.loss_scale", "raise_error_at_min_scale",
       [](RunConfig& c) -> Slot { return &c.loss_scale.raise_error_at_min_scale; },
       "stop where the scale would fall below its minimum"},

      {"checkpoint",
       "interval",
       [](RunConfig& c) -> Slot { return &c.checkpoint.interval; },
       "steps between states to resume from; 0: only at the end",
       {.min = 0, .max = kMany}},
      {"checkpoint",
       "keep",
       [](RunConfig& c) -> Slot { return &c.checkpoint.keep; },
       "states that are kept",
       {.min = 1, .max = kMany}},

      {"log",
       "interval",
       [](RunConfig& c) -> Slot { return &c.log.interval; },
       "steps between lines of metrics.jsonl and TensorBoard",
       {.min = 1, .max = kMany}},
      {"log", "tensorboard", [](RunConfig& c) -> Slot { return &c.log.tensorboard; },
       "write TensorBoard events"},
  };
}

/// The settings of optimizers stand between those that all have.
std::vector<Option> make_table() {
  std::vector<Option> table = fixed_table();
  const auto after = std::ranges::find_if(
      table, [](const Option& o) { return o.section == "optimizer" && o.key == "max_grad_norm"; });
  std::vector<Option> settings = optimizer_options();
  table.insert(after, std::make_move_iterator(settings.begin()), std::make_move_iterator(settings.end()));
  return table;
}

}  // namespace

std::span<const Option> option_table() {
  static const std::vector<Option> table = make_table();
  return table;
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
  static const std::vector<std::string> names = {"run",        "model",     "data",
                                                 "train",      "batch",     "optimizer",
                                                 "schedule",   "precision", "precision.loss_scale",
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
  if (section == "model") {
    for (const model::Field& field : model_fields()) keys.emplace_back(field.key);
  }
  return keys;
}

}  // namespace mantissa::config
