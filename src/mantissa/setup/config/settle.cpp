// Checks and defaults that involve several keys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/epochs.h"
#include "mantissa/setup/config/fields.h"
#include "mantissa/setup/config/observed.h"
#include "mantissa/setup/config/optimizer.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/config/read.h"
#include "mantissa/setup/config/schedule.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/config/steps.h"
#include "mantissa/text/rows/file_kinds.h"
#include "mantissa/text/rows/generated_rows.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::config {
namespace {

constexpr std::int64_t kDefaultMicroBatch = 8;

void check_present(const RunConfig& config, const Entries& entries) {
  const auto missing = [&](std::string_view key, std::string_view cure) {
    throw ConfigError(fmt::format("{}: {} is missing; {}", entries.file, key, cure));
  };
  const bool staged = entries.find("run", "stage") != nullptr;
  if (config.run.steps == 0 && config.run.epochs == 0 && !staged)
    missing("run.steps", "set the number of optimizer steps under [run], such as steps = 300, or epochs = 3");
  if (config.model.path.empty() && config.model.config.empty() && config.model.fields.empty()) {
    missing("model", "set path, config, or fields of config.json (hidden_size = 256, …) under [model]");
  }
  if (config.data.source.empty() && !staged)
    missing("data.source", "set source = \"kk\", or files, under [data]");
}

/// Returns true if the directory of the config's model has a tokenizer file, or if the model is a file, which
/// is a GGUF file with its tokenizer.
bool has_tokenizer(const ModelSection& model) {
  if (model.path.empty() && model.config.empty()) return false;
  const std::filesystem::path path = model.path;
  if (path.empty())
    return !tokenizer::find_in_directory(std::filesystem::path(model.config).parent_path()).empty();
  if (disk::is_file(path)) return true;
  return !tokenizer::find_in_directory(tokenizer::files_directory(path)).empty();
}

/// The default is the model's own tokenizer, if it has one.
void settle_tokenizer(RunConfig& config, const Entries& entries) {
  if (entries.find("data", "tokenizer") == nullptr && has_tokenizer(config.model))
    config.data.tokenizer = "model";
}

/// Checks that only one of path, config and inline fields defines the model. rope_theta replaces the value of
/// a path or a config.
void check_model(const RunConfig& config, const Entries& entries) {
  const ModelSection& model = config.model;
  std::string inline_field;
  for (const auto& [key, value] : model.fields.items()) {
    if (inline_field.empty() && key != "rope_theta") inline_field = key;
  }
  std::string first, second;
  if (!model.path.empty() && !model.config.empty()) {
    first = "path";
    second = "config";
  } else if (!inline_field.empty() && !(model.path.empty() && model.config.empty())) {
    first = model.path.empty() ? "config" : "path";
    second = inline_field;
  }
  if (!first.empty()) {
    throw ConfigError(fmt::format("{}: model.{} and model.{} both define the model; keep one",
                                  entries.where("model", second), first, second));
  }
  if (config.data.tokenizer == "model" && model.path.empty() && model.config.empty()) {
    refuse(*entries.find("data", "tokenizer"),
           "there is no model.path with a tokenizer; write \"byte\", or a tokenizer file");
  }
}

void check_people(const RunConfig& config, const Entries& entries) {
  const DataSection& data = config.data;
  if (std::ranges::none_of(data.source, text::names_generator)) return;
  if (data.source.size() > 1 && data.weights.empty()) {
    refuse(*entries.find("data", "source"),
           fmt::format("\"kk\" among files requires data.weights, one share for each of the {} entries",
                       data.source.size()));
  }
  if (data.people_min <= data.people_max) return;
  refuse(*entries.find("data", "people_min"),  // its default is the smallest valid value
         fmt::format("must be at most data.people_max, which is {}", data.people_max));
}

/// Refuses a misspelt name of a built-in template: a file's name has a folder or an extension, or exists.
void check_template(const RunConfig& config, const Entry& entry) {
  const Option& option = *find_option("data", "template");
  const std::filesystem::path path = config.data.chat_template;
  if (path.is_relative() || path.has_extension() || disk::exists(path)) return;
  refuse(entry, fmt::format("unknown template{} (choices: {}, or a Jinja file)",
                            did_you_mean(path.filename().string(), option.choices), list_of(option.choices)));
}

/// The keys of rows that are conversations, by the objectives that read such rows.
struct ConversationKey {
  std::string_view key;
  std::vector<std::string_view> objectives;
};
const std::vector<ConversationKey>& conversation_keys() {
  static const std::vector<ConversationKey> keys = {{"template", {"sft", "reward", "dpo", "kto", "rl"}},
                                                    {"train_on", {"sft", "dpo"}},
                                                    {"truncate", {"sft", "reward", "dpo", "kto", "rl"}},
                                                    {"masked_rows", {"sft", "reward", "dpo", "kto"}},
                                                    {"empty_answers", {"sft", "reward", "dpo", "kto"}}};
  return keys;
}

/// Refuses keys that the run's objective does not use. A printed config has all keys.
void check_conversation_keys(RunConfig& config, const Entries& entries) {
  RunConfig defaults;
  for (const ConversationKey& k : conversation_keys()) {
    const Entry* entry = entries.find("data", k.key);
    if (entry == nullptr || std::ranges::find(k.objectives, config.train.objective) != k.objectives.end())
      continue;
    const Option* option = find_option("data", k.key);
    if (toml_text(option->slot(config)) == toml_text(option->slot(defaults))) continue;
    std::string all;
    for (const std::string_view objective : k.objectives)
      all += fmt::format("{}\"{}\"",
                         all.empty()                        ? ""
                         : objective == k.objectives.back() ? " and "
                                                            : ", ",
                         objective);
    refuse(*entry, fmt::format("only train.objective = {} {} it; set the objective, or remove the key", all,
                               k.objectives.size() == 1 ? "uses" : "use"));
  }
}

/// Checks the keys of objectives on conversations.
void settle_conversations(RunConfig& config, const Entries& entries, Told& told) {
  const std::string& objective = config.train.objective;
  const std::vector<std::string> rows = text::format_names(text::Formats::rows);
  check_conversation_keys(config, entries);
  check_fields(config, entries, told);
  if (objective == "pretrain") return;
  if (const Entry* entry = entries.find("data", "template"); entry != nullptr) check_template(config, *entry);
  if (const Entry* entry = entries.find("data", "format");
      entry != nullptr && std::ranges::find(rows, config.data.format) == rows.end()) {
    refuse(*entry, fmt::format("train.objective = \"{}\" reads rows with fields; write one of {}", objective,
                               list_of(rows)));
  }
  if (objective != "rl") return;
  if (const Entry* entry = entries.find("data", "truncate");
      entry != nullptr && config.data.truncate != "refuse" && config.data.truncate != "skip") {
    refuse(*entry, "a prompt of rl is not truncated; write \"refuse\" or \"skip\"");
  }
}

/// Sets the defaults that users of fine-tuning expect.
void settle_fine_tuning(RunConfig& config, const Entries& entries) {
  constexpr double kWarmUp = 0.03;
  const std::string& objective = config.train.objective;
  if (objective == "pretrain" || objective == "rl") return;
  if (entries.find("optimizer", "lr") == nullptr)
    config.optimizer.lr = objective == "sft" ? 5e-6 : objective == "reward" ? 9e-6 : 5e-7;
  if (entries.find("schedule", "warmup_steps") == nullptr && config.schedule.warmup_ratio == 0)
    config.schedule.warmup_steps = share_of_steps(config, kWarmUp);
}

/// L2Wrap and the z-loss scale with the loss of each token; other objectives have upstream gradients of
/// either sign.
void check_regularizers(const RunConfig& config, const Entries& entries) {
  const std::string& objective = config.train.objective;
  const double balance = config.train.router_aux_loss_coef;
  if (balance < 0 && balance != -1) {
    refuse(*entries.find("train", "router_aux_loss_coef"),
           "must be at least 0, or -1 for the weight of config.json");
  }
  if (objective == "pretrain" || objective == "sft") return;
  for (const auto& [key, weight] : {std::pair("l2wrap", config.train.l2wrap),
                                    {"z_loss", config.train.z_loss},
                                    {"router_aux_loss_coef", std::max(0.0, balance)}}) {
    if (weight == 0) continue;
    refuse(*entries.find("train", key),
           fmt::format("is a regularizer of pretrain and sft, but train.objective is \"{}\"; remove the key",
                       objective));
  }
}

void check_packing(const RunConfig& config, const Entries& entries) {
  const std::string& objective = config.train.objective;
  if (config.data.packing && objective != "pretrain" && objective != "sft") {
    refuse(
        *entries.find("data", "packing"),
        fmt::format("train.objective = \"{}\" does not pack rows, whose places stay empty without any cost; "
                    "remove the key",
                    objective));
  }
  if (!config.data.packing || config.batch.leaf == 1) return;
  refuse(*entries.find("batch", "leaf"),
         fmt::format("with data.packing every {} is a leaf; remove the key",
                     config.train.objective == "sft" ? "row of the data" : "document"));
}

void check_mixture(const RunConfig& config, const Entries& entries) {
  const std::size_t weights = config.data.weights.size(), sources = config.data.source.size();
  if (weights == 0) return;
  if (weights != sources) {
    refuse(*entries.find("data", "weights"),
           fmt::format("must have one number for each entry of data.source, which has {}", sources));
  }
  const std::vector<double>& all = config.data.weights;
  if (!std::isfinite(std::accumulate(all.begin(), all.end(), 0.0))) {
    refuse(*entries.find("data", "weights"),
           "must have a finite sum, because a share is a weight divided by the sum. Fix: give smaller "
           "weights with the same ratios, such as [1, 2]");
  }
}

/// RWKV-LM's order is one of whole streams, without held-out rows unless the config asks for them.
void settle_order(RunConfig& config, const Entries& entries) {
  DataSection& data = config.data;
  if (data.order != "rwkv") {
    if (data.magic_prime == 0) return;
    refuse(*entries.find("data", "magic_prime"),
           "only data.order = \"rwkv\" has a prime; set it, or remove the key");
  }
  const Entry& order = *entries.find("data", "order");
  if (config.train.objective != "pretrain")
    refuse(order, fmt::format("is an order of pretraining, but train.objective is \"{}\"; remove the key",
                              config.train.objective));
  if (!data.weights.empty())
    refuse(order, "is an order of one stream, which data.weights divides; remove one of the keys");
  if (!data.shuffle)
    refuse(*entries.find("data", "shuffle"),
           "data.order = \"rwkv\" is an order of its own; remove one of the keys");
  if (entries.find("data", "validation") == nullptr) data.validation.share = 0;
}

/// Rows that continue others are successive ones of one stream.
void settle_carried_state(RunConfig& config, const Entries& entries) {
  DataSection& data = config.data;
  if (!data.carry_state) return;
  const Entry& carry = *entries.find("data", "carry_state");
  const auto refuse_with = [&](const std::string& got, std::string_view fix) {
    refuse(carry,
           fmt::format("expected rows that follow each other in one stream, got {}. Fix: {}", got, fix));
  };
  if (config.train.objective != "pretrain")
    refuse_with(
        fmt::format("train.objective = \"{}\", whose rows are separate texts", config.train.objective),
        "remove the key");
  if (data.packing) refuse_with("data.packing, whose rows are whole documents", "remove one of the keys");
  if (!data.weights.empty()) refuse_with("data.weights, which mix several streams", "remove one of the keys");
  if (data.order != "auto") refuse_with(fmt::format("data.order = \"{}\"", data.order), "remove data.order");
  if (entries.find("run", "stage") != nullptr)
    refuse_with("[[run.stage]]", "train each stage as a run of its own");
  if (data.shuffle && entries.find("data", "shuffle") != nullptr)
    refuse_with("data.shuffle = true", "remove data.shuffle");
  data.shuffle = false;
}

/// Calls `parse`, and refuses the entry of the key if it throws.
template <class Parse>
void check_text(const Entries& entries, std::string_view section, std::string_view key, const Parse& parse) {
  const Entry* entry = entries.find(section, key);
  if (entry == nullptr) return;
  try {
    parse();
  } catch (const ConfigError& e) {
    refuse(*entry, e.what());
  }
}

/// A micro-batch is a multiple of a leaf and lies within a shard (docs/numerics.md, "Sums over tokens").
void settle_batch(RunConfig& config, const Entries& entries, bool divided) {
  BatchSection& batch = config.batch;
  const auto check = [&](std::string_view key, std::int64_t value, std::int64_t whole,
                         const std::string& of) {
    if (whole % value == 0) return;
    throw ConfigError(fmt::format("{}: batch.{} = {}: must divide {}, which is {}; try {}",
                                  entries.where("batch", key), key, value, of, whole, [&] {
                                    std::int64_t divisor = std::min(value, whole);
                                    while (whole % divisor != 0) --divisor;
                                    return divisor;
                                  }()));
  };
  check("shards", batch.shards, batch.global_batch_size, "batch.global_batch_size");
  const std::int64_t rows = batch.global_batch_size / batch.shards;
  const std::string name =
      batch.shards == 1 ? "batch.global_batch_size" : "the sequences of a shard (global_batch_size / shards)";
  check("leaf", batch.leaf, rows, name);
  if (entries.find("batch", "micro_batch_size") == nullptr && !divided) {
    batch.micro_batch_size = std::max(kDefaultMicroBatch / batch.leaf, std::int64_t{1}) * batch.leaf;
    while (rows % batch.micro_batch_size != 0) batch.micro_batch_size -= batch.leaf;
  }
  check("micro_batch_size", batch.micro_batch_size, rows, name);
  check("leaf", batch.leaf, batch.micro_batch_size, "batch.micro_batch_size");
  if (batch.chunk_tokens % kSumBlock != 0) {
    const std::int64_t nearest = (batch.chunk_tokens + kSumBlock - 1) / kSumBlock * kSumBlock;
    throw ConfigError(fmt::format(
        "{}: batch.chunk_tokens = {}: must be a multiple of {}, or 0 for all tokens at once; try {}",
        entries.where("batch", "chunk_tokens"), batch.chunk_tokens, kSumBlock, nearest));
  }
}

/// Stages have their own places in the data, rl samples by its own steps, and weights alone hold no states
/// that rows could go on from.
void check_earlier_steps(const RunConfig& config, const Entries& entries) {
  if (config.run.earlier_steps == 0) return;
  const auto refuse_with = [&](const std::string& with) {
    throw ConfigError(fmt::format("{}: run.earlier_steps = {}: expected 0 with {}. Fix: remove one of them",
                                  entries.where("run", "earlier_steps"), config.run.earlier_steps, with));
  };
  if (entries.find("run", "stage") != nullptr) refuse_with("[[run.stage]]");
  if (config.train.objective == "rl") refuse_with("train.objective = \"rl\"");
  if (config.data.carry_state) refuse_with("data.carry_state = true");
}

/// Translates the name that PEFT has for all linear layers except the head.
void settle_targets(RunConfig& config, const Entries& entries, Told& told) {
  for (std::string& target : config.adapter.target) {
    if (target != "all-linear") continue;
    target = "*";
    told.notes.push_back(
        fmt::format("{}: adapter.target \"all-linear\" is \"*\", all linear layers but the head",
                    entries.find("adapter", "target")->origin));
  }
}

void settle_run(RunConfig& config, const std::filesystem::path& file) {
  if (config.run.name.empty()) config.run.name = file.stem().string();
  if (config.run.out.empty()) config.run.out = "runs/" + config.run.name;
}

}  // namespace

void settle(RunConfig& config, const Entries& entries, bool policy_replaced,
            const compat::DeepSpeedFile* deepspeed, const std::optional<EpochSteps>& epochs, Told& told) {
  check_present(config, entries);
  check_model(config, entries);
  check_text(entries, "run", "skip_batches", [&] { parse_steps(config.run.skip_batches); });
  check_text(entries, "log", "observe", [&] { parse_observed(config.log.observe); });
  check_people(config, entries);
  check_mixture(config, entries);
  settle_post_training(config, entries, told);
  check_packing(config, entries);
  settle_order(config, entries);
  settle_carried_state(config, entries);
  settle_batch(config, entries, deepspeed != nullptr && divide_batch(config, entries, *deepspeed));
  settle_epochs(config, entries, epochs, told);
  check_regularizers(config, entries);
  settle_conversations(config, entries, told);
  settle_warmup_ratio(config, entries);
  settle_fine_tuning(config, entries);
  settle_optimizer(config, entries);
  check_adapter(config, entries);  // reads the groups
  settle_targets(config, entries, told);
  settle_schedule(config, entries, told);
  settle_stages(config, entries, told);
  check_shared_rows(config, entries);
  check_earlier_steps(config, entries);
  settle_run(config, entries.file);
  settle_tokenizer(config, entries);
  settle_loss_scale(config, entries, policy_replaced);
}

}  // namespace mantissa::config
