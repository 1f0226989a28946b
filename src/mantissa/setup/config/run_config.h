// The config of a run (docs/cli/config-file.md): a plain struct, read from TOML, overridden by --set, and
// printed in resolved form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/optim/groups.h"
#include "mantissa/engine/optim/optimizer.h"
#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/policy/loss_scaler.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/text/rows/field_map.h"

namespace mantissa::config {

/// Held-out data: a share of the training sequences (the last ones; at least one if the share is above 0), or
/// separate files.
struct Validation {
  double share = 0.02;
  std::vector<std::string> files;  // if not empty, `share` is unused
  friend bool operator==(const Validation&, const Validation&) = default;
};

/// Consecutive steps with another length of sequences ([[run.stage]]). All fields are set.
struct Stage {
  std::int64_t steps = 0;
  std::int64_t sequence_length = 0;
  std::optional<double> rope_theta = {};  // base of the rotary angles; null: that of the model
  std::int64_t global_batch_size = 0, micro_batch_size = 0;
  double lr = 0;
  std::int64_t warmup_steps = 0;
  std::vector<std::string> source = {};
  friend bool operator==(const Stage&, const Stage&) = default;
};

struct RunSection {
  std::string name;
  std::string out;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;
  std::int64_t threads = 0;
  std::string on_nonfinite = "stop";  // or "skip", "continue"
  std::int64_t earlier_steps = 0;     // of a run that this one continues from its weights
  std::string skip_batches = {};      // steps, such as "7,9-12"
  std::vector<Stage> stages = {};     // empty: all steps are alike
  double epochs = 0;                  // in place of steps; 0 once those are known
  friend bool operator==(const RunSection&, const RunSection&) = default;
};

/// Exactly one of `path`, `config` and `fields` defines the model.
struct ModelSection {
  std::string path;
  std::string config;
  nlohmann::json fields = nlohmann::json::object();  // fields of config.json, written in [model]
  friend bool operator==(const ModelSection&, const ModelSection&) = default;
};

struct DataSection {
  std::vector<std::string> source;  // {"kk"}, or files and globs
  std::string format = "auto";
  text::FieldMap fields;         // the names of fields in the files; empty: the usual ones
  std::string id_type = "auto";  // of ids without a header; or "uint16", "uint32"
  std::string tokenizer = "byte";
  std::int64_t sequence_length = 256;
  std::int64_t people_min = 2, people_max = 8;  // of generated rows
  bool shuffle = true;
  std::string order = "auto";    // as `shuffle` says, or "rwkv"
  std::int64_t magic_prime = 0;  // of order "rwkv"; 0: found from the data
  Validation validation;
  // Of train.objective = "sft" (docs/fine-tuning.md):
  std::string chat_template = "auto";  // or "none", a built-in template, or a Jinja file
  std::string train_on = "assistant";  // or "last", "all"
  std::string truncate = "refuse";     // a row longer than sequence_length; or "left", "right", "skip"
  std::string masked_rows = "skip";    // a row without anything to train; or "refuse"
  std::string empty_answers = "skip";  // a row with an empty answer; or "train", "refuse"
  bool carry_state = false;            // rows continue the sequences of the step before
  bool packing = false;
  std::vector<double> weights;  // of the sources; empty: one stream
  std::int64_t separator = -1;  // ends a document in token files; -1: as their headers state
  friend bool operator==(const DataSection&, const DataSection&) = default;
};

struct AdapterSection {
  std::string kind = "none";  // or "lora", "state"
  std::int64_t rank = 8;
  double alpha = 16;
  std::vector<std::string> target = {"*.q_proj", "*.v_proj"};  // scopes of linear layers, as in rules
  bool rslora = false;
  bool dora = false;
  double dropout = 0;           // share of the adapters' inputs that a training step drops
  std::string base = "params";  // the format of the frozen weights; "params": that of the policy
  std::string path;             // an adapter to continue from, which has the settings above
  friend bool operator==(const AdapterSection&, const AdapterSection&) = default;
};

struct TrainSection {
  std::string objective = "pretrain";
  double attention_dropout = 0, residual_dropout = 0;  // shares that a training step drops
  double l2wrap = 0;  // of pretrain and sft: share of the largest logit in its gradient
  double z_loss = 0;  // of pretrain and sft: weight of the square of the log-sum-exp of a token's logits
  double router_aux_loss_coef = -1;  // the same: weight of the load-balancing loss; -1: as config.json asks
  friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

/// [dpo], of train.objective = "dpo".
struct DpoSection {
  double beta = 0.1;
  double gamma = 0;
  double label_smoothing = 0;
  std::string loss = "sigmoid";  // or "ipo", "simpo", "orpo"
  double nll_coef = 0;
  std::string reference;  // a model directory; empty: the starting weights
  friend bool operator==(const DpoSection&, const DpoSection&) = default;
};

/// [kto], of train.objective = "kto".
struct KtoSection {
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  std::string loss = "kto";  // or "apo-zero"
  std::string reference;     // a model directory; empty: the starting weights
  friend bool operator==(const KtoSection&, const KtoSection&) = default;
};

/// [rl], of train.objective = "rl".
struct RlSection {
  std::string algorithm = "grpo";  // or "dr-grpo", "ppo", "reinforce++", "reinforce++-baseline", "rloo"
  std::string reward = "kk";       // or "exact", "regex:…", "model", "program:…"
  std::string reward_model;        // of reward = "model": a model directory
  std::string reward_precision;    // of the reward model: a policy; empty: that of training
  std::int64_t prompts_per_step = 16, samples_per_prompt = 4, epochs = 1, minibatches = 1;
  double temperature = 1, top_p = 1;
  std::int64_t max_new_tokens = 256;
  double clip_low = 0.2, clip_high = 0.2, dual_clip = 0;
  double gamma = 1, lambda = 1;
  std::string whiten = "auto";  // or "batch", "none"
  double value_clip = 0.5, value_coef = 0.5, entropy_coef = 0;
  std::string kl = "k3", kl_in = "loss";
  double kl_coef = 0.001;
  std::string loss_mean = "token";   // or "sequence", "constant"
  std::string importance = "token";  // or "sequence"
  double importance_cap = 0;
  std::string rollout_precision;  // a policy; empty: that of training
  std::string reference;          // a model directory or "none"; empty: the starting weights
  double reward_timeout = 600;    // seconds for a rollout
  friend bool operator==(const RlSection&, const RlSection&) = default;
};

struct BatchSection {
  std::int64_t global_batch_size = 32;
  std::int64_t micro_batch_size = 8;
  std::int64_t leaf = 1;
  std::int64_t shards = 1;
  std::string recompute = "none";
  std::int64_t chunk_tokens = 1024;
  friend bool operator==(const BatchSection&, const BatchSection&) = default;
};

struct OptimizerSection {
  std::string name = "adamw";
  double lr = 3e-4;
  // the settings that `name` takes
  optim::Settings settings = optim::defaults(optim::find_optimizer("adamw"));
  double max_grad_norm = 1.0;
  std::vector<optim::Group> groups = {};
  friend bool operator==(const OptimizerSection&, const OptimizerSection&) = default;
};

struct ScheduleSection {
  std::string name = "cosine";
  std::int64_t warmup_steps = 20;
  double warmup_ratio = 0;  // settled into warmup_steps
  double min_lr_ratio = 0.1;
  std::int64_t decay_steps = 0;
  std::string decay = "cosine";
  std::int64_t timescale = 0;
  friend bool operator==(const ScheduleSection&, const ScheduleSection&) = default;
};

/// DeepSpeed's keys of the same names, the rule, and the patience with overflows that no scale can prevent.
/// Used only under a policy with a loss scale.
struct LossScaleSection {
  std::string rule = "deepspeed";  // or "torch"
  double loss_scale = 0;
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool raise_error_at_min_scale = true;
  std::int64_t forward_overflow_patience = 3;  // not DeepSpeed's
  friend bool operator==(const LossScaleSection&, const LossScaleSection&) = default;
};

struct CheckpointSection {
  std::int64_t interval = 100;
  std::int64_t keep = 2;
  double epochs = 0;  // in place of interval; 0 once the steps are known
  friend bool operator==(const CheckpointSection&, const CheckpointSection&) = default;
};

struct LogSection {
  std::int64_t interval = 1;
  bool tensorboard = true;
  std::int64_t health_interval = 10;
  std::string observe = {};  // scopes, as in rules; empty: nothing
  std::int64_t observe_interval = 100;
  friend bool operator==(const LogSection&, const LogSection&) = default;
};

/// Of runs that several ranks share.
struct DistributedSection {
  std::int64_t zero = 0;                        // stage of ZeRO
  std::int64_t sequence_shards = 1;             // ranks that share the tokens of a row
  std::int64_t persistence_threshold = 100000;  // elements
  double timeout = 600;
  std::int64_t check_interval = 100;
  friend bool operator==(const DistributedSection&, const DistributedSection&) = default;
};

/// The options --precision, --rule and --deepspeed of a command line.
struct PrecisionArguments {
  std::optional<std::string> policy;  // replaces the config's policy and its fields, keeps its rules
  std::vector<std::string> rules;     // appended ("--rule 1", … in explain)
  const compat::DeepSpeedFile* deepspeed = nullptr;  // replaces the file named by the config; overrides the
                                                     // config's text, and is overridden by the other options
};

/// Messages to the user about how a config was read, each reported once.
struct Told {
  std::vector<std::string> notes;     // how the config was read
  std::vector<std::string> warnings;  // differences from the written config
};

/// What the data say about run.epochs and checkpoint.epochs: the steps of each, and the rows of an epoch by
/// their name, such as "pair".
struct EpochSteps {
  std::int64_t steps = 0, rows = 0;
  std::string noun = "row";
  std::int64_t interval = 0;  // of checkpoint.epochs
};

/// A checked config. options() documents the meaning and the valid values of each key.
struct RunConfig {
  RunSection run;
  ModelSection model;
  DataSection data;
  TrainSection train;
  AdapterSection adapter;
  DpoSection dpo;
  KtoSection kto;
  RlSection rl;
  BatchSection batch;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  precision::Policy policy;  // [precision]
  bool native_only = false;  // of [precision]: reject a run that needs a format without native support
  std::string deepspeed;  // of [precision]; empty once read, since the other keys then have the file's values
  LossScaleSection loss_scale;
  CheckpointSection checkpoint;
  LogSection log;
  DistributedSection distributed;
  /// Not a key: the command line lets the programs that the config names run (reward/rule.h).
  bool allow_programs = false;

  /// Returns the resolved config as TOML, with every key and absolute paths. parse_config reads an equal
  /// config from it.
  std::string to_toml() const;
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

/// Reads the config file at `path` and applies `overrides` ("section.key=value", as in --set; the last one
/// wins) and `precision`. Relative paths are relative to the file's folder in the file and to the current
/// directory in overrides; run.out is always relative to the current directory. The value of an override is
/// TOML or a bare string. Throws FileError if the file cannot be read or is not text, and ConfigError for
/// invalid contents, with the file and line (or --set), the key, the value and the fix. Adds notes and
/// warnings to `told` unless it is null. `of_train`: the command is `train`, where [rl] beside
/// batch.global_batch_size does not set the objective. With run.epochs, run.steps is a number without meaning
/// unless `epochs` has the steps; so is checkpoint.interval with checkpoint.epochs.
RunConfig load_config(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                      const PrecisionArguments& precision = {}, Told* told = nullptr, bool of_train = false,
                      const std::optional<EpochSteps>& epochs = {});

/// Parses a config from memory. `file` appears in messages; relative paths are relative to its folder.
RunConfig parse_config(std::string_view text, const std::filesystem::path& file,
                       std::span<const std::string> overrides = {}, const PrecisionArguments& precision = {},
                       Told* told = nullptr, bool of_train = false,
                       const std::optional<EpochSteps>& epochs = {});

/// Returns the loss scaler of the policy and [precision.loss_scale], or null for a policy without one.
std::optional<precision::ScalerOptions> scaler_options(const RunConfig& config);

/// The documentation of a key.
struct OptionInfo {
  std::string section;
  std::string key;
  std::string type;           // "whole number", "number", "true or false", "string", …
  std::string default_value;  // as TOML; "" without a default
  std::string description;
};

/// Returns every key of a config in the order of its sections, as the source of help and documentation.
std::vector<OptionInfo> options();

/// Returns options() as a table for a terminal of `columns` columns: all, or those of one section.
std::string options_help(std::size_t columns = 80, std::string_view section = "");

}  // namespace mantissa::config
