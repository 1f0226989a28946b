#include "mantissa/setup/config/unknown.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/aliases.h"
#include "mantissa/setup/config/options.h"

namespace mantissa::config {
namespace {

struct Foreign {
  std::string_view
      name;  // the name in another trainer: Hugging Face, DeepSpeed, Lightning, Lit-GPT, nanoGPT, Megatron
  std::string_view canonical;  // the name here
  std::string_view note{};
};

constexpr std::string_view kTokens = "steps = tokens / (global_batch_size × sequence_length)";
constexpr std::string_view kBegin = "RWKV-LM's epochs × 40320 / global_batch_size";
constexpr std::string_view kRecompute = "recompute = \"block\", or \"attention\"";
constexpr std::string_view kAccumulation = "accumulation steps = global_batch_size / micro_batch_size";
constexpr std::string_view kWithStates = "held-out data are measured with every state";
constexpr std::string_view kStrategy = "\"epoch\" is epochs = 1, \"steps\" is interval = STEPS";
constexpr std::string_view kMixed = "for instance policy = \"bf16-mixed\"";
constexpr std::string_view kBetas = "betas = [0.9, 0.95]";
constexpr std::string_view kDeepSpeed = "or give --deepspeed FILE";
constexpr std::string_view kClipping = "gradients are clipped to this norm";

constexpr Foreign kForeign[] = {
    {"max_steps", "run.steps"},
    {"train_steps", "run.steps"},
    {"total_steps", "run.steps"},
    {"num_steps", "run.steps"},
    {"max_iters", "run.steps"},
    {"train_iters", "run.steps"},
    {"num_train_epochs", "run.epochs"},
    {"epochs", "run.epochs"},
    {"max_epochs", "run.epochs"},
    {"epoch_begin", "run.earlier_steps", kBegin},
    {"max_tokens", "run.steps", kTokens},
    {"train_tokens", "run.steps", kTokens},
    {"output_dir", "run.out"},
    {"out_dir", "run.out"},
    {"save_dir", "run.out"},
    {"run_name", "run.name"},
    {"random_seed", "run.seed"},
    {"num_threads", "run.threads"},
    {"model_name_or_path", "model.path"},
    {"model_name", "model.path"},
    {"pretrained", "model.path"},
    {"checkpoint_dir", "model.path"},
    {"config_name", "model.config"},
    {"n_layer", "model.num_hidden_layers"},
    {"n_layers", "model.num_hidden_layers"},
    {"num_layers", "model.num_hidden_layers"},
    {"n_embd", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"dim", "model.hidden_size"},
    {"n_head", "model.num_attention_heads"},
    {"n_heads", "model.num_attention_heads"},
    {"num_heads", "model.num_attention_heads"},
    {"n_kv_heads", "model.num_key_value_heads"},
    {"n_query_groups", "model.num_key_value_heads"},
    {"num_kv_heads", "model.num_key_value_heads"},
    {"ffn_dim", "model.intermediate_size"},
    {"ffn_hidden_size", "model.intermediate_size"},
    {"norm_eps", "model.rms_norm_eps"},
    {"layer_norm_eps", "model.rms_norm_eps"},
    {"tie_embeddings", "model.tie_word_embeddings"},
    {"max_seq_length", "data.sequence_length"},
    {"max_seq_len", "data.sequence_length"},
    {"max_length", "data.sequence_length"},
    {"seq_length", "data.sequence_length"},
    {"seq_len", "data.sequence_length"},
    {"block_size", "data.sequence_length"},
    {"context_length", "data.sequence_length"},
    {"ctx_len", "data.sequence_length"},
    {"cutoff_len", "data.sequence_length"},
    {"train_file", "data.source"},
    {"train_files", "data.source"},
    {"data_path", "data.source"},
    {"data_dir", "data.source"},
    {"dataset", "data.source"},
    {"dataset_name", "data.source"},
    {"tokenizer_name", "data.tokenizer"},
    {"validation_split", "data.validation"},
    {"val_split_fraction", "data.validation"},
    {"validation_file", "data.validation"},
    {"batch_size", "batch.global_batch_size"},
    {"train_batch_size", "batch.global_batch_size"},
    {"per_device_train_batch_size", "batch.micro_batch_size"},
    {"train_micro_batch_size_per_gpu", "batch.micro_batch_size"},
    {"gradient_accumulation_steps", "batch.micro_batch_size", kAccumulation},
    {"accumulate_grad_batches", "batch.micro_batch_size", kAccumulation},
    {"gradient_checkpointing", "batch.recompute", kRecompute},
    {"activation_checkpointing", "batch.recompute", kRecompute},
    {"recompute_granularity", "batch.recompute", kRecompute},
    {"scan_mlp_chunk_size", "batch.chunk_tokens"},
    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"optim", "optimizer.name"},
    {"adam_beta1", "optimizer.betas", kBetas},
    {"adam_beta2", "optimizer.betas", kBetas},
    {"beta1", "optimizer.betas", kBetas},
    {"beta2", "optimizer.betas", kBetas},
    {"adam_epsilon", "optimizer.eps"},
    {"epsilon", "optimizer.eps"},
    {"gradient_clipping", "optimizer.max_grad_norm", kClipping},
    {"gradient_clip_val", "optimizer.max_grad_norm", kClipping},
    {"clip_grad_norm", "optimizer.max_grad_norm", kClipping},
    {"grad_clip", "optimizer.max_grad_norm", kClipping},
    {"lr_scheduler_type", "schedule.name"},
    {"lr_scheduler", "schedule.name"},
    {"lr_decay_style", "schedule.name"},
    {"lr_warmup_ratio", "schedule.warmup_ratio"},
    {"lr_warmup_fraction", "schedule.warmup_ratio"},
    {"warmup_steps_ratio", "schedule.warmup_ratio"},
    {"num_decay_steps", "schedule.decay_steps"},
    {"lr_wsd_decay_iters", "schedule.decay_steps"},
    {"lr_wsd_decay_style", "schedule.decay"},
    {"decay_type", "schedule.decay"},
    {"warmup_iters", "schedule.warmup_steps"},
    {"lr_warmup_steps", "schedule.warmup_steps"},
    {"min_lr", "schedule.min_lr_ratio", "min_lr_ratio = min_lr / lr"},
    {"dtype", "precision.policy", kMixed},
    {"torch_dtype", "precision.policy", kMixed},
    {"mixed_precision", "precision.policy", kMixed},
    {"bf16", "precision.policy", kMixed},
    {"fp16", "precision.policy", "for instance policy = \"compute=f16\""},
    {"tf32", "precision.policy", "for instance policy = \"compute=tf32\""},
    {"preset", "precision.policy", kMixed},
    {"deepspeed", "precision.deepspeed", kDeepSpeed},
    {"deepspeed_config", "precision.deepspeed", kDeepSpeed},
    {"precision", "precision.policy", kMixed},
    {"save_steps", "checkpoint.interval"},
    {"eval_steps", "checkpoint.interval", kWithStates},
    {"eval_interval", "checkpoint.interval", kWithStates},
    {"val_check_interval", "checkpoint.interval", kWithStates},
    {"eval_strategy", "checkpoint.epochs", kStrategy},
    {"evaluation_strategy", "checkpoint.epochs", kStrategy},
    {"save_strategy", "checkpoint.epochs", kStrategy},
    {"check_val_every_n_epoch", "checkpoint.epochs", kWithStates},
    {"save_interval", "checkpoint.interval"},
    {"save_every", "checkpoint.interval"},
    {"save_total_limit", "checkpoint.keep"},
    {"logging_steps", "log.interval"},
    {"log_interval", "log.interval"},
    {"log_every", "log.interval"},
};

const Foreign* find_foreign(std::string_view key) {
  const auto found = std::ranges::find(kForeign, key, &Foreign::name);
  return found == std::end(kForeign) ? nullptr : found;
}

/// Returns `key` with underscores, as config keys are written here.
std::string with_underscores(std::string_view key) {
  std::string text(key);
  std::ranges::replace(text, '-', '_');
  return text;
}

/// Returns the sections that have `key`.
std::vector<std::string> homes_of(std::string_view key) {
  std::vector<std::string> homes;
  for (const std::string& section : section_names()) {
    const std::vector<std::string> keys = keys_of(section);
    if (std::ranges::find(keys, key) != keys.end()) homes.push_back(section);
  }
  return homes;
}

std::string write(std::string_view canonical, std::string_view note = "") {
  return note.empty() ? fmt::format("; write {}", canonical)
                      : fmt::format("; write {} ({})", canonical, note);
}

/// Returns the fix for `key`: the name here for another trainer's spelling, its section, or a near spelling.
std::string cure(std::string_view section, std::string_view key) {
  const std::string lowered = with_underscores(key);
  if (const Foreign* foreign = find_foreign(lowered)) return write(foreign->canonical, foreign->note);
  const std::vector<std::string> homes = homes_of(lowered);
  if (!homes.empty()) {
    std::string places;
    for (const std::string& home : homes)
      places += fmt::format("{}{}.{}", places.empty() ? "" : " or ", home, lowered);
    return write(places);
  }
  const std::vector<std::string> keys = keys_of(section);
  std::string near = did_you_mean(lowered, keys);
  if (!near.empty()) return near;
  std::vector<std::string> all;
  for (const std::string& other : section_names()) {
    for (const std::string& k : keys_of(other)) all.push_back(k);
  }
  if (const std::optional<std::string> word = nearest(lowered, all)) {
    return fmt::format("; did you mean \"{}.{}\"?", homes_of(*word).front(), *word);
  }
  return "";
}

}  // namespace

std::vector<std::string_view> foreign_spellings(std::string_view canonical) {
  std::vector<std::string_view> names;
  for (const Foreign& foreign : kForeign) {
    if (canonical.empty() || foreign.canonical == canonical) names.push_back(foreign.name);
  }
  return names;
}

KnownKey find_key(std::string_view word) {
  const std::string key = with_underscores(word);
  const std::vector<std::string> homes = homes_of(key);
  if (!homes.empty()) return {fmt::format("{}.{}", homes.front(), key), ""};
  if (word == "all-linear") return {"adapter.target", ""};
  if (const std::string of_alias = key_of_alias(key); !of_alias.empty()) return {of_alias, ""};
  const Foreign* foreign = find_foreign(key);
  return foreign == nullptr ? KnownKey{}
                            : KnownKey{std::string(foreign->canonical), std::string(foreign->note)};
}

std::string unknown_key(std::string_view section, std::string_view key) {
  const std::string mend = cure(section, key);
  if (section.empty()) {
    return fmt::format("{} is not in a section{}", in_quotes(key),
                       mend.empty() ? fmt::format(" (sections: {})", list_of(section_names())) : mend);
  }
  const std::string name = fmt::format("{}.{}", section, key);
  return fmt::format(
      "unknown key {}{}", in_quotes(name),
      mend.empty() ? fmt::format(" (keys of [{}]: {})", section, list_of(keys_of(section))) : mend);
}

std::string not_of_family(std::string_view key, const model::Family& family) {
  const std::vector<std::string> keys = names_of(family.fields, &model::Field::key);
  for (const Foreign& foreign : kForeign) {
    const std::string_view canonical = foreign.canonical;
    if (foreign.name == key && canonical.starts_with("model."))
      return fmt::format("is not a field of a {} model; write {}", family.model_type, canonical.substr(6));
    // The usual name of a field that this family names otherwise.
    if (canonical == fmt::format("model.{}", key) && std::ranges::find(keys, foreign.name) != keys.end())
      return fmt::format("is not a field of a {} model; write {}", family.model_type, foreign.name);
  }
  return fmt::format("is not a field of a {} model{}", family.model_type, did_you_mean(key, keys));
}

std::string unknown_section(std::string_view section) {
  const std::size_t dot = section.find('.');
  if (dot != std::string_view::npos &&
      find_option(section.substr(0, dot), section.substr(dot + 1)) != nullptr)
    return fmt::format("{0} is a key, not a section; write {0}={{NAME = \"…\"}}", section);
  const std::vector<std::string> names(section_names().begin(), section_names().end());
  return fmt::format("unknown section {}{} (sections: {})", in_quotes(section), did_you_mean(section, names),
                     list_of(names));
}

}  // namespace mantissa::config
